package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/tokenize"
)

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
	mustRun(t, exit.OK, "verify", dir)
	got := readDataset(t, dir)
	if len(got.rows) != len(runs) || len(got.failures) > 0 || len(runs) != agents*sends {
		t.Errorf("%d samples and %d failures of %d server runs", len(got.rows), len(got.failures), len(runs))
	}
	for id := range got.rows {
		if !runs[id.task] {
			t.Errorf("%s is no server run", id.task)
		}
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

// Server runs that went through a tap are exact, even if they are read later.
func TestFromRunsTap(t *testing.T) {
	t.Parallel()
	engine, err := enginesim.New(enginesim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	e := httptest.NewServer(engine)
	defer e.Close()
	p := startTap(t, "--engine", e.URL+"/v1", "--set", "top_p=1.0")
	sim := newSim(t, lettasim.Config{Seed: 1, InputIDs: true, BareTraces: true, Engine: p.url})
	c := curl{t, serveSim(t, sim)}
	for range 3 {
		id := c.agent("tapped")
		for _, text := range []string{"Add 1 and 2.", "Add 3 and 4."} {
			if status := c.send(id, text); status != http.StatusOK {
				t.Fatal(status)
			}
		}
	}
	dir := filepath.Join(t.TempDir(), "run")
	mustRun(t, exit.OK, "collect", "--server", c.url, "--from-runs", "tag=tapped", "--tap", p.spool, "--out", dir, "--quiet")
	truth := engine.Calls()
	got := readDataset(t, dir)
	for id, rows := range got.rows {
		for _, r := range rows {
			if r.Verification != "exact" || r.PromptSource != "tap" || r.TopP == nil || *r.TopP != 1 {
				t.Errorf("%s: %s %s %v", id.task, r.Verification, r.PromptSource, r.TopP)
			}
			for k, role := range r.TurnRoles {
				if role != int8(tokenize.RoleAssistant) {
					continue
				}
				from, to := r.TurnOffsets[k], r.TurnOffsets[k+1]
				at := slices.IndexFunc(truth, func(c enginesim.Call) bool {
					return slices.Equal(c.InputIDs, r.InputIDs[:from]) && slices.Equal(c.OutputIDs, r.InputIDs[from:to]) && slices.Equal([]float32(c.Logprobs), r.Logprobs[from:to])
				})
				if at < 0 {
					t.Errorf("%s: the engine saw no such call at %d, or not as often", id.task, from)
					continue
				}
				truth = slices.Delete(truth, at, at+1)
			}
		}
	}
	if len(got.rows) != 6 || len(truth) > 0 {
		t.Errorf("%d samples, %d calls of the engine are in none", len(got.rows), len(truth))
	}
}
