//go:build linux

package cases_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/live/enginecheck"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// A world is a Letta with an engine, the program, and the tools of the agents.
type world struct {
	l       *Letta
	program string
	engine  *engine
	handle  string
	tools   map[string]string // ids by name
	total   *enginecheck.Result
	tok     *bpe.Tokenizer
	took    time.Duration    // CPU time of the collections that ended by themselves
	server  time.Duration    // and of Letta during them
	spread  bool             // collections use all servers
	run     *enginecheck.Run // the run compared last
	dir     string           // its folder
}

// with returns the same world with another engine behind a provider of that name.
func (w *world) with(t *testing.T, provider string, change ...func(*enginesim.Config)) *world {
	t.Helper()
	other := *w
	other.engine = newEngine(t, w.l.Model, change...)
	other.handle = w.l.Provider(t, provider, other.engine.url)
	return &other
}

// toolSource returns the source of a tool of the agents. Their results are of different kinds.
func toolSource(t *testing.T, name string) string {
	t.Helper()
	return string(must(os.ReadFile(filepath.Join("testdata", "tools", name+".py")))(t))
}

func newWorld(t *testing.T, cfg Config) *world {
	t.Helper()
	w := &world{l: Start(t, cfg), program: Build(t), tools: map[string]string{}, total: enginecheck.Compare(&enginecheck.Run{}, nil)}
	w.engine = newEngine(t, w.l.Model)
	w.handle = w.l.Provider(t, "sglang-sim", w.engine.url)
	for _, name := range []string{"add", "mul", "echo", "lookup", "fail", "guarded"} {
		made := w.l.do(t, http.MethodPost, "/v1/tools/", map[string]any{"source_code": toolSource(t, name), "source_type": "python", "default_requires_approval": name == "guarded"})
		w.tools[name] = must(letta.Read[letta.Tool](string(made)))(t).ID
	}
	return w
}

func (w *world) toolIDs(names ...string) []string {
	ids := make([]string, len(names))
	for i, name := range names {
		ids[i] = w.tools[name]
	}
	return ids
}

// A task is a line of a task file and the expected result of its samples.
type task struct {
	id    string
	says  []string // messages, each with the script that answers it
	agent map[string]any
	tools []string // names
	want  want
}

type want struct {
	class   string   // of the failure that ends it; empty: it has rows
	reasons []string // allowed reasons of quarantined calls
	rows    int      // exact number; 0: any number except none
}

type collection struct {
	name     string
	tasks    []task
	samples  int
	agent    map[string]any // settings of all agents, as in the configuration file
	settings map[string]any // other sections of the configuration file
	args     []string
	code     int
	lost     int             // engine calls that can be lost
	allow    map[string]bool // reasons of quarantine that all tasks can have
	tap      *tapped         // the tap in use; every row must then be exact
	weaker   bool            // unless something is broken
	called   bool            // a preflight calls the model with the first task
	source   string          // required source of all prompts; empty: any
	trimmed  bool            // rows must have trimmed tokens
}

// write writes tasks and settings. It returns the arguments of collect and the folder of the run.
func (w *world) write(t *testing.T, c *collection) (args []string, dir string) {
	t.Helper()
	folder := t.TempDir()
	var lines bytes.Buffer
	for _, k := range c.tasks {
		agent := map[string]any{}
		maps.Copy(agent, k.agent)
		if k.tools != nil {
			agent["tool_ids"] = w.toolIDs(k.tools...)
		}
		line := map[string]any{"id": k.id, "messages": k.says}
		if len(agent) > 0 {
			line["agent"] = agent
		}
		lines.Write(append(object(t, line), '\n'))
	}
	settings := map[string]any{"agent": map[string]any{"system": "You are a careful assistant."}, "server": map[string]any{"max_in_flight": 6}}
	maps.Copy(settings, c.settings)
	if c.agent != nil {
		settings["agent"] = c.agent
	}
	write := func(name string, body []byte) string {
		path := filepath.Join(folder, name)
		noError(t, os.WriteFile(path, body, 0o666))
		return path
	}
	dir = filepath.Join(folder, "run")
	args = []string{
		"collect", "-c", write("run.yaml", object(t, settings)), "--tokenizer", w.l.Model, "--tasks", write("tasks.jsonl", lines.Bytes()),
		"--samples", fmt.Sprint(c.samples), "--out", dir, "--server", w.l.URLs[0],
	}
	if !c.called {
		args = append(args, "--preflight", "connect")
	}
	if _, file := settings["agent"].(map[string]any)["file"]; !file {
		handle := w.handle
		if c.tap != nil {
			handle = c.tap.handle
		}
		args = append(args, "--model", handle)
	}
	if c.tap != nil {
		args = append(args, "--tap", c.tap.reads)
	}
	return append(args, c.args...), dir
}

