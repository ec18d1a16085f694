package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	seen "github.com/rollout-rl/rollout/cmd/rollout/internal/live/enginecheck"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// A tappedServer is a simulated server whose engine is behind a tap.
type tappedServer struct {
	tap        *tapProcess
	engine     *enginesim.Engine
	engineURL  string
	url, tasks string
}

func newTapped(t *testing.T, tasks int, cfg lettasim.Config, args ...string) *tappedServer {
	t.Helper()
	engine, engineURL := newEngine(t)
	s := &tappedServer{engine: engine, engineURL: engineURL, tap: startTap(t, append([]string{"--engine", engineURL + "/v1"}, args...)...)}
	cfg.InputIDs, cfg.Seed = true, cmp.Or(cfg.Seed, 1)
	if cfg.Engine == "" {
		cfg.Engine = s.tap.url
	} else {
		cfg.Engine = engineURL
	}
	cfg.Script.Calls = lettasim.Range{Min: 1, Max: 4}
	sim := newSim(t, cfg)
	s.url, s.tasks = serveSim(t, sim), writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: tasks}))
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
	readReport(t, dir, &report)
	return f
}

// With a tap between server and engine, a collection gives the usual rows, and the spool has the
// engine's calls. The engine receives the parameters of --set. Rows with prompts from the tap, read
// from its folder or its URL, equal the rows with the server's own prompts, except for facts that
// only the tap knows. No evidence is requested.
func TestTapped(t *testing.T) {
	t.Parallel()
	s := newTapped(t, 6, lettasim.Config{}, "--set", "top_p=1.0", "--set", "max_new_tokens=64", "--set", "seed=5")
	turns, _ := s.collect(t, 0, "--samples", "2", "--quiet")
	truth := s.engine.Calls()
	if len(truth) < 12 {
		t.Fatalf("the engine had %d calls", len(truth))
	}
	for i, c := range s.tap.calls(t, len(truth)) {
		at := slices.IndexFunc(truth, func(e enginesim.Call) bool {
			return slices.Equal(e.InputIDs, c.Prompt) && slices.Equal(e.OutputIDs, c.Output) && slices.Equal(e.Logprobs, c.Logprobs)
		})
		if at < 0 || c.Version != truth[at].Version || c.Status != 200 || c.Cut || *c.Sampling.TopP != 1 || *c.Sampling.MaxNewTokens != 64 || *c.Sampling.Seed != 5 {
			t.Errorf("call %d: the engine saw it as %d: %+v", i, at, c)
			continue
		}
		contains(t, string(truth[at].Sampling), `"top_p":1.0`, `"max_new_tokens":64`, `"sampling_seed":5`)
		truth = slices.Delete(truth, at, at+1)
	}
	plain := readDataset(t, turns)
	for id, all := range plain.rows { // no column shows what the tap set
		for _, r := range all {
			if r.Temperature != nil || r.TopP != nil || r.TopK != nil || r.MaxNewTokens != nil {
				t.Errorf("%v: the row names sampling parameters that nothing proves: %v %v %v %v", id, r.Temperature, r.TopP, r.TopK, r.MaxNewTokens)
			}
		}
	}
	for _, where := range []string{s.tap.spool, s.tap.url} {
		dir, _ := s.collect(t, 0, "--samples", "2", "--quiet", "--tap", where, "--prompts", "tap", "--policy-version", "3")
		got := readDataset(t, dir)
		rows := 0
		for id, all := range got.rows {
			for i, r := range all {
				rows++
				if i >= len(plain.rows[id]) {
					t.Fatalf("%s: %v has more rows", where, id)
				}
				if r.PromptSource != tokenize.SourceTap.String() || r.Verification != tokenize.Exact.String() {
					t.Errorf("%s: %v is %s by %s", where, id, r.Verification, r.PromptSource)
				}
				if r.TopP == nil || *r.TopP != 1 || r.MaxNewTokens == nil || *r.MaxNewTokens != 64 {
					t.Errorf("%s: %v: top_p %v, max_new_tokens %v, which the tap set", where, id, r.TopP, r.MaxNewTokens)
				}
				same := func(r *sink.StoredRow) string {
					return asText(t, []any{r.InputIDs, r.TurnOffsets, r.Logprobs, r.LossMask})
				}
				if a, b := same(r), same(plain.rows[id][i]); a != b {
					t.Errorf("%s: %v: %s", where, id, firstDifference(a, b))
				}
			}
		}
		if f := readTapFacts(t, dir); rows == 0 || f.Prompts.Requests != 0 || f.Tap == nil || f.Tap.Claimed == 0 || len(f.Tap.Refused) > 0 || len(f.Hints) > 0 {
			t.Errorf("%s: %d rows, summary %+v", where, rows, f)
		}
	}
	for page, want := range map[string]string{"/healthz": "ok\n", "/tap/metrics": "rollout_tap_calls_total{outcome=\"kept\"}", "/tap/segments": `"segments"`} {
		contains(t, get(t, s.tap.url+page), want)
	}
	s.tap.signal(t, syscall.SIGTERM, "")
	s.tap.ends(t, time.Minute, exit.OK)
}

