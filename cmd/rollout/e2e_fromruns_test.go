package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink"
)

// A readOnly is a server that counts the requests that could change it, except plain ones.
type readOnly struct {
	http.Handler
	changes atomic.Int64
}

func (s *readOnly) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && !strings.HasPrefix(r.UserAgent(), "curl/") {
		s.changes.Add(1)
	}
	s.Handler.ServeHTTP(w, r)
}

// unchanged fails the test if a request could have changed the server.
func (s *readOnly) unchanged(t *testing.T) {
	t.Helper()
	if n := s.changes.Load(); n > 0 {
		t.Errorf("%d requests that may change something", n)
	}
}

// curl drives an agent like another program, with plain requests.
type curl struct {
	t   *testing.T
	url string
}

func (c curl) do(method, path, body string) (status int, answer []byte) {
	c.t.Helper()
	r := must(http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(body)))(c.t)
	r.Header = http.Header{"User-Agent": {"curl/8.5.0"}, "Content-Type": {"application/json"}}
	w, err := http.DefaultClient.Do(r)
	noError(c.t, err)
	defer w.Body.Close()
	return w.StatusCode, must(io.ReadAll(w.Body))(c.t)
}

func (c curl) agent(tag string) (id string) {
	c.t.Helper()
	var made struct{ ID string }
	if _, answer := c.do(http.MethodPost, "/v1/agents/", fmt.Sprintf(`{"model":%q,"tags":[%q]}`, simModel, tag)); json.Unmarshal(answer, &made) != nil || made.ID == "" {
		c.t.Fatalf("%s", answer)
	}
	return made.ID
}

// The routes for sends of other programs, with the additional fields of their requests.
var sendRoutes = []struct{ name, path, more string }{
	{"sync", "/messages", ""},
	{"stream", "/messages/stream", `,"streaming":true`},
	{"async", "/messages/async", ""},
}

// send sends a text on one of sendRoutes.
func (c curl) send(agent, text string, route int) []byte {
	c.t.Helper()
	r := sendRoutes[route]
	body := fmt.Sprintf(`{"messages":[{"role":"user","content":%q}]%s}`, text, r.more)
	status, answer := c.do(http.MethodPost, "/v1/agents/"+agent+r.path, body)
	if status != http.StatusOK {
		c.t.Fatalf("%s: %d %s", r.path, status, answer)
	}
	return answer
}

func (c curl) runs(agent string) (ids []string) {
	c.t.Helper()
	_, answer := c.do(http.MethodGet, "/v1/runs/?agent_id="+agent, "")
	var list []struct{ ID string }
	noError(c.t, json.Unmarshal(answer, &list))
	for _, r := range list {
		ids = append(ids, r.ID)
	}
	return ids
}

// sameAs returns a row without the columns that depend on who collected the sample and when.
func sameAs(t *testing.T, r *sink.StoredRow) string {
	t.Helper()
	c := *r
	c.SampleKey, c.TaskID, c.GroupID, c.RolloutID, c.SampleIndex, c.GroupSize, c.Attempt = "", "", "", "", 0, 0, 0
	c.StartedAt, c.DurationMS, c.WorkingMS, c.Metadata, c.PromptSource = 0, 0, 0, nil, ""
	c.Versions, c.PolicyVersionMin, c.PolicyVersionMax, c.FinishReasons = nil, nil, nil, nil // traces of every call have more
	return asText(t, c)
}

