package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/harness"
	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/tokenize"
)

// A scenario is one task that the scripted engine plays for a harness.
type scenario struct {
	name    string   // without spaces
	title   string   // on the page
	options []string // of the script harness
	faulty  bool     // has a fault in an answer, so that a retry or a cut answer is expected
}

var scenarios = []scenario{
	{name: "two-calls", title: "two calls"},
	{name: "parallel", title: "parallel calls", options: []string{"parallel", "calls=3"}},
	{name: "subagent", title: "subagent", options: []string{"subagent"}},
	{name: "numbers", title: "numbers", options: []string{"numbers", "think"}},
	{name: "compact", title: "compact JSON", options: []string{"compact", "unicode", "think"}},
	{name: "cut", title: "cut stream", options: []string{"cut=2", "after=4"}, faulty: true},
	{name: "status-500", title: "status 500", options: []string{"err=2"}, faulty: true},
	{name: "length", title: "length", options: []string{"length=3"}, faulty: true},
	{name: "compaction", title: "compaction", options: []string{"calls=3", "ctx=3"}},
}

// marker returns the marker of the scenario in a task with this seed.
func (s *scenario) marker(seed int, continuity bool) string {
	options := s.options
	if continuity && s.name == "compaction" {
		// If an engine refuses a request with replaced messages, rollout sends the request of the harness.
		options = append(slices.Clone(options), "times=2")
	}
	return enginesim.Marker(seed, options...)
}

var dialects = []string{"vllm", "sglang", "sglang-plain"}

// lastAnswer matches the last answers of the script, as the harnesses report them.
const lastAnswer = `The answer is 42|(?m)^(?:note-\d+-\d+|Done\.)\s*$`

// TestHarnesses runs the published harnesses with their presets against the scripted engine, with and
// without harness.continuity. It compares the rows with the engine's log, id by id, and their numbers
// with testdata/harnesses.txt. With -update, it rewrites the file. ROLLOUT_HARNESS is the folder into
// which make harnesses installed them. HARNESSES and DIALECTS select some of them. With -short, each
// harness runs once.
func TestHarnesses(t *testing.T) {
	home := os.Getenv("ROLLOUT_HARNESS")
	if home == "" {
		t.Skip("no harnesses are installed: make e2e-harness installs them and runs this test; .ci/run does it with two of them")
	}
	names := strings.Fields(cmp.Or(os.Getenv("HARNESSES"), strings.Join(harness.PresetNames(), " ")))
	selected := strings.Fields(cmp.Or(os.Getenv("DIALECTS"), strings.Join(dialects, " ")))
	path := os.Getenv("PATH")
	table := readTable(t)
	for i, name := range names {
		// The python3 of a library's environment can import the library.
		t.Setenv("PATH", strings.Join([]string{filepath.Join(home, name, "bin"), filepath.Join(home, "bin"), path}, string(os.PathListSeparator)))
		for k, dialect := range selected {
			for _, continuity := range []bool{false, true} {
				if testing.Short() && (k != i%len(selected) || continuity != (i == 0)) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%v", name, dialect, continuity), func(t *testing.T) {
					for i, got := range harnessScenes(t, name, dialect, continuity) {
						at := scenePlace{name, dialect, continuity, scenarios[i].name}
						want := table[at]
						if got = at.usual(got, want); got != want && !*update {
							t.Errorf("%v: got %v, want %v; -update changes testdata/harnesses.txt", at, got, want)
						}
						table[at] = got
					}
				})
			}
		}
	}
	if *update {
		noError(t, os.WriteFile(tableFile, table.text(), 0o666))
	}
}

// harnessScenes collects one sample of each scenario, compares them with the engine's log, and returns
// what they have.
func harnessScenes(t *testing.T, name, dialect string, continuity bool) []scene {
	t.Helper()
	work := t.TempDir()
	log := filepath.Join(work, "calls.jsonl")
	engine, url := startServing(t, work, nil, "simulate", "--serve-engine", dialect, "--listen", "127.0.0.1:0", "--calls-log", log)
	var tasks []byte
	for i := range scenarios {
		tasks = fmt.Appendf(tasks, "{\"id\": %q, \"messages\": [\"Write two notes. %s\"]}\n", scenarios[i].name, scenarios[i].marker(i+1, continuity))
	}
	config := fmt.Sprintf("harness: {preset: %s, continuity: %v, timeout: 4m}\nengine: [%s]\ntasks: {file: tasks.jsonl}\n"+
		"output: {dir: run}\nserver: {max_in_flight: 3}\nrun: {retries: 0, fail_on_error: 100%%}\n"+
		"reward: {kind: regex, pattern: '%s'}\n", name, continuity, url, lastAnswer)
	noError(t, os.WriteFile(filepath.Join(work, "tasks.jsonl"), tasks, 0o600))
	noError(t, os.WriteFile(filepath.Join(work, "run.yaml"), []byte(config), 0o600))
	collect := newProcess(t, "rollout", nil, "collect", "-c", "run.yaml")
	collect.cmd.Dir = work
	collect.start(t)
	<-collect.ended
	if collect.code != exit.OK && collect.code != exit.Failures {
		t.Fatalf("collect: exit code %d\n%s", collect.code, collect.said())
	}
	noError(t, engine.cmd.Process.Signal(os.Interrupt)) // it writes the rest of its log
	engine.ends(t, time.Minute, exit.OK)
	return readScenes(t, filepath.Join(work, "run"), log)
}

// readScenes returns the scenes of a run.
func readScenes(t *testing.T, run, log string) (scenes []scene) {
	t.Helper()
	data := verified(t, run)
	var failed []string
	tokens := map[string]int{}
	for i, s := range scenarios {
		var sc scene
		id := sampleID{s.name, 0}
		for _, row := range data.rows[id] {
			sc.rows++
			if s.name != "length" && *row.Reward != 1 { // some harnesses end with an answer that was too long
				t.Errorf("%s: the harness did not finish its task", s.name)
			}
			sc.chains = max(sc.chains, int(row.Chain)+1)
			for at, end := range trainedSpans(row) {
				sc.trained++
				tokens["trained"] += end - at
			}
		}
		for _, f := range data.failures[id] {
			switch n := len(f.OutputIDs); {
			case f.Call < 0:
				sc.failed = f.Class
				failed = append(failed, fmt.Sprint(i+1))
			case f.Class != "untrained":
				t.Errorf("%s: call %d is in quarantine: %s %s %s", s.name, f.Call, f.Class, f.Reason, f.Error)
			case f.Reason == tokenize.ReasonAuxiliary.String():
				sc.auxiliary++
				tokens["auxiliary"] += n
			case f.Reason == tokenize.ReasonSuperseded.String():
				sc.superseded++
				tokens["cut"] += n
			default:
				sc.cut++
				tokens["cut"] += n
			}
		}
		if sc.failed == "" && sc.rows == 0 {
			t.Errorf("%s: no rows", s.name)
		}
		if !s.faulty && sc.superseded+sc.cut > 0 {
			t.Errorf("%s: %d calls are superseded and %d are cut, although there was no fault", s.name, sc.superseded, sc.cut)
		}
		scenes = append(scenes, sc)
	}
	python := compareWithLog(t, run, log, failed...)
	t.Logf("%d rows have a parent", python.Parents)
	for what, want := range python.Expected {
		if got := tokens[what]; what != "failed" && got != want.Tokens {
			t.Errorf("%s: %d tokens, want %d according to the engine's log", what, got, want.Tokens)
		}
	}
	return scenes
}
