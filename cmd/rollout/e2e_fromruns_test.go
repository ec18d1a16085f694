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

// A readOnly is a server that must not be changed once it is sealed.
type readOnly struct {
	http.Handler
	sealed  atomic.Bool
	changes atomic.Int64
	before  func(*http.Request) // called before each request; can be nil
}

func (s *readOnly) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.sealed.Load() && r.Method != http.MethodGet && !strings.HasPrefix(r.UserAgent(), "curl/") {
		s.changes.Add(1)
	}
	if s.before != nil {
		s.before(r)
	}
	s.Handler.ServeHTTP(w, r)
}

// unchanged fails the test if a request could have changed the sealed server.
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
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("User-Agent", "curl/8.5.0")
	r.Header.Set("Content-Type", "application/json")
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer w.Body.Close()
	answer, err = io.ReadAll(w.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return w.StatusCode, answer
}

func (c curl) agent(tag string) (id string) {
	c.t.Helper()
	var made struct{ ID string }
	if _, answer := c.do(http.MethodPost, "/v1/agents/", fmt.Sprintf(`{"model":%q,"tags":[%q]}`, simModel, tag)); json.Unmarshal(answer, &made) != nil || made.ID == "" {
		c.t.Fatalf("%s", answer)
	}
	return made.ID
}

func (c curl) send(agent, text string) (status int) {
	c.t.Helper()
	status, _ = c.do(http.MethodPost, "/v1/agents/"+agent+"/messages", fmt.Sprintf(`{"messages":[{"role":"user","content":%q}]}`, text))
	return status
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

func (c curl) awaitRun(agent string) {
	c.t.Helper()
	waitFor(c.t, "a server run of "+agent, func() bool { return len(c.runs(agent)) > 0 })
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
// trace has. Driving the same agents with plain requests samples and trains the same tokens.
func TestFromRunsEqual(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{})
	server := &readOnly{Handler: sim}
	url := serveHandler(t, sim, server)
	driven, read, plain := filepath.Join(t.TempDir(), "driven"), filepath.Join(t.TempDir(), "read"), filepath.Join(t.TempDir(), "plain")
	mustRun(t, exit.Failures, "collect", "--server", url, "--model", simModel, "--tokenizer", qwen3Dir, "--keep-agents", "--out", driven, "--quiet", "--fail-on-error", "50%",
		"--tasks", writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Cases: true})), "--retries", "0")
	info := must(runfolder.Read(driven))(t)
	server.sealed.Store(true)
	args := []string{"collect", "--server", url, "--tokenizer", qwen3Dir, "--quiet", "--fail-on-error", "100%", "--out"}
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

	server.sealed.Store(false)
	c := curl{t, url}
	agents := map[string]string{}
	for _, name := range []string{"single", "tool", "tool-parallel", "sixteen", "tool-unicode", "max-steps", "length"} {
		id := c.agent("curl")
		agents[id] = name
		if status := c.send(id, "[case:"+name+"] Go."); status != http.StatusOK {
			t.Fatalf("%s: %d", name, status)
		}
	}
	server.sealed.Store(true)
	for range 2 { // the second time adds nothing
		mustRun(t, exit.OK, append(args, plain, "--from-runs", "tag=curl", "--resume")...)
	}
	got = readDataset(t, plain)
	for id, rows := range got.rows {
		name := agents[rows[0].AgentID]
		if a, b := sampledOf(rows), sampledOf(byCase[name]); name == "" || a != b || rows[0].Verification != "count_verified" {
			t.Errorf("%s (%s): other tokens than driven\n%.300s\n%.300s", id.task, name, a, b)
		}
		delete(agents, rows[0].AgentID)
	}
	if len(agents) > 0 {
		t.Errorf("no rows of %v", agents)
	}
	got.once(t)
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

