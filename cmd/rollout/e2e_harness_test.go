package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/sink"
)

// The options of the scripted engine for the three kinds of agents (see agentProgram).
var agentKinds = [][]string{{"unicode"}, {"subagent"}, {"cut=2", "err=1"}, {"parallel", "think"}, {"subagent", "think"}, {"drop=3"}}

// A harnessRun is a run of collect that drives the agent program, with a scripted engine.
type harnessRun struct {
	engine *enginesim.Engine
	gate   *engineGate
	dir    string // the run's folder
	temp   string // TMPDIR: the folder of the attempts' folders
	keys   string // the agents write their keys into this folder
	config string
	tasks  int
}

// An engineGate is in front of an engine.
type engineGate struct {
	engine  http.Handler
	latency func() time.Duration // of each call; nil: none
	hold    int                  // hold the calls until this many tasks have made one
	out     atomic.Bool          // answer every request with 503

	mu     sync.Mutex
	seen   map[string]bool
	opened chan struct{}
	calls  int
}

var seedOf = regexp.MustCompile(`\[script:harness seed=(\d+)`)

func (g *engineGate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if g.out.Load() {
		http.Error(w, "the engine is out", http.StatusServiceUnavailable)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client disconnected
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	if seed := seedOf.FindSubmatch(body); seed != nil {
		g.mu.Lock()
		g.calls++
		if g.seen[string(seed[1])] = true; len(g.seen) == g.hold {
			select {
			case <-g.opened:
			default:
				close(g.opened)
			}
		}
		g.mu.Unlock()
		if g.hold > 0 {
			select {
			case <-g.opened:
			case <-r.Context().Done(): // the test is over, because not all were seen
			}
		}
	}
	if g.latency != nil {
		time.Sleep(g.latency())
	}
	g.engine.ServeHTTP(w, r)
}

func (g *engineGate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls
}

// sessions returns the number of tasks that have made a call.
func (g *engineGate) sessions() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.seen)
}

// newHarnessEngine starts a scripted engine behind a gate.
func newHarnessEngine(t *testing.T, dialect enginesim.Dialect) (*enginesim.Engine, *engineGate, string) {
	t.Helper()
	cfg := enginesim.Config{Model: "scripted", MaxModelLen: 1 << 18, Reasoning: true, Dialect: dialect, StrictModel: dialect == enginesim.DialectVLLM}
	var err error
	cfg.Tokenizer, cfg.Template, err = enginesim.SmallModel()
	noError(t, err)
	engine := must(enginesim.New(cfg))(t)
	gate := &engineGate{engine: engine, seen: map[string]bool{}, opened: make(chan struct{})}
	return engine, gate, serve(t, &http.Server{Handler: gate, ReadHeaderTimeout: time.Minute})
}

// newHarnessRun prepares a run of the prompts. output is more settings of the output, as ", name: value".
func newHarnessRun(t *testing.T, prompts []string, inFlight int, output string) *harnessRun {
	t.Helper()
	h := &harnessRun{dir: filepath.Join(t.TempDir(), "run"), temp: t.TempDir(), keys: t.TempDir(), tasks: len(prompts)}
	var url string
	h.engine, h.gate, url = newHarnessEngine(t, enginesim.DialectVLLM)
	var lines []byte
	for i, prompt := range prompts {
		line := must(json.Marshal(map[string]string{"id": fmt.Sprintf("t%d", i+1), "prompt": prompt}))(t)
		lines = append(append(lines, line...), '\n')
	}
	h.config = writeFile(t, "run.yaml", fmt.Appendf(nil, `
harness: {command: [%s, "{base_url}", "{key}", "{prompt}"], env: {AGENT_KEYS: %q}, timeout: 60s}
engine: [%q]
tasks: {file: %q}
server: {adaptive: false, max_in_flight: %d}
output: {dir: %q, messages: true%s}
run: {fail_on_error: 100%%}
`, agentProgram, h.keys, url, writeFile(t, "tasks.jsonl", lines), inFlight, h.dir, output))
	return h
}

