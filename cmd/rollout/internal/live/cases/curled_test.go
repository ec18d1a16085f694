//go:build linux

package cases_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/live/enginecheck"
	"github.com/rollout-rl/rollout/collector/letta"
)

// routes are the ways for another program to send, with the tasks for each: wait for the answer,
// stream events, or send asynchronously.
var routes = []struct {
	path  string
	tasks []string
}{
	{"/messages", []string{"think-tool", "text-around", "unicode", "sixteen", "malformed"}},
	{"/messages/stream", []string{"many", "parallel", "split", "fail", "single"}},
	{"/messages/async", []string{"tool", "numbers", "chars", "random-a", "text-tool"}},
}

// curled plays some of the tasks by plain requests through the tap, while a collection follows. Its
// rows must equal the rows of the driven ones. The rows of a collection that also reads the tap
// must be exact and equal.
func (w *world) curled(t *testing.T, p *tapped, tasks []task, driven *enginecheck.Run) {
	t.Helper()
	c, from := curl{w, t}, len(w.engine.calls())
	const tag = "curled-same"
	agents := map[string]string{} // by task
	var last struct {             // the last server run
		ID        string
		CreatedAt letta.Time `json:"created_at"`
	}
	play := func(path, id string) {
		k := tasks[slices.IndexFunc(tasks, func(k task) bool { return k.id == id })]
		more := map[string]any{"model": p.handle, "agent_type": "letta_v1_agent", "memory_blocks": []any{}, "timezone": "UTC"}
		if create, ok := k.agent["create"].(map[string]any); ok {
			maps.Copy(more, create)
		}
		agents[id] = c.agent(tag, more, k.tools...)
		status, answer := c.do(http.MethodPost, "/v1/agents/"+agents[id]+path, map[string]any{"messages": []any{map[string]any{"role": "user", "content": k.says[0]}}})
		if status != http.StatusOK {
			t.Fatalf("%s by %s: %d %.300s", id, path, status, answer)
		}
		if path == "/messages/async" {
			noError(t, json.Unmarshal(answer, &last))
		}
	}
	play(routes[0].path, routes[0].tasks[0])
	dir := filepath.Join(t.TempDir(), "follow")
	args := []string{"collect", "--resume", "--server", w.l.URLs[0], "--tokenizer", w.l.Model, "--out", dir, "--from-runs", "tag=" + tag}
	follower := w.begin(t, append(args, "--follow", "--json")...)
	follower.says(t, `"event":"group"`, 1)
	for _, r := range routes {
		for _, id := range r.tasks {
			if agents[id] == "" {
				play(r.path, id)
			}
		}
	}
	follower.says(t, `"event":"group"`, len(agents))
	w.l.MustRun(t, exit.OK, w.program, "ctl", dir, "drain")
	follower.wait(t, exit.OK)

	followed := w.readRuns(t, dir, exit.OK, "--from-runs", "tag="+tag, "--follow=false") // tasks.follow is set in the run
	w.total.Add(w.compareRead(t, "followed", followed, from, "count_verified", len(agents)))
	mustBeSame(t, "by curl, and driven", followed, driven, w.shown(t), w.order(t), 50, len(agents), 0)

	exact := w.readRuns(t, filepath.Join(t.TempDir(), "tap"), exit.OK, "--from-runs", "tag="+tag, "--tap", p.spool)
	w.compareRead(t, "read with the tap", exact, from, "exact", len(agents))
	mustBeSame(t, "read without the tap and with it", followed, exact, nil, nil, 50, 2*len(agents), 0)

	some := w.readRuns(t, filepath.Join(t.TempDir(), "some"), exit.OK, "--from-runs", "agent="+agents["many"], "--from-runs", "run="+last.ID)
	w.compareRead(t, "an agent's, and one by its id", some, from, "count_verified", 2)
	began := must(last.CreatedAt.Time())(t)
	since := w.readRuns(t, filepath.Join(t.TempDir(), "since"), exit.OK, "--from-runs", "tag="+tag, "--from-runs", "since="+began.Format(time.RFC3339Nano))
	w.compareRead(t, "since the last one began", since, from, "count_verified", 1)

	// A stream of single tokens has no ids, so nothing is claimed about it.
	bare := c.agent(tag+"-tokens", map[string]any{"model": p.handle}, "add")
	if status, answer := c.do(http.MethodPost, "/v1/agents/"+bare+"/messages/stream", map[string]any{
		"stream_tokens": true, "messages": []any{map[string]any{"role": "user", "content": "Go on. [script:tool copy=1000]"}},
	}); status != http.StatusOK {
		t.Errorf("a stream of tokens: %d %.300s", status, answer)
	}
	none := w.readRuns(t, filepath.Join(t.TempDir(), "none"), exit.Tolerance, "--from-runs", "agent="+bare)
	if len(none.Rows) != 0 || len(none.Failures) != 1 || none.Failures[0].Reason != "not_native" {
		t.Errorf("a stream of tokens: %d rows, failures %+v", len(none.Rows), none.Failures)
	}
}

// compareRead compares server runs with the calls of the engine from index from on. It wants this
// many samples of the grade and no failure.
func (w *world) compareRead(t *testing.T, name string, run *enginecheck.Run, from int, grade string, samples int) *enginecheck.Result {
	t.Helper()
	res := enginecheck.Compare(run, w.engine.calls()[from:])
	t.Logf("%s\n%s", name, res)
	if res.Wrongs > 0 || res.Failures > 0 || res.Samples != samples || res.Grades[grade] != res.Rows {
		t.Errorf("%s: want %d samples, %s, none failed, and nothing wrong", name, samples, grade)
	}
	return res
}
