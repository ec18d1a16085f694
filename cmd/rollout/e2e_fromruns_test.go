package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink"
)

var qwen3Dir = filepath.Join("..", "..", "testdata", "tokenizers", "qwen3")

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
	if err := json.Unmarshal(answer, &list); err != nil {
		c.t.Fatal(err)
	}
	for _, r := range list {
		ids = append(ids, r.ID)
	}
	return ids
}

func (c curl) awaitRun(agent string) {
	c.t.Helper()
	for began := time.Now(); len(c.runs(agent)) == 0; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			c.t.Fatalf("agent %s has no server run", agent)
		}
	}
}

// sameAs returns a row without the columns that depend on who collected the sample and when.
func sameAs(r *sink.StoredRow) string {
	c := *r
	c.SampleKey, c.TaskID, c.GroupID, c.RolloutID, c.SampleIndex, c.GroupSize, c.Attempt = "", "", "", "", 0, 0, 0
	c.StartedAt, c.DurationMS, c.WorkingMS, c.Metadata, c.PromptSource = 0, 0, 0, nil, ""
	c.Versions, c.PolicyVersionMin, c.PolicyVersionMax, c.FinishReasons = nil, nil, nil, nil // traces of every call have more
	b, err := json.Marshal(c)
	if err != nil {
		return err.Error()
	}
	return string(b)
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
	info, err := runfolder.Read(driven)
	if err != nil {
		t.Fatal(err)
	}
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
			if a, b := sameAs(rows[i]), sameAs(mine[i]); a != b {
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
	for key, n := range got.keys() {
		if n != 1 {
			t.Errorf("sample %s is in the commit log %d times", key, n)
		}
	}
	if n := server.changes.Load(); n > 0 {
		t.Errorf("%d requests that may change something", n)
	}
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
	if code := p.wait(t, time.Minute); code != exit.Failures {
		t.Fatalf("exit code %d\n%s", code, p.said())
	}
	mustRun(t, exit.OK, "verify", dir)
	got := readDataset(t, dir)
	for _, id := range []string{old, first, second} {
		if rows := got.rows[sampleID{c.runs(id)[0], 0}]; len(rows) == 0 || rows[0].AgentID != id {
			t.Errorf("%s has %d rows", id, len(rows))
		}
	}
	if f := got.failures[sampleID{lost, 0}]; len(f) != 1 || f[0].Class != "no_turns" || f[0].Reason != "deleted" {
		t.Errorf("the deleted one: %+v", f)
	}
	if n := server.changes.Load(); n > 0 {
		t.Errorf("%d requests that may change something", n)
	}
}

func awaitText(t *testing.T, p *process, text string, n int) {
	t.Helper()
	for began := time.Now(); strings.Count(p.stdout.String(), text) < n; time.Sleep(10 * time.Millisecond) {
		if !p.alive() || time.Since(began) > 2*time.Minute {
			t.Fatalf("%d of %d %s\n%s", strings.Count(p.stdout.String(), text), n, text, p.said())
		}
	}
}