// A server that bypasses the tap is detected before the run begins, also by doctor. A run that
// begins anyway writes no unproven prompt.
func TestTapSeesNothing(t *testing.T) {
	t.Parallel()
	s := newTapped(t, 3, lettasim.Config{Engine: "direct"})
	_, r := s.collect(t, exit.Unusable, "--tap", s.tap.spool, "--prompts", "tap")
	contains(t, r.stderr, "the tap did not see the call", "check that the base URL of the server's provider points to the tap")
	dir, r := s.collect(t, exit.Tolerance, "--tap", s.tap.spool, "--prompts", "tap", "--preflight", "connect")
	got := readDataset(t, dir)
	if len(got.rows) > 0 || len(got.failures) != 3 || !strings.Contains(r.stderr, "the tap saw no calls: check that the base URL") {
		t.Errorf("%d rows, %d failures\n%s\n%s", len(got.rows), len(got.failures), r.stdout, r.stderr)
	}
	dir, r = s.collect(t, 0, "--tap", s.tap.spool)
	if f := readTapFacts(t, dir); f.Sources["turns"] == 0 || len(f.Sources) != 1 {
		t.Errorf("sources %v\n%s", f.Sources, r.stdout)
	}
	doctor := mustRun(t, exit.Unusable, "doctor", "--server", s.url, "--model", simModel, "--tap", s.tap.url, "--prompts", "tap")
	contains(t, doctor.stdout+doctor.stderr, "the tap saw no call; ")
	_, r = s.collect(t, exit.Unusable, "--tap", filepath.Join(t.TempDir(), "none"))
	contains(t, r.stderr, "no such folder")
}

// doctor names the agents that bypass the tap, by the address that the server keeps for each.
func TestDoctorBypassing(t *testing.T) {
	t.Parallel()
	s := newTapped(t, 1, lettasim.Config{Engine: "direct"})
	client := must(letta.NewClient(letta.ClientConfig{BaseURL: s.url}))(t)
	defer client.CloseIdle()
	var made []*letta.AgentState
	for range 5 {
		a := must(client.CreateAgent(t.Context(), json.RawMessage(`{"model":"`+simModel+`"}`)))(t)
		made = append(made, a)
	}
	must(client.CreateAgent(t.Context(), json.RawMessage(`{"model":"`+lettasim.PlainModel+`"}`)))(t)
	move := func(a *letta.AgentState) {
		t.Helper()
		var config map[string]any
		noError(t, a.JSON.Member("llm_config").Decode(&config))
		config["model_endpoint"] = strings.Replace(s.tap.url, "127.0.0.1", "localhost", 1) + "/v1"
		must(client.PatchAgent(t.Context(), a.ID, map[string]any{"llm_config": config}))(t)
	}
	move(made[0])
	doctor := func(want string) {
		t.Helper()
		r := mustRun(t, exit.Unusable, "doctor", "--server", s.url, "--model", simModel, "--tap", s.tap.url, "--prompts", "tap")
		contains(t, r.stdout, want, "for a new agent, the server calls the model at http://127.0.0.1:30000/v1")
	}
	doctor(fmt.Sprintf("4 of 5 agents that return token data bypass the tap (%s, %s, %s, …); their most common endpoint is http://127.0.0.1:30000/v1\n", made[1].ID, made[2].ID, made[3].ID))
	for _, a := range made[1:] {
		move(a)
	}
	doctor("all 5 agents that return token data call the tap")
}

// checkExact compares the rows of a run with the engine's calls. Every row must be exact, with a
// prompt from the tap.
func (s *tappedServer) checkExact(t *testing.T, dir string, samples int) *seen.Result {
	t.Helper()
	res := seen.Compare(must(seen.Read(dir))(t), s.engine.Calls())
	if res.Wrongs > 0 || res.Samples != samples || res.Failures > 0 || res.Rows != res.Grades["exact"] || res.Rows != res.Sources["tap"] {
		t.Errorf("%d samples, %d failures, rows by %v and %v, want %d samples; %q", res.Samples, res.Failures, res.Grades, res.Sources, samples, res.Wrong)
	}
	return res
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
	s.checkExact(t, dir, 24)
}