// agentPrompts returns n prompts for agents of all kinds. Each has a seed of its own.
func agentPrompts(n int) (prompts []string) {
	for i := range n {
		prompts = append(prompts, fmt.Sprintf("Task %d: write notes. %s", i+1, enginesim.Marker(i+1, agentKinds[i%len(agentKinds)]...)))
	}
	return prompts
}

func (h *harnessRun) start(t *testing.T, bin string, args ...string) *process {
	t.Helper()
	return startProgram(t, bin, []string{"TMPDIR=" + h.temp}, append([]string{"collect", "-c", h.config}, args...)...)
}

// nothingLeft fails the test if there are processes, folders or sessions of the run.
func (h *harnessRun) nothingLeft(t *testing.T) {
	t.Helper()
	if left := processesIn(h.temp); left != nil {
		t.Errorf("%d processes are left: %q", len(left), left)
	}
	if left := must(filepath.Glob(filepath.Join(h.temp, "*")))(t); left != nil {
		t.Errorf("%d files are left: %q", len(left), left)
	}
	if left := h.sessions(t); left != nil {
		t.Errorf("%d sessions are left: %q", len(left), left)
	}
}

// sessions returns the files of the sessions in the run's folder.
func (h *harnessRun) sessions(t *testing.T) []string {
	t.Helper()
	return must(filepath.Glob(filepath.Join(h.dir, runfolder.SessionsDir, "*", "*")))(t)
}

// Sixty-four sessions of three kinds of agents run at once. No row contains a token of another
// session, and the rows have exactly the tokens that the engine sampled, each once and in its own
// context. Python code that shares nothing with this program finds the same.
func TestHarnessSessions(t *testing.T) {
	t.Parallel()
	n := 64
	if testing.Short() {
		n = 24
	}
	h := newHarnessRun(t, agentPrompts(n), n, "")
	h.gate.hold = n
	p := h.start(t, "rollout", "--quiet")
	p.ends(t, 3*time.Minute, exit.OK)
	if len(h.gate.seen) != n {
		t.Errorf("%d of %d sessions were open at once\n%s", len(h.gate.seen), n, p.said())
	}
	got := verified(t, h.dir)
	if len(got.once(t)) != n || len(got.rows) != n {
		t.Errorf("%d samples have rows, want %d\n%s", len(got.rows), n, p.said())
	}
	h.nothingLeft(t)
	c := checkTrained(t, got, h.engine.Calls())
	for _, call := range c.untrained {
		if delivered := call.Complete && len(call.Tools) > 0; delivered {
			t.Errorf("call %d (seed %s, step %d, fault %q) was answered and is not trained", call.N, call.Seed, call.Step, call.Fault)
		}
	}
	if c.trained == 0 || c.kinds["main"] != n || c.kinds["subagent"] == 0 {
		t.Errorf("%d calls are trained, rows %v: the test shows nothing", c.trained, c.kinds)
	}
	t.Logf("%d calls, %d trained, rows %v", len(h.engine.Calls()), c.trained, c.kinds)
	if testing.Short() { // without Python
		return
	}
	python := compareWithLog(t, h.dir, h.writeLog(t))
	if python.Samples != n || python.Expected["trained"].Tokens != c.tokens {
		t.Errorf("Python finds %d trained tokens in %d samples, want %d in %d", python.Expected["trained"].Tokens, python.Samples, c.tokens, n)
	}
	if 2*python.Parents != c.kinds["subagent"] { // the prompt of every second subagent is not in the arguments
		t.Errorf("%d of %d rows of subagents have a parent", python.Parents, c.kinds["subagent"])
	}
}

// A trainedCheck is the comparison of rows with the log of an engine.
type trainedCheck struct {
	trained, tokens int
	untrained       []enginesim.Call
	steps           map[string]map[int]bool // the trained answers of each seed
	kinds           map[string]int          // rows of each chain_kind, by their first row
}

// contextOf identifies a sampled output in its context.
func contextOf(prompt, output []int32) string {
	b := make([]byte, 0, 4*(len(prompt)+len(output))+8)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(prompt)))
	for _, id := range slices.Concat(prompt, output) {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
	}
	return string(b)
}