// Server runs of recorded agents give the same rows as driving the agents, except for facts that no
// trace has. Driving the same agents with plain requests, by any route, samples and trains the same
// tokens, even if the answers have no turns.
func TestFromRunsEqual(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{})
	server := &readOnly{Handler: sim}
	c := curl{t, serveHandler(t, sim, server)}
	driven, read := filepath.Join(t.TempDir(), "driven"), filepath.Join(t.TempDir(), "read")
	mustRun(t, exit.Failures, "collect", "--server", serveSim(t, sim), "--model", simModel, "--tokenizer", qwen3Dir, "--keep-agents", "--out", driven, "--quiet", "--fail-on-error", "50%",
		"--tasks", writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Cases: true})), "--retries", "0")
	info := must(runfolder.Read(driven))(t)
	args := []string{"collect", "--server", c.url, "--tokenizer", qwen3Dir, "--quiet", "--fail-on-error", "100%", "--out"}
	mustRun(t, exit.Failures, append(args, read, "--from-runs", "tag="+agent.TagRun(info.ID))...)
	mustRun(t, exit.OK, "verify", read)

	want, got := readDataset(t, driven), readDataset(t, read)
	byCase := map[string][]*sink.StoredRow{}
	same := 0
	for id, rows := range want.rows {
		byCase[id.task] = rows
		if len(rows[0].RunIDs) > 1 || id.task == "conversation" {
			continue // several server runs are several samples
		}
		mine := got.rows[sampleID{rows[0].RunIDs[0], 0}]
		if id.task == "compaction" || id.task == "nan" { // only answers have calls without a trace
			if len(mine) > 0 && id.task == "nan" {
				t.Errorf("%s: %d rows", id.task, len(mine))
			}
			continue
		}
		if len(mine) != len(rows) {
			t.Errorf("%s: %d rows, driven %d; %+v", id.task, len(mine), len(rows), got.failures[sampleID{rows[0].RunIDs[0], 0}])
			continue
		}
		for i := range rows {
			if a, b := sameAs(t, rows[i]), sameAs(t, mine[i]); a != b {
				t.Errorf("%s row %d:\n %.2000s\nwant\n %.2000s", id.task, i, b, a)
			}
			if mine[i].Reward != nil || mine[i].GroupSize != 1 || mine[i].PromptSource != "trace" || slices.Contains(mine[i].FinishReasons, "") {
				t.Errorf("%s row %d: %v %d %s %q", id.task, i, mine[i].Reward, mine[i].GroupSize, mine[i].PromptSource, mine[i].FinishReasons)
			}
		}
		same++
	}
	if same < 20 {
		t.Errorf("only %d samples could be compared", same)
	}

	names := []string{"single", "tool", "tool-parallel", "sixteen", "tool-unicode", "tool-think-two", "max-steps", "length"}
	plain := map[string][]*sink.StoredRow{} // of the first route
	for i, route := range sendRoutes {
		agents := map[string]string{}
		for _, name := range names {
			id := c.agent(route.name)
			agents[id] = name
			answer := c.send(id, "[case:"+name+"] Go.", i)
			if has := bytes.Contains(answer, []byte("output_ids")); has != (route.name == "sync") {
				t.Errorf("%s %s: the answer has turns: %v", route.name, name, has)
			}
		}
		dir := filepath.Join(t.TempDir(), route.name)
		for range 2 { // the second time adds nothing
			mustRun(t, exit.OK, append(args, dir, "--from-runs", "tag="+route.name, "--resume")...)
		}
		got := verified(t, dir)
		got.once(t)
		for _, rows := range got.rows {
			name := agents[rows[0].AgentID]
			delete(agents, rows[0].AgentID)
			if a, b := sampledOf(rows), sampledOf(byCase[name]); name == "" || a != b || rows[0].Verification != "count_verified" {
				t.Errorf("%s by %s: other tokens than driven\n%.300s\n%.300s", name, route.name, a, b)
			}
			if plain[name] == nil {
				plain[name] = rows
			}
			if a, b := alike(t, plain[name]), alike(t, rows); a != b {
				t.Errorf("%s by %s:\n%.1500s\nwant\n%.1500s", name, route.name, b, a)
			}
		}
		if len(agents) > 0 {
			t.Errorf("%s: no rows of %v", route.name, agents)
		}
	}
	server.unchanged(t)
}

// sampledOf returns the trained tokens of rows: ids and log-probabilities.
func sampledOf(rows []*sink.StoredRow) string {
	var out strings.Builder
	for _, r := range rows {
		for i, m := range r.LossMask {
			if m == 1 {
				fmt.Fprintf(&out, "%d:%v ", r.InputIDs[i], r.Logprobs[i])
			}
		}
	}
	return out.String()
}

// alike returns rows without the columns that name the agent, its run and the time.
func alike(t *testing.T, rows []*sink.StoredRow) (text string) {
	t.Helper()
	for _, r := range rows {
		c := *r
		c.SampleKey, c.TaskID, c.GroupID, c.RolloutID, c.AgentID, c.RunIDs, c.StepIDs = "", "", "", "", "", nil, nil
		c.StartedAt, c.DurationMS, c.WorkingMS, c.Messages = 0, 0, 0, nil
		text += asText(t, c)
	}
	return text
}

