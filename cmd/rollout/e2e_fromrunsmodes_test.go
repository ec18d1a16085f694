package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink"
)

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
func alike(r *sink.StoredRow) string {
	c := *r
	c.SampleKey, c.TaskID, c.GroupID, c.RolloutID, c.AgentID, c.RunIDs, c.StepIDs = "", "", "", "", "", nil, nil
	c.StartedAt, c.DurationMS, c.WorkingMS, c.Messages = 0, 0, 0, nil
	if b, err := json.Marshal(c); err == nil {
		return string(b)
	}
	return "no JSON"
}

// Server runs of streams and asynchronous sends, whose answers have no turns, give the same rows
// with the same grades and ends.
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
				if a, b := alike(want[i]), alike(got[i]); a != b {
					t.Errorf("%s by %s, row %d:\n%.1500s\nwant\n%.1500s", name, route.name, i, b, a)
				}
			}
		}
	}
}

// A server run of a stream or an asynchronous send that has not ended is skipped, and --follow
// waits for it.
func TestFromRunsModesWait(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true, Latency: lettasim.Latency{Low: 3 * time.Second}, Script: killScript()})
	c := curl{t, serveSim(t, sim)}
	var agents []string
	streamed := make(chan struct{})
	for _, route := range sendRoutes[1:] {
		id := c.agent("prod")
		agents = append(agents, id)
		if route.name == "stream" {
			go func() {
				defer close(streamed)
				c.sendBy(id, route.path, route.more, "Add 1 and 2.")
			}()
			c.awaitRun(id)
			continue
		}
		c.sendBy(id, route.path, route.more, "Add 3 and 4.")
	}
	status := func() (all []string) {
		for _, id := range agents {
			_, answer := c.do(http.MethodGet, "/v1/runs/?agent_id="+id, "")
			var list []struct{ Status string }
			if err := json.Unmarshal(answer, &list); err != nil || len(list) != 1 {
				t.Fatalf("%v: %s", err, answer)
			}
			all = append(all, list[0].Status)
		}
		return all
	}
	early := filepath.Join(t.TempDir(), "early")
	r := mustRun(t, exit.OK, "collect", "--server", c.url, "--from-runs", "tag=prod", "--out", early)
	if got := status(); slices.Equal(got, []string{"running", "created"}) { // otherwise the machine was slow
		if !strings.Contains(r.stderr, "2 not ended") {
			t.Errorf("%s", r.stderr)
		}
	}
	dir := filepath.Join(t.TempDir(), "run")
	p := startProgram(t, "rollout", nil, "collect", "--server", c.url, "--from-runs", "tag=prod", "--follow", "--json", "--out", dir)
	awaitText(t, p, `"event":"group"`, 2)
	mustRun(t, exit.OK, "ctl", dir, "drain")
	if code := p.wait(t, time.Minute); code != exit.OK {
		t.Fatalf("exit code %d\n%s", code, p.said())
	}
	<-streamed
	if got := status(); !slices.Equal(got, []string{"completed", "completed"}) {
		t.Errorf("the runs are %q", got)
	}
	got := readDataset(t, dir)
	for _, id := range agents {
		rows := got.rows[sampleID{c.runs(id)[0], 0}]
		if len(rows) == 0 || rows[0].Verification != "exact" || rows[0].Status != "completed" {
			t.Errorf("%s: %d rows", id, len(rows))
		}
	}
}
