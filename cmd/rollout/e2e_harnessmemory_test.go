package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/tokenize/bpe"
)

const memoryExample = "configs/letta-memory"

// A memoryRun is a copy of the folder configs/letta-memory, with a scripted engine.
type memoryRun struct {
	dir    string
	engine *enginesim.Engine
	start  map[string]string // the files of the folder agent after its creation
}

// TestHarnessesMemory runs the commands of configs/letta-memory/README.md with Letta Code. It checks
// that every call of every session is trained once. The prompts of later sessions must contain the
// memory that the first session wrote to its copy. The next round must begin with the memory of the best
// attempt.
func TestHarnessesMemory(t *testing.T) {
	home, selected := os.Getenv("ROLLOUT_HARNESS"), os.Getenv("HARNESSES")
	if home == "" || selected != "" && !slices.Contains(strings.Fields(selected), "letta-code") {
		t.Skip("needs Letta Code: make e2e-harness installs it and runs this test")
	}
	python := must(filepath.Abs(findPython(t)))(t)
	path := []string{filepath.Join(home, "bin"), filepath.Dir(python), os.Getenv("PATH")}
	t.Setenv("PATH", strings.Join(path, string(os.PathListSeparator)))
	t.Setenv("PYTHONPATH", must(filepath.Abs(filepath.Join(repository, "sink", "python", "src")))(t))
	m := newMemoryRun(t)
	m.runPage(t)

	mains := map[string]int{} // the answers of main conversations by seed
	for run, samples := range map[string]int{"run1": 2, "run2": 2} {
		got := verified(t, filepath.Join(m.dir, run))
		if got.has(t, samples, 0); len(got.rows) != samples {
			t.Fatalf("%s has %d samples with rows, want %d", run, len(got.rows), samples)
		}
		maps.Copy(mains, m.checkRows(t, got))
	}
	if want := map[string]int{"3": 2, "4": 2}; !maps.Equal(mains, want) {
		t.Errorf("the main conversations have the answers %v by seed, want %v: the last sessions", mains, want)
	}
	m.checkMemory(t)
	if !maps.Equal(treeOf(t, filepath.Join(m.dir, "agent")), m.start) {
		t.Error("the folder agent has changed")
	}
}

func newMemoryRun(t *testing.T) *memoryRun {
	t.Helper()
	m := &memoryRun{dir: filepath.Join(t.TempDir(), "example")}
	noError(t, os.CopyFS(m.dir, os.DirFS(filepath.Join(repository, filepath.FromSlash(memoryExample)))))
	var url string
	m.engine, _, url = newHarnessEngine(t, enginesim.DialectVLLM)
	settings := filepath.Join(m.dir, "collect.yaml")
	text := string(must(os.ReadFile(settings))(t))
	contains(t, text, "http://127.0.0.1:8000")
	noError(t, os.WriteFile(settings, []byte(strings.ReplaceAll(text, "http://127.0.0.1:8000", url)), 0o600))
	return m
}

// runPage runs all commands of the page, in order. The engine already runs.
func (m *memoryRun) runPage(t *testing.T) {
	t.Helper()
	for _, f := range fences(t, memoryExample+"/README.md") {
		for _, line := range f.lines {
			if strings.HasPrefix(line, "rollout simulate ") {
				continue
			}
			t.Log(shell(t, m.dir, 0, line))
			if m.start == nil {
				m.start = treeOf(t, filepath.Join(m.dir, "agent"))
			}
		}
	}
}