// checkTrained checks that every trained span of the rows is the output of a call with exactly this
// prompt, with its log-probabilities, in the sample of its task, and not trained more often than it
// was sampled. The task tN has the seed N.
func checkTrained(t *testing.T, got *readBack, calls []enginesim.Call) *trainedCheck {
	t.Helper()
	logged := map[string][]enginesim.Call{}
	for _, c := range calls {
		if c.Sampled() {
			of := contextOf(c.InputIDs, c.OutputIDs)
			logged[of] = append(logged[of], c)
		}
	}
	r := &trainedCheck{kinds: map[string]int{}, steps: map[string]map[int]bool{}}
	for id, row := range got.allRows() {
		if row.ChainKind != "main" || row.SegmentIndex == 0 {
			r.kinds[row.ChainKind]++
		}
		for at, end := range trainedSpans(row) {
			of := contextOf(row.InputIDs[:at], row.InputIDs[at:end])
			list := logged[of]
			if len(list) == 0 {
				t.Errorf("%v row %d: the tokens %d to %d were not sampled in this context, or are trained twice", id, row.SegmentIndex, at, end)
				continue
			}
			// A cut answer and its repetition are equal. The repetition must be trained.
			which := max(0, slices.IndexFunc(list, func(c enginesim.Call) bool { return c.Complete }))
			call := list[which]
			logged[of] = slices.Delete(slices.Clone(list), which, which+1)
			if seed := strings.TrimRight(call.Seed, "st"); "t"+seed != id.task {
				t.Errorf("%v row %d contains an answer of the session with seed %s", id, row.SegmentIndex, call.Seed)
			}
			if !slices.EqualFunc(row.Logprobs[at:end], call.Logprobs, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
				t.Errorf("%v row %d: the tokens %d to %d have other log-probabilities", id, row.SegmentIndex, at, end)
			}
			if r.steps[call.Seed] == nil {
				r.steps[call.Seed] = map[int]bool{}
			}
			if r.steps[call.Seed][call.Step] {
				t.Errorf("%v: answer %d of seed %s is trained twice", id, call.Step, call.Seed)
			}
			r.steps[call.Seed][call.Step] = true
			r.trained++
			r.tokens += end - at
		}
	}
	for _, list := range logged {
		r.untrained = append(r.untrained, list...)
	}
	return r
}

// trainedSpans yields the start and the end of each run of trained tokens.
func trainedSpans(r *sink.StoredRow) map[int]int {
	spans, at := map[int]int{}, -1
	for i, m := range append(slices.Clone(r.LossMask), 0) {
		switch {
		case m != 0 && at < 0:
			at = i
		case m == 0 && at >= 0:
			spans[at], at = i, -1
		}
	}
	return spans
}

// trainedOf returns the trained tokens of each sample with their contexts, without an order.
func (d *readBack) trainedOf() map[sampleID]string {
	all := map[sampleID][]string{}
	for id, row := range d.allRows() {
		spans := trainedSpans(row)
		for _, at := range slices.Sorted(maps.Keys(spans)) {
			all[id] = append(all[id], fmt.Sprintf("%s %v under %d tokens %v", row.ChainKind, row.InputIDs[at:spans[at]], at, row.InputIDs[:at]))
		}
	}
	texts := map[sampleID]string{}
	for id, list := range all {
		slices.Sort(list)
		texts[id] = strings.Join(list, "\n")
	}
	return texts
}

// runPython runs a program of testdata/python and returns its output. The program must succeed.
func runPython(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	cmd := newProcess(t, findPython(t), nil, append([]string{filepath.Join("testdata", "python", name)}, args...)...)
	cmd.start(t)
	cmd.ends(t, 2*time.Minute, exit.OK)
	return []byte(cmd.stdout.String())
}

// textIn returns everything that a run's folder contains: the files, and the values of all columns.
func textIn(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	noError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		all.WriteString(path + "\n")
		if d.Type().IsRegular() {
			b, err := os.ReadFile(path)
			all.Write(b)
			return err
		}
		return nil
	}))
	got := readDataset(t, dir)
	for _, row := range got.allRows() {
		row := *row
		row.Logprobs = nil // they can be infinite
		all.WriteString(asText(t, row))
	}
	for _, f := range got.allFailures() {
		f := *f
		f.Logprobs = nil
		all.WriteString(asText(t, f))
	}
	return all.String()
}