// With --follow, a server run is read when it ends, and otherwise it is skipped. One whose agent was
// deleted is a failure with that reason, and a drain ends the run.
func TestFromRunsFollow(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true, Latency: lettasim.Latency{Low: 2 * time.Second}, Script: killScript()})
	var doomed atomic.Pointer[string] // path of a request that deletes its agent before it is answered
	var c curl
	var third string
	server := &readOnly{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path := doomed.Load(); path != nil && r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, *path) && doomed.CompareAndSwap(path, nil) {
			c.do(http.MethodDelete, "/v1/agents/"+third, "")
		}
		sim.ServeHTTP(w, r)
	})}
	url := serveHandler(t, sim, server)
	c = curl{t, url}
	old := c.agent("prod")
	c.send(old, "Add 1 and 2.", 0)

	dir := filepath.Join(t.TempDir(), "run")
	p := startProgram(t, "rollout", nil, "collect", "--server", url, "--from-runs", "tag=prod", "--follow", "--json", "--out", dir, "--fail-on-error", "100%")
	awaitText(t, p, `"event":"group"`, 1)
	var sends sync.WaitGroup
	agents := []string{old}
	for route := 1; route <= 2; route++ {
		id := c.agent("prod")
		agents = append(agents, id)
		sends.Go(func() { c.send(id, "Add 3 and 4.", route) })
		waitFor(t, "a server run of "+id, func() bool { return len(c.runs(id)) > 0 })
	}
	early := []string{"collect", "--server", url, "--from-runs", "tag=prod", "--out", dir + "-early"}
	r := mustRun(t, exit.OK, append(early, "--dry-run")...)
	skips := mustRun(t, exit.OK, early...)
	slow := slices.ContainsFunc(agents[1:], func(id string) bool { // a server run has ended in the meantime
		_, answer := c.do(http.MethodGet, "/v1/runs/"+c.runs(id)[0], "")
		return !bytes.Contains(answer, []byte(`"completed_at":null`))
	})
	if !slow {
		contains(t, r.stdout+r.stderr, "2 still in progress")
		contains(t, skips.stderr, "2 still in progress", "skipping 2 server runs still in progress; use --follow")
	}
	sends.Wait()
	awaitText(t, p, `"event":"group"`, 3)
	third = c.agent("prod")
	c.send(third, "Add 7 and 8.", 0)
	lost := c.runs(third)[0]
	doomed.Store(new(lost + "/steps"))
	awaitText(t, p, `"event":"group"`, 4)
	mustRun(t, exit.OK, "ctl", dir, "drain")
	p.ends(t, time.Minute, exit.Failures)
	got := verified(t, dir)
	for _, id := range agents {
		if rows := got.rows[sampleID{c.runs(id)[0], 0}]; len(rows) == 0 || rows[0].AgentID != id {
			t.Errorf("%s has %d rows", id, len(rows))
		}
	}
	if f := got.failures[sampleID{lost, 0}]; len(f) != 1 || f[0].Class != "no_turns" || f[0].Reason != "deleted" {
		t.Errorf("the deleted one: %+v", f)
	}
	server.unchanged(t)
}

func awaitText(t *testing.T, p *process, text string, n int) {
	t.Helper()
	has := func() bool { return strings.Count(p.stdout.String(), text) >= n }
	if waitFor(t, text, func() bool { return has() || !p.alive() }); !has() {
		t.Fatalf("not %d times %s\n%s", n, text, p.said())
	}
}

// --retry-failed reads only the server runs again that could not be read. It takes no new ones and
// reads none again that the run has. Lost ones fail again. A later resume takes the new ones.
func TestFromRunsRetry(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript()})
	var forgets atomic.Bool // the server answers as if it had no traces
	server := &readOnly{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if forgets.Load() && r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/trace") {
			text(http.StatusOK, "null")(w, r)
			return
		}
		sim.ServeHTTP(w, r)
	})}
	c := curl{t, serveHandler(t, sim, server)}
	good, gone := c.agent("prod"), c.agent("prod")
	c.send(good, "Add 1 and 2.", 0)
	dir := filepath.Join(t.TempDir(), "run")
	collect := func(code int, args ...string) ran {
		t.Helper()
		return mustRun(t, code, append([]string{"collect", "--server", c.url, "--out", dir, "--fail-on-error", "100%"}, args...)...)
	}
	collect(exit.OK, "--from-runs", "tag=prod") // read successfully

	late := c.agent("prod")
	c.send(late, "Add 3 and 4.", 0)
	c.send(late, "Add 5 and 6.", 0)
	c.send(gone, "Add 7 and 8.", 0)
	lost := c.runs(gone)[0]
	forgets.Store(true)
	collect(exit.Failures, "--resume")
	got := readDataset(t, dir)
	got.has(t, 1, 3)
	for id, f := range got.failures {
		if len(f) != 1 || f[0].Reason != "no_trace" {
			t.Errorf("%v: %+v", id, f)
		}
	}

	// The traces are back, one agent is deleted, and there is a new server run.
	forgets.Store(false)
	if status, answer := c.do(http.MethodDelete, "/v1/agents/"+gone, ""); status != http.StatusOK {
		t.Fatalf("%s", answer)
	}
	c.send(good, "Add 9 and 1.", 0)
	r := collect(exit.Failures, "--retry-failed")
	contains(t, strings.Join(strings.Fields(r.stderr), " "), "planned 4", "committed 3", "failed 1")
	if strings.Contains(r.stderr, "matching server runs") {
		t.Errorf("the list of server runs was read\n%s", r.stderr)
	}
	got = readDataset(t, dir)
	for _, id := range c.runs(late) {
		if rows := got.rows[sampleID{id, 0}]; len(rows) == 0 || rows[0].AgentID != late || rows[0].Attempt != 2 {
			t.Errorf("%s has %d rows", id, len(rows))
		}
	}
	if f := got.failures[sampleID{lost, 0}]; len(f) == 0 || f[len(f)-1].Reason != "deleted" || f[len(f)-1].Attempt != 2 {
		t.Errorf("the deleted one: %+v", f)
	}
	if len(got.rows) != 3 {
		t.Errorf("%d samples have rows", len(got.rows))
	}

	// A second --retry-failed finds only the lost one. A resume takes the new one.
	if r := collect(exit.Usage, "--retry-failed", "--follow"); !strings.Contains(r.stderr, "--follow and --retry-failed cannot be used together: --retry-failed reads only what could not be read before") {
		t.Errorf("%s", r.stderr)
	}
	if r := collect(exit.Failures, "--retry-failed", "--from-runs", "tag=prod"); strings.Contains(r.stderr, "matching server runs") || !strings.Contains(strings.Join(strings.Fields(r.stderr), " "), "planned 4 committed 3 failed 1") {
		t.Errorf("%s", r.stderr)
	}
	if r := collect(exit.Failures, "--resume"); !strings.Contains(r.stderr, "matching server runs: 4 (1 to read, 3 already in the run") {
		t.Errorf("%s", r.stderr)
	}
	got = verified(t, dir)
	runs := append(c.runs(good), c.runs(late)...)
	for id := range got.rows {
		if !slices.Contains(runs, id.task) {
			t.Errorf("%s is no server run of these agents", id.task)
		}
	}
	if len(got.rows) != 4 || len(runs) != 4 {
		t.Errorf("%d samples of %d server runs", len(got.rows), len(runs))
	}
	server.unchanged(t)
}