// checkRows compares the rows of a run with the engine's log, id by id. Each call of the sessions must be
// trained once, in a row of its attempt. It returns the number of trained answers in main conversations by
// the seed of their session.
func (m *memoryRun) checkRows(t *testing.T, got *readBack) map[string]int {
	t.Helper()
	calls, seeds := map[string]enginesim.Call{}, map[string]bool{} // by context: a context contains the folder of the attempt
	for _, c := range m.engine.Calls() {
		calls[contextOf(c.InputIDs, c.OutputIDs)] = c
	}
	mains := map[string]int{}
	trained := map[int]bool{}
	for id, row := range got.allRows() {
		if row.Verification != "exact" || row.Reward == nil || *row.Reward != 1 {
			t.Errorf("%v: row %d is not an exact row with the reward 1", id, row.SegmentIndex)
		}
		for at, end := range trainedSpans(row) {
			c, ok := calls[contextOf(row.InputIDs[:at], row.InputIDs[at:end])]
			switch {
			case !ok || !slices.Equal(c.Logprobs, row.Logprobs[at:end]):
				t.Errorf("%v: the tokens %d to %d do not belong to a call", id, at, end)
			case trained[c.N]:
				t.Errorf("%v: call %d is trained twice", id, c.N)
			case !strings.Contains(m.promptOf(t, &c), m.attempt(t, row.AgentID)):
				t.Errorf("%v: call %d belongs to another attempt", id, c.N)
			}
			trained[c.N], seeds[c.Seed] = true, true
			if row.ChainKind == "main" {
				mains[c.Seed]++
			}
		}
	}
	for _, c := range calls {
		if seeds[c.Seed] && !trained[c.N] {
			t.Errorf("answer %d of the session with seed %s is not trained", c.Step, c.Seed)
		}
	}
	return mains
}

// checkMemory checks which prompts contain the note, and that the memory of each attempt of the first
// round is a copy.
func (m *memoryRun) checkMemory(t *testing.T) {
	t.Helper()
	const note = "The answer is 57."
	first := map[string]int{}
	for _, c := range m.engine.Calls() {
		if c.Script == "" || c.Step > 0 {
			continue
		}
		first[c.Seed]++
		if has := strings.Contains(m.promptOf(t, &c), note); has != (c.Seed != "1") {
			t.Errorf("the first prompt of the session with seed %s contains %q: %v", c.Seed, note, has)
		}
	}
	if want := map[string]int{"1": 2, "2": 2, "3": 2, "4": 2}; !maps.Equal(first, want) {
		t.Errorf("the sessions began %v times by seed, want %v", first, want)
	}
	revision := func(folder, name string) string {
		memory := must(filepath.Glob(filepath.Join(folder, "letta", "memfs", "*", "memory")))(t)
		out, err := exec.CommandContext(t.Context(), "git", "-C", strings.Join(memory, " "), "rev-parse", name).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", folder, err, out)
		}
		return string(out)
	}
	attempts := must(filepath.Glob(filepath.Join(m.dir, "attempts", "*", "work")))(t)
	for _, folder := range attempts {
		if revision(folder, "HEAD~1") != revision(filepath.Join(m.dir, "agent"), "HEAD") {
			t.Errorf("%s: the memory is not a copy of the memory in the folder agent", folder)
		}
	}
	if len(attempts) != 2 {
		t.Errorf("%d attempts of the first round are kept, want 2", len(attempts))
	}
}

// attempt returns a text that is in all prompts of the attempt: the path of its folder, or of the copies
// in the second round, which are not kept.
func (m *memoryRun) attempt(t *testing.T, agentID string) string {
	t.Helper()
	for _, file := range must(filepath.Glob(filepath.Join(m.dir, "attempts", "*", "session")))(t) {
		if string(must(os.ReadFile(file))(t)) == agentID {
			return filepath.Dir(file)
		}
	}
	return os.TempDir()
}

// smallTokenizer is not read at the start, because the tests start this program thousands of times.
var smallTokenizer = sync.OnceValues(func() (*bpe.Tokenizer, error) {
	tokenizer, _, err := enginesim.SmallModel()
	return tokenizer, err
})

func (m *memoryRun) promptOf(t *testing.T, c *enginesim.Call) string {
	t.Helper()
	text, err := must(smallTokenizer())(t).AppendText(nil, c.InputIDs, bpe.DecodeOptions{})
	if err != nil {
		t.Fatal(fmt.Errorf("call %d: %w", c.N, err))
	}
	return string(text)
}
