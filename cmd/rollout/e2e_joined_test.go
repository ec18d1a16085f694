package main

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/tokenize"
)

// A tappedServer is a simulated server whose engine is behind a tap.
type tappedServer struct {
	tap        *tapProcess
	engine     *enginesim.Engine
	sim        *lettasim.Server
	url, tasks string
}

func newTapped(t *testing.T, tasks int, cfg lettasim.Config, args ...string) *tappedServer {
	t.Helper()
	engine, err := enginesim.New(enginesim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	e := httptest.NewServer(engine)
	t.Cleanup(e.Close)
	s := &tappedServer{engine: engine, tap: startTap(t, append([]string{"--engine", e.URL + "/v1"}, args...)...)}
	cfg.InputIDs, cfg.Seed = true, 1
	if cfg.Engine == "" {
		cfg.Engine = s.tap.url
	} else {
		cfg.Engine = e.URL
	}
	cfg.Script.Calls.Min, cfg.Script.Calls.Max = 1, 4
	s.sim = newSim(t, cfg)
	s.url = serveSim(t, s.sim)
	s.tasks = writeFile(t, "tasks.jsonl", s.sim.Tasks(lettasim.TaskOptions{Scripted: tasks}))
	return s
}

func (s *tappedServer) collect(t *testing.T, code int, args ...string) (dir string, r ran) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "run")
	return dir, mustRun(t, code, append([]string{"collect", "--server", s.url, "--model", simModel, "--tasks", s.tasks, "--out", dir}, args...)...)
}

// tapFacts is the part of a run's summary about prompts.
type tapFacts struct {
	Prompts struct{ Requests int64 }
	Tap     *struct {
		Calls, Claimed, Retries, Others int64
		Refused, Missing                map[string]int64
	}
	Sources map[string]int64 `json:"prompt_sources"`
	Hints   []string
}