func (w *world) collect(t *testing.T, c collection) *enginecheck.Result {
	t.Helper()
	if w.spread {
		c.args = slices.Clone(c.args)
		for _, u := range w.l.URLs[1:] {
			c.args = append(c.args, "--server", u)
		}
	}
	args, dir := w.write(t, &c)
	from := len(w.engine.calls())
	before := w.l.CPU()
	r := w.l.Run(t, w.program, args...)
	w.took, w.server = w.took+r.CPU, w.server+w.l.CPU()-before
	if r.Code != c.code {
		t.Errorf("exit code %d, want %d\n%s%s", r.Code, c.code, r.Stdout, r.Stderr)
	}
	if c.tap != nil {
		t.Logf("%s%s", r.Stdout, r.Stderr)
	}
	return w.compare(t, &c, dir, from)
}

// compare compares a run with the calls of the engine from index from on.
func (w *world) compare(t *testing.T, c *collection, dir string, from int) *enginecheck.Result {
	t.Helper()
	w.l.MustRun(t, exit.OK, w.program, "verify", dir)
	run := must(enginecheck.Read(dir))(t)
	calls := w.engine.calls()[from:]
	res := enginecheck.Compare(run, calls)
	t.Logf("%s\n%s", c.name, res)
	if res.Wrongs > 0 {
		t.Errorf("%d things are wrong", res.Wrongs)
	}
	if again := retried(run); res.Lost.Calls > c.lost && again == 0 {
		t.Errorf("%v of the engine are in no row and no failure, %d may be", res.Lost, c.lost)
	} else if again > 0 {
		t.Logf("%d samples took more than one attempt", again) // a stalling server is not what is tested
	}
	if c.tap != nil && !c.weaker {
		for _, row := range run.Rows {
			if row.Verification != "exact" || row.PromptSource != "tap" {
				t.Errorf("%s sample %d row %d of %d: %s from %s, want exact from the tap", row.TaskID, row.SampleIndex, row.SegmentIndex, row.SegmentCount, row.Verification, row.PromptSource)
			}
		}
	}
	if c.source != "" && res.Sources[c.source] != res.Rows {
		t.Errorf("prompts from %v, want all %d from %s", res.Sources, res.Rows, c.source)
	}
	if c.trimmed && res.Trimmed == 0 {
		t.Error("nothing was trimmed, so this case shows nothing")
	}
	c.check(t, run)
	w.total.Add(res)
	w.run, w.dir = run, dir
	return res
}

// retried counts the samples with more than one attempt. The output of their first attempt is lost.
func retried(run *enginecheck.Run) int {
	again := map[string]bool{}
	for _, r := range run.Rows {
		if r.Attempt > 1 {
			again[r.SampleKey] = true
		}
	}
	for _, f := range run.Failures {
		if f.Attempt > 1 {
			again[f.SampleKey] = true
		}
	}
	return len(again)
}

func (c *collection) check(t *testing.T, run *enginecheck.Run) {
	t.Helper()
	type sample struct {
		task  string
		index int32
	}
	rows, fails, wants := map[sample]int{}, map[sample][]string{}, map[string]want{}
	for _, k := range c.tasks {
		wants[k.id] = k.want
	}
	for _, r := range run.Rows {
		rows[sample{r.TaskID, r.SampleIndex}]++
	}
	for _, f := range run.Failures {
		word, allowed := f.Reason, c.allow[f.Reason] || slices.Contains(wants[f.TaskID].reasons, f.Reason)
		if f.Call < 0 {
			word, allowed = "class "+f.Class, f.Class == wants[f.TaskID].class
		}
		s := sample{f.TaskID, f.SampleIndex}
		if fails[s] = append(fails[s], word); !allowed {
			t.Errorf("%s sample %d: failure %s %s %q", f.TaskID, f.SampleIndex, f.Class, f.Reason, f.Error)
		}
	}
	for _, k := range c.tasks {
		for i := range int32(c.samples) {
			s := sample{k.id, i}
			switch {
			case k.want.class != "":
				if rows[s] > 0 || len(fails[s]) == 0 {
					t.Errorf("%s sample %d: %d rows and failures %v, want class %s", k.id, i, rows[s], fails[s], k.want.class)
				}
			case rows[s] == 0 && len(c.allow)+len(k.want.reasons) == 0, k.want.rows > 0 && rows[s] != k.want.rows:
				t.Errorf("%s sample %d: %d rows and failures %v, want %d rows", k.id, i, rows[s], fails[s], k.want.rows)
			}
		}
	}
}

func object(t *testing.T, v any) json.RawMessage {
	t.Helper()
	return must(json.Marshal(v))(t)
}

func (w *world) tokenizer(t *testing.T) *bpe.Tokenizer {
	t.Helper()
	if w.tok == nil {
		w.tok = must(bpe.Load(os.DirFS(w.l.Model), bpe.Options{}))(t)
	}
	return w.tok
}

// text returns the text of tokens.
func (w *world) text(t *testing.T, ids []int32) string {
	t.Helper()
	return string(must(w.tokenizer(t).AppendText(nil, ids, bpe.DecodeOptions{}))(t))
}

// must returns the value of a call that must not fail: must(os.ReadFile(path))(t).
func must[T any](value T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		noError(t, err)
		return value
	}
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