// A repeater is a proxy between server and tap that repeats calls: each failed one, and some
// successful ones.
type repeater struct {
	to       string
	mu       sync.Mutex
	answered [][]int32
	hidden   []hiddenCall
}

type hiddenCall struct {
	prompt []int32
	kind   string
}

func (p *repeater) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var asked struct {
		InputIDs []int32 `json:"input_ids"`
	}
	if err != nil || json.Unmarshal(body, &asked) != nil {
		http.Error(w, "no request", http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	heads := 0
	for _, before := range p.answered {
		if len(before) < len(asked.InputIDs) && slices.Equal(before, asked.InputIDs[:len(before)]) {
			heads++
		}
	}
	p.mu.Unlock()
	ask := func(harm string) (status int, answer []byte) {
		q, err := http.NewRequestWithContext(r.Context(), http.MethodPost, p.to+r.URL.Path, bytes.NewReader(body))
		if err != nil {
			return 0, nil
		}
		q.Header.Set("Content-Type", "application/json")
		q.Header.Set("X-Harm", harm)
		res, err := http.DefaultClient.Do(q)
		if err != nil {
			return 0, nil
		}
		defer res.Body.Close()
		if answer, err = io.ReadAll(res.Body); err != nil {
			return 0, nil
		}
		return res.StatusCode, answer
	}
	if heads > 0 { // the prompt of a first call does not identify its sample
		for i, kind := range []string{"retry", "failed", "cut"} {
			if call := heads + 1; call%(i+2) == 0 { // the place in its sample, independent of other samples
				status, _ := ask(kind)
				if status == http.StatusOK != (kind == "retry") {
					http.Error(w, fmt.Sprintf("%s: %d", kind, status), http.StatusTeapot)
					return
				}
				p.mu.Lock()
				p.hidden = append(p.hidden, hiddenCall{asked.InputIDs, kind})
				p.mu.Unlock()
			}
		}
	}
	status, answer := ask("")
	p.mu.Lock()
	p.answered = append(p.answered, asked.InputIDs)
	p.mu.Unlock()
	w.WriteHeader(status)
	_, _ = w.Write(answer) // the server notices a failed write
}

// Calls of the engine that no answer shows are counted by kind with their sample, in the log, by
// inspect and in the summary.
func TestUnshown(t *testing.T) {
	t.Parallel()
	engine, _ := newEngine(t)
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("X-Harm") {
		case "failed":
			http.Error(w, "out of memory", http.StatusInternalServerError)
		case "cut":
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, "{")
		default:
			engine.ServeHTTP(w, r)
		}
	}))
	defer e.Close()
	tap := startTap(t, "--engine", e.URL+"/v1")
	between := &repeater{to: tap.url}
	b := httptest.NewServer(between)
	defer b.Close()
	cfg := lettasim.Config{InputIDs: true, BareTraces: true, Seed: 1, Engine: b.URL}
	cfg.Script.Calls.Min, cfg.Script.Calls.Max = 3, 5
	sim := newSim(t, cfg)
	s := &tappedServer{tap: tap, url: serveSim(t, sim), tasks: writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 12}))}
	dir, said := s.collect(t, 0, "--tap", tap.spool, "--prompts", "tap", "--max-in-flight", "4", "--preflight", "connect")

	add := func(counts map[string]map[string]int, key, kind string, n int) {
		if counts[key] == nil {
			counts[key] = map[string]int{}
		}
		counts[key][kind] += n
	}
	want, total := map[string]map[string]int{}, map[string]int{}
	dataset := readDataset(t, dir)
	for _, hidden := range between.hidden {
		total[hidden.kind]++
		for _, r := range dataset.allRows() {
			if len(r.InputIDs) > len(hidden.prompt) && slices.Equal(r.InputIDs[:len(hidden.prompt)], hidden.prompt) {
				add(want, r.SampleKey, hidden.kind, 1)
			}
		}
	}
	if len(want) < 10 || len(total) != 3 {
		t.Fatalf("%d samples, %v", len(want), total)
	}
	got := map[string]map[string]int{}
	for _, c := range dataset.logs[0].Commits {
		for _, sample := range c.Samples {
			for word, n := range sample.Unshown.Each() {
				if n > 0 {
					add(got, sample.Key, word, n)
				}
			}
		}
	}
	if !maps.EqualFunc(got, want, maps.Equal) {
		t.Errorf("the log counts\n%v, want\n%v", got, want)
	}
	for key, counts := range want {
		parts := []string{}
		for _, kind := range []string{"retry", "failed", "cut"} {
			if n := counts[kind]; n > 0 {
				parts = append(parts, fmt.Sprintf("%s %d", kind, n))
			}
		}
		text := strings.Join(parts, ", ")
		contains(t, mustRun(t, 0, "inspect", dir, "--key", key).stderr, "the tap recorded calls that are missing from the server's answers: "+text+"\n")
		contains(t, mustRun(t, 0, "inspect", dir, "--key", key, "--row", "0").stdout, "unshown      "+text+" (")
		var line struct{ Unshown map[string]int }
		r := mustRun(t, 0, "inspect", dir, "--key", key, "--json")
		if err := json.NewDecoder(strings.NewReader(r.stdout)).Decode(&line); err != nil || !maps.Equal(line.Unshown, counts) {
			t.Errorf("inspect --key %s --json: %v, want %v", key, line.Unshown, counts)
		}
	}
	contains(t, said.stderr, fmt.Sprintf("sample calls missing from the server's answers: cut %d, failed %d, retry %d", total["cut"], total["failed"], total["retry"]))
}