func readTapFacts(t *testing.T, dir string) (f tapFacts) {
	t.Helper()
	var report struct {
		Last *tapFacts `json:"last_invocation"`
	}
	report.Last = &f
	b, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err == nil {
		err = json.Unmarshal(b, &report)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Rows with prompts from a tap, read from its folder or its URL, equal the rows with the server's
// own prompts, except for facts that only the tap knows. No evidence is requested.
func TestTapped(t *testing.T) {
	t.Parallel()
	s := newTapped(t, 6, lettasim.Config{}, "--set", "top_p=1.0", "--set", "max_new_tokens=64")
	turns, _ := s.collect(t, 0, "--samples", "2", "--quiet")
	plain := readDataset(t, turns)
	for id, all := range plain.rows { // no column shows what the tap set
		for _, r := range all {
			if r.Temperature != nil || r.TopP != nil || r.TopK != nil || r.MaxNewTokens != nil {
				t.Errorf("%v: the row names sampling parameters that nothing proves: %v %v %v %v", id, r.Temperature, r.TopP, r.TopK, r.MaxNewTokens)
			}
		}
	}
	for _, tt := range []struct{ name, where, prompts string }{{"folder", s.tap.spool, "tap"}, {"URL", s.tap.url, "tap"}} {
		dir, _ := s.collect(t, 0, "--samples", "2", "--quiet", "--tap", tt.where, "--prompts", tt.prompts, "--policy-version", "3")
		got := readDataset(t, dir)
		rows := 0
		for id, all := range got.rows {
			for i, r := range all {
				rows++
				if i >= len(plain.rows[id]) {
					t.Fatalf("%s: %v has more rows", tt.name, id)
				}
				if r.PromptSource != tokenize.SourceTap.String() || r.Verification != tokenize.Exact.String() {
					t.Errorf("%s: %v is %s by %s", tt.name, id, r.Verification, r.PromptSource)
				}
				if r.TopP == nil || *r.TopP != 1 || r.MaxNewTokens == nil || *r.MaxNewTokens != 64 {
					t.Errorf("%s: %v: top_p %v, max_new_tokens %v, which the tap set", tt.name, id, r.TopP, r.MaxNewTokens)
				}
				want := *plain.rows[id][i]
				if a, b := asText(t, [][]int32{r.InputIDs, r.TurnOffsets}), asText(t, [][]int32{want.InputIDs, want.TurnOffsets}); a != b || asText(t, r.Logprobs) != asText(t, want.Logprobs) || asText(t, r.LossMask) != asText(t, want.LossMask) {
					t.Errorf("%s: %v: %s", tt.name, id, firstDifference(a, b))
				}
			}
		}
		if f := readTapFacts(t, dir); rows == 0 || f.Prompts.Requests != 0 || f.Tap == nil || f.Tap.Claimed == 0 || len(f.Tap.Refused) > 0 || len(f.Hints) > 0 {
			t.Errorf("%s: %d rows, summary %+v", tt.name, rows, f)
		}
	}
}

// A server that bypasses the tap is detected before the run begins, also by doctor. A run that
// begins anyway writes no unproven prompt.
func TestTapSeesNothing(t *testing.T) {
	t.Parallel()
	s := newTapped(t, 3, lettasim.Config{Engine: "direct"})
	_, r := s.collect(t, exit.Unusable, "--tap", s.tap.spool, "--prompts", "tap")
	if !strings.Contains(r.stderr, "the tap did not see the call") || !strings.Contains(r.stderr, "does the base URL of the server's provider point to the tap?") {
		t.Errorf("stderr\n%s", r.stderr)
	}
	dir, r := s.collect(t, exit.Tolerance, "--tap", s.tap.spool, "--prompts", "tap", "--preflight", "connect")
	got := readDataset(t, dir)
	if len(got.rows) > 0 || len(got.failures) != 3 || !strings.Contains(r.stderr, "the tap saw no call: does the base URL") {
		t.Errorf("%d rows, %d failures\n%s\n%s", len(got.rows), len(got.failures), r.stdout, r.stderr)
	}
	dir, r = s.collect(t, 0, "--tap", s.tap.spool)
	if f := readTapFacts(t, dir); f.Sources["turns"] == 0 || len(f.Sources) != 1 {
		t.Errorf("sources %v\n%s", f.Sources, r.stdout)
	}
	doctor := mustRun(t, exit.Unusable, "doctor", "--server", s.url, "--model", simModel, "--tap", s.tap.url, "--prompts", "tap")
	if !strings.Contains(doctor.stdout+doctor.stderr, "it saw no call: ") {
		t.Errorf("doctor\n%s%s", doctor.stdout, doctor.stderr)
	}
	_, r = s.collect(t, exit.Unusable, "--tap", filepath.Join(t.TempDir(), "none"))
	if !strings.Contains(r.stderr, "no such folder") {
		t.Errorf("stderr\n%s", r.stderr)
	}
}

// doctor names the agents that bypass the tap, by the address that the server keeps for each.
func TestDoctorBypassing(t *testing.T) {
	t.Parallel()
	s := newTapped(t, 1, lettasim.Config{Engine: "direct"})
	client, err := letta.NewClient(letta.ClientConfig{BaseURL: s.url})
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdle()
	var made []*letta.AgentState
	for range 5 {
		a, err := client.CreateAgent(t.Context(), json.RawMessage(`{"model":"`+simModel+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, a)
	}
	if _, err := client.CreateAgent(t.Context(), json.RawMessage(`{"model":"`+lettasim.PlainModel+`"}`)); err != nil { // it never returns token data
		t.Fatal(err)
	}
	move := func(a *letta.AgentState) {
		t.Helper()
		var config map[string]any
		if err := a.JSON.Member("llm_config").Decode(&config); err != nil {
			t.Fatal(err)
		}
		config["model_endpoint"] = strings.Replace(s.tap.url, "127.0.0.1", "localhost", 1) + "/v1"
		if _, err := client.PatchAgent(t.Context(), a.ID, map[string]any{"llm_config": config}); err != nil {
			t.Fatal(err)
		}
	}
	move(made[0])
	doctor := func(want string) {
		t.Helper()
		r := mustRun(t, exit.Unusable, "doctor", "--server", s.url, "--model", simModel, "--tap", s.tap.url, "--prompts", "tap")
		if !strings.Contains(r.stdout, want) || !strings.Contains(r.stdout, "the server calls the model of a new agent at http://127.0.0.1:30000/v1") {
			t.Errorf("doctor lacks %q\n%s%s", want, r.stdout, r.stderr)
		}
	}
	doctor(fmt.Sprintf("4 of 5 agents with token data bypass the tap, most of them at http://127.0.0.1:30000/v1: %s, %s, %s, …\n", made[1].ID, made[2].ID, made[3].ID))
	for _, a := range made[1:] {
		move(a)
	}
	doctor("all 5 agents with token data call the tap")
}

// checkTruth compares every sampled span of the rows with the engine's log.
func (s *tappedServer) checkTruth(t *testing.T, got *readBack) (spans int) {
	t.Helper()
	truth := map[string]bool{}
	for _, c := range s.engine.Calls() {
		truth[asText(t, []any{c.InputIDs, c.OutputIDs, []float32(c.Logprobs)})] = true
	}
	for id, rows := range got.rows {
		for _, r := range rows {
			for k, role := range r.TurnRoles {
				if tokenize.Role(role) != tokenize.RoleAssistant {
					continue
				}
				lo, hi := r.TurnOffsets[k], r.TurnOffsets[k+1]
				if !truth[asText(t, []any{r.InputIDs[:lo], r.InputIDs[lo:hi], r.Logprobs[lo:hi]})] {
					t.Errorf("%v: the engine never sampled ids %d to %d of a row behind those before", id, lo, hi)
				}
				spans++
			}
		}
	}
	return spans
}

// If the tap is killed and restarted during a collection, its lost calls fail or are made again,
// and no row claims a wrong prompt.
func TestTapRestarted(t *testing.T) {
	t.Parallel()
	s := newTapped(t, 8, lettasim.Config{Latency: latencyOf(t, "20ms..200ms")})
	dir := filepath.Join(t.TempDir(), "run")
	p := startProgram(t, "rollout", nil, "collect", "--server", s.url, "--model", simModel, "--tasks", s.tasks, "--samples", "8", "--max-in-flight", "8",
		"--retries", "20", "--fail-on-error", "100%", "--out", dir, "--tap", s.tap.spool, "--prompts", "tap")
	engine := s.tap.cmd.Args[slices.Index(s.tap.cmd.Args, "--engine")+1]
	for range 3 {
		before := durable(dir)
		waitFor(t, "samples", func() bool { return durable(dir) > before || !p.alive() })
		s.tap.signal(t, os.Kill)
		_ = s.tap.cmd.Wait() // killed
		spool := s.tap.spool
		s.tap = startTap(t, "--engine", engine, "--listen", strings.TrimPrefix(s.tap.url, "http://"), "--spool", spool)
		s.tap.spool = spool
	}
	if code := p.wait(t, 2*time.Minute); code != 0 && code != exit.Failures {
		t.Fatalf("exit code %d\n%s", code, p.said())
	}
	got := readDataset(t, dir)
	spans := s.checkTruth(t, got)
	if len(got.rows)+len(got.failures) < 64 || len(got.rows) < 40 || spans == 0 {
		t.Errorf("%d samples with rows, %d with failures, %d spans", len(got.rows), len(got.failures), spans)
	}
	t.Logf("%d samples with rows, %d with failures, %d spans; tap %+v", len(got.rows), len(got.failures), spans, readTapFacts(t, dir).Tap)
}

// After a collection is killed, the next process finds the calls in the spool that the server made
// before and in between.
func TestTappedResume(t *testing.T) {
	t.Parallel()
	s := newTapped(t, 6, lettasim.Config{Latency: latencyOf(t, "300ms..600ms")})
	dir := filepath.Join(t.TempDir(), "run")
	args := []string{"collect", "--server", s.url, "--model", simModel, "--tasks", s.tasks, "--samples", "4", "--max-in-flight", "6", "--out", dir, "--tap", s.tap.spool, "--prompts", "tap"}
	p := startProgram(t, "rollout", nil, args...)
	waitFor(t, "the first samples", func() bool { return durable(dir) > 3 })
	p.kill()
	p.wait(t, time.Minute)
	mustRun(t, 0, append(args, "--resume", "--quiet")...)
	got := readDataset(t, dir)
	s.checkTruth(t, got)
	if len(got.rows) != 24 || len(got.failures) > 0 {
		t.Fatalf("%d samples, %d failures", len(got.rows), len(got.failures))
	}
	for id, rows := range got.rows {
		for _, r := range rows {
			if r.Verification != tokenize.Exact.String() || r.PromptSource != tokenize.SourceTap.String() {
				t.Errorf("%v is %s by %s, flags %v", id, r.Verification, r.PromptSource, r.Flags)
			}
		}
	}
}

// Server runs of another run can be read with the prompts of the tap.
func TestTappedRuns(t *testing.T) {
	t.Parallel()
	s := newTapped(t, 4, lettasim.Config{})
	s.collect(t, 0, "--samples", "2", "--keep-agents", "--quiet")
	dir := filepath.Join(t.TempDir(), "runs")
	mustRun(t, 0, "collect", "--server", s.url, "--from-runs", "since=1h", "--out", dir, "--tap", s.tap.spool, "--prompts", "tap", "--quiet")
	got := readDataset(t, dir)
	for id, rows := range got.rows {
		for _, r := range rows {
			if r.Verification != tokenize.Exact.String() || r.PromptSource != tokenize.SourceTap.String() {
				t.Errorf("%v is %s by %s", id, r.Verification, r.PromptSource)
			}
		}
	}
	if spans := s.checkTruth(t, got); len(got.rows) != 8 || spans < 8 || len(got.failures) > 0 {
		t.Errorf("%d server runs with %d sampled spans, %d failures", len(got.rows), spans, len(got.failures))
	}
}