// If a collection is killed at random moments while it lists and reads server runs, each one is in
// the dataset once at the end.
func TestFromRunsKill(t *testing.T) {
	t.Parallel()
	r := randomOf(t)
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript()})
	worked := make(chan struct{}, 1)
	server := &readOnly{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if strings.HasSuffix(q.URL.Path, "/trace") {
			time.Sleep(10 * time.Millisecond)
			select {
			case worked <- struct{}{}:
			default:
			}
		}
		sim.ServeHTTP(w, q)
	})}
	c := curl{t, serveHandler(t, sim, server)}
	const agents, sends, kills = 12, 5, 4
	runs := map[string]bool{}
	for range agents {
		id := c.agent("prod")
		for n := range sends {
			c.send(id, fmt.Sprintf("Add %d and 2.", n), 0)
		}
		for _, run := range c.runs(id) {
			runs[run] = true
		}
	}
	dir := filepath.Join(t.TempDir(), "run")
	for life := 0; ; life++ {
		select {
		case <-worked:
		default:
		}
		p := startProgram(t, "rollout", nil, "collect", "--resume", "--server", c.url, "--from-runs", "since=1h", "--out", dir, "--quiet", "--max-in-flight", "2")
		if life < kills {
			select {
			case <-worked:
				time.Sleep(time.Duration(r.IntN(150)) * time.Millisecond)
				p.kill()
				continue
			case <-p.ended:
			}
		}
		if code := p.wait(t, time.Minute); code != exit.OK {
			t.Fatalf("life %d: exit code %d\n%s", life, code, p.said())
		}
		if life >= kills {
			break
		}
	}
	got := verified(t, dir)
	if len(got.rows) != len(runs) || len(got.failures) > 0 || len(runs) != agents*sends {
		t.Errorf("%d samples and %d failures of %d server runs", len(got.rows), len(got.failures), len(runs))
	}
	for id := range got.rows {
		if !runs[id.task] {
			t.Errorf("%s is no server run", id.task)
		}
	}
	got.once(t)
	server.unchanged(t)
}

// Server runs that went through a tap are exact, even if they are read later.
func TestFromRunsTap(t *testing.T) {
	t.Parallel()
	s := newTapped(t, 1, lettasim.Config{BareTraces: true}, "--set", "top_p=1.0")
	c := curl{t, s.url}
	for range 3 {
		id := c.agent("tapped")
		for _, text := range []string{"Add 1 and 2.", "Add 3 and 4."} {
			c.send(id, text, 0)
		}
	}
	dir := filepath.Join(t.TempDir(), "run")
	mustRun(t, exit.OK, "collect", "--server", c.url, "--from-runs", "tag=tapped", "--tap", s.tap.spool, "--prompts", "tap", "--out", dir, "--quiet")
	res := s.checkExact(t, dir, 6)
	if n := len(s.engine.Calls()); res.InRows.Calls != n || res.Told["top_p 1"] != n {
		t.Errorf("the rows have %d of %d calls, %v", res.InRows.Calls, n, res.Told)
	}
}