// With --follow, a server run is read when it ends. One whose agent was deleted is a failure with
// that reason, and a drain ends the run.
func TestFromRunsFollow(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true, Latency: lettasim.Latency{Low: 1500 * time.Millisecond}, Script: killScript()})
	var doomed atomic.Value // path of a server run whose agent is deleted before it is read
	doomed.Store("-")
	var gone atomic.Value
	var client atomic.Pointer[curl]
	server := &readOnly{Handler: sim}
	server.before = func(r *http.Request) {
		if path, _ := doomed.Load().(string); r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, path) {
			doomed.Store("-")
			id, _ := gone.Load().(string)
			client.Load().do(http.MethodDelete, "/v1/agents/"+id, "")
		}
	}
	url := serveHandler(t, sim, server)
	c := curl{t, url}
	client.Store(&c)
	old := c.agent("prod")
	c.send(old, "Add 1 and 2.")

	dir := filepath.Join(t.TempDir(), "run")
	server.sealed.Store(true)
	p := startProgram(t, "rollout", nil, "collect", "--server", url, "--from-runs", "tag=prod", "--follow", "--json", "--out", dir, "--fail-on-error", "100%")
	awaitText(t, p, `"event":"group"`, 1)
	// Two server runs begin now, and the first one ends last. The agent of a third is deleted.
	server.sealed.Store(false)
	first, second, third := c.agent("prod"), c.agent("prod"), c.agent("prod")
	sent := make(chan int, 2)
	go func() { sent <- c.send(first, "Add 3 and 4.") }()
	c.awaitRun(first)
	go func() { sent <- c.send(second, "Add 5 and 6.") }()
	<-sent
	<-sent
	awaitText(t, p, `"event":"group"`, 3)
	gone.Store(third)
	go func() { sent <- c.send(third, "Add 7 and 8.") }()
	c.awaitRun(third)
	<-sent
	lost := c.runs(third)[0]
	doomed.Store(lost + "/steps")
	server.sealed.Store(true)
	awaitText(t, p, `"event":"group"`, 4)
	mustRun(t, exit.OK, "ctl", dir, "drain")
	p.ends(t, time.Minute, exit.Failures)
	got := verified(t, dir)
	for _, id := range []string{old, first, second} {
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

// A forgetful is a server that answers for a while as if it had no traces.
type forgetful struct {
	readOnly
	forgets atomic.Bool
}

func (s *forgetful) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.forgets.Load() && r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/trace") {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "null") // the caller handles an error
		return
	}
	s.readOnly.ServeHTTP(w, r)
}