// A splicer is a proxy in front of an engine, like a tap with continuity. It marks the prompts of
// some calls as spliced.
type splicer struct {
	engine  http.Handler
	mu      sync.Mutex
	calls   int
	spliced map[string]bool // the prompts and outputs of the marked calls
}

func (s *splicer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	answer := httptest.NewRecorder()
	s.engine.ServeHTTP(answer, r)
	var call struct {
		Prompt []int32 `json:"input_ids"`
		Output []int32 `json:"output_ids"`
	}
	n := 0
	if json.Unmarshal(body, &call) == nil && json.Unmarshal(answer.Body.Bytes(), &call) == nil && call.Output != nil {
		s.mu.Lock()
		if s.calls++; s.calls%3 == 0 { // the trial call is the first
			n = 2
			s.spliced[fmt.Sprint(call.Prompt, call.Output)] = true
		}
		s.mu.Unlock()
	}
	w.Header().Set("Content-Type", answer.Header().Get("Content-Type"))
	w.WriteHeader(answer.Code)
	_, _ = io.WriteString(w, strings.Replace(answer.Body.String(), `"meta_info":{`, fmt.Sprintf(`"meta_info":{"rollout":{"continuity":true,"spliced":%d},`, n), 1))
}

// A collection that does not read its tap, from a server that sends its own rendered prompts, has
// no row with a spliced call. The trial call or the first trace that is read reveals the tap, and
// the summary has the remedy.
func TestContinuityUntapped(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"trial": nil, "no trial": {"--preflight", "connect"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine, _ := newEngine(t)
			s := &splicer{engine: engine, spliced: map[string]bool{}}
			e := httptest.NewServer(s)
			defer e.Close()
			sim := newSim(t, lettasim.Config{InputIDs: true, Seed: 1, Engine: e.URL, Script: lettasim.Script{Calls: lettasim.Range{Min: 1, Max: 4}}})
			dir, args := collectArgs(t, sim, serveSim(t, sim), 24, append(args, "--fail-on-error", "100%")...)
			r := mustRun(t, exit.Failures, args...)
			got := readDataset(t, dir)
			for id, row := range got.allRows() {
				for i, role := range row.TurnRoles {
					lo, hi := row.TurnOffsets[i], row.TurnOffsets[i+1]
					if tokenize.Role(role) == tokenize.RoleAssistant && s.spliced[fmt.Sprint(row.InputIDs[:lo], row.InputIDs[lo:hi])] {
						t.Errorf("%v: a row has a call whose prompt was spliced", id)
					}
				}
			}
			for id, f := range got.allFailures() {
				if f.Reason != tokenize.ReasonContinuity.String() || !strings.Contains(f.Error, "--continuity") {
					t.Errorf("%v: failure %s %s: %s", id, f.Class, f.Reason, f.Error)
				}
			}
			if len(got.rows) == 0 || len(got.failures) == 0 || !strings.Contains(r.stderr+r.stdout, "use --tap") {
				t.Errorf("%d samples have rows, %d failed\n%s%s", len(got.rows), len(got.failures), r.stdout, r.stderr)
			}
		})
	}
}