// --retry-failed reads only the server runs again that could not be read. It takes no new ones and
// reads none again that the run has. Lost ones fail again. A later resume takes the new ones.
func TestFromRunsRetry(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript()})
	server := &forgetful{readOnly: readOnly{Handler: sim}}
	url := serveHandler(t, sim, server)
	c := curl{t, url}
	good, gone := c.agent("prod"), c.agent("prod")
	c.send(good, "Add 1 and 2.")
	dir := filepath.Join(t.TempDir(), "run")
	collect := func(code int, args ...string) ran {
		t.Helper()
		server.sealed.Store(true)
		defer server.sealed.Store(false)
		return mustRun(t, code, append([]string{"collect", "--server", url, "--out", dir, "--fail-on-error", "100%"}, args...)...)
	}
	collect(exit.OK, "--from-runs", "tag=prod") // read successfully

	late := c.agent("prod")
	c.send(late, "Add 3 and 4.")
	c.send(late, "Add 5 and 6.")
	c.send(gone, "Add 7 and 8.")
	lost := c.runs(gone)[0]
	server.forgets.Store(true)
	collect(exit.Failures, "--resume")
	got := readDataset(t, dir)
	got.has(t, 1, 3)
	for id, f := range got.failures {
		if len(f) != 1 || f[0].Reason != "no_trace" {
			t.Errorf("%v: %+v", id, f)
		}
	}

	// The traces are back, one agent is deleted, and there is a new server run.
	server.forgets.Store(false)
	if status, answer := c.do(http.MethodDelete, "/v1/agents/"+gone, ""); status != http.StatusOK {
		t.Fatalf("%s", answer)
	}
	c.send(good, "Add 9 and 1.")
	r := collect(exit.Failures, "--retry-failed")
	contains(t, strings.Join(strings.Fields(r.stderr), " "), "planned 4", "committed 3", "failed 1")
	if strings.Contains(r.stderr, "server runs match") {
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
	if r := collect(exit.Usage, "--retry-failed", "--follow"); !strings.Contains(r.stderr, "--follow and --retry-failed exclude each other: --retry-failed reads only failed server runs") {
		t.Errorf("%s", r.stderr)
	}
	if r := collect(exit.Failures, "--retry-failed", "--from-runs", "tag=prod"); strings.Contains(r.stderr, "server runs match") || !strings.Contains(strings.Join(strings.Fields(r.stderr), " "), "planned 4 committed 3 failed 1") {
		t.Errorf("%s", r.stderr)
	}
	if r := collect(exit.Failures, "--resume"); !strings.Contains(r.stderr, "4 server runs match: 1 to read, 3 already in the run") {
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

// The routes for sends of other programs, with the additional fields of their requests.
var sendRoutes = []struct{ name, path, more string }{
	{"sync", "/messages", ""},
	{"stream", "/messages/stream", `,"streaming":true`},
	{"async", "/messages/async", ""},
}

func (c curl) sendBy(agent, path, more, text string) []byte {
	c.t.Helper()
	status, answer := c.do(http.MethodPost, "/v1/agents/"+agent+path, fmt.Sprintf(`{"messages":[{"role":"user","content":%q}]%s}`, text, more))
	if status != http.StatusOK {
		c.t.Fatalf("%s: %d %s", path, status, answer)
	}
	return answer
}

// alike returns a row without the columns that name the agent, its run and the time.
func alike(t *testing.T, r *sink.StoredRow) string {
	t.Helper()
	c := *r
	c.SampleKey, c.TaskID, c.GroupID, c.RolloutID, c.AgentID, c.RunIDs, c.StepIDs = "", "", "", "", "", nil, nil
	c.StartedAt, c.DurationMS, c.WorkingMS, c.Messages = 0, 0, 0, nil
	return asText(t, c)
}

// Server runs of streams and asynchronous sends, whose answers have no turns, give the same rows
// with the same grades and ends. Those that have not ended are skipped, and --follow waits for them.
func TestFromRunsModes(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{})
	c := curl{t, serveSim(t, sim)}
	names := []string{"single", "tool", "tool-parallel", "sixteen", "tool-unicode", "tool-think-two", "max-steps", "length"}
	byRoute := map[string]map[string][]*sink.StoredRow{}
	for _, route := range sendRoutes {
		agents := map[string]string{}
		for _, name := range names {
			id := c.agent(route.name)
			agents[id] = name
			answer := c.sendBy(id, route.path, route.more, "[case:"+name+"] Go.")
			if has := bytes.Contains(answer, []byte("output_ids")); has != (route.name == "sync") {
				t.Errorf("%s %s: the answer has turns: %v", route.name, name, has)
			}
		}
		dir := filepath.Join(t.TempDir(), route.name)
		mustRun(t, exit.OK, "collect", "--server", c.url, "--tokenizer", qwen3Dir, "--quiet", "--out", dir, "--from-runs", "tag="+route.name)
		mustRun(t, exit.OK, "verify", dir)
		byRoute[route.name] = map[string][]*sink.StoredRow{}
		for _, rows := range readDataset(t, dir).rows {
			byRoute[route.name][agents[rows[0].AgentID]] = rows
		}
	}
	for _, name := range names {
		want := byRoute["sync"][name]
		if len(want) == 0 {
			t.Errorf("%s has no rows", name)
		}
		for _, route := range sendRoutes[1:] {
			got := byRoute[route.name][name]
			if len(got) != len(want) {
				t.Errorf("%s by %s: %d rows, want %d", name, route.name, len(got), len(want))
				continue
			}
			for i := range want {
				if a, b := alike(t, want[i]), alike(t, got[i]); a != b {
					t.Errorf("%s by %s, row %d:\n%.1500s\nwant\n%.1500s", name, route.name, i, b, a)
				}
			}
		}
	}

	sim = newSim(t, lettasim.Config{InputIDs: true, Latency: lettasim.Latency{Low: 3 * time.Second}, Script: killScript()})
	c = curl{t, serveSim(t, sim)}
	var sends sync.WaitGroup
	for _, route := range sendRoutes[1:] {
		id := c.agent("prod")
		sends.Go(func() { c.sendBy(id, route.path, route.more, "Add 1 and 2.") })
		c.awaitRun(id)
	}
	dir := filepath.Join(t.TempDir(), "run")
	collect := []string{"collect", "--server", c.url, "--from-runs", "tag=prod", "--out", dir}
	r := mustRun(t, exit.OK, append(collect, "--dry-run")...)
	if early := mustRun(t, exit.OK, append(collect[:6:6], dir+"-early")...); sim.Stats().Answered == 0 { // otherwise the machine was slow
		contains(t, r.stdout+r.stderr, "2 not ended")
		contains(t, early.stderr, "2 not ended", "server runs have not ended and are skipped; use --follow")
	}
	p := startProgram(t, "rollout", nil, append(collect, "--follow", "--json")...)
	awaitText(t, p, `"event":"group"`, 2)
	mustRun(t, exit.OK, "ctl", dir, "drain")
	p.ends(t, time.Minute, exit.OK)
	sends.Wait()
	verified(t, dir).has(t, 2, 0)
}

// If a collection is killed at random moments while it lists and reads server runs, each one is in
// the dataset once at the end.
func TestFromRunsKill(t *testing.T) {
	t.Parallel()
	r := randomOf(t)
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript()})
	server := &readOnly{Handler: sim}
	worked := make(chan struct{}, 1)
	server.before = func(q *http.Request) {
		if strings.HasSuffix(q.URL.Path, "/trace") {
			time.Sleep(10 * time.Millisecond)
			select {
			case worked <- struct{}{}:
			default:
			}
		}
	}
	c := curl{t, serveHandler(t, sim, server)}
	const agents, sends, kills = 12, 5, 4
	runs := map[string]bool{}
	for range agents {
		id := c.agent("prod")
		for n := range sends {
			if status := c.send(id, fmt.Sprintf("Add %d and 2.", n)); status != http.StatusOK {
				t.Fatal(status)
			}
		}
		for _, run := range c.runs(id) {
			runs[run] = true
		}
	}
	server.sealed.Store(true)
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
			if status := c.send(id, text); status != http.StatusOK {
				t.Fatal(status)
			}
		}
	}
	dir := filepath.Join(t.TempDir(), "run")
	mustRun(t, exit.OK, "collect", "--server", c.url, "--from-runs", "tag=tapped", "--tap", s.tap.spool, "--prompts", "tap", "--out", dir, "--quiet")
	res := s.checkExact(t, dir, 6)
	if n := len(s.engine.Calls()); res.InRows.Calls != n || res.Told["top_p 1"] != n {
		t.Errorf("the rows have %d of %d calls, %v", res.InRows.Calls, n, res.Told)
	}
}
