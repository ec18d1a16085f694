package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/harness"
	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/tokenize"
)

// A scenario is one task that the scripted engine plays for a harness.
type scenario struct {
	name    string
	options []string // of the script harness
	faulty  bool     // has a fault in an answer, so that a retry or a cut answer is expected
	// fails contains the class of the failure by harness and dialect, or by harness only.
	fails map[string]string
}

var scenarios = []scenario{
	{name: "two calls"},
	{name: "parallel", options: []string{"parallel", "calls=3"}},
	{name: "unicode", options: []string{"unicode", "compact", "think"}},
	{name: "subagent", options: []string{"subagent"}},
	{name: "cut stream", options: []string{"cut=2", "after=4"}, faulty: true},
	{name: "status 500", options: []string{"err=2"}, faulty: true},
	{name: "length", options: []string{"length=3"}, faulty: true},
	// mini-swe-agent does not shorten its history. Qwen Code does not find SGLang's message, because
	// SGLang's errors have no member "error".
	{name: "compaction", options: []string{"calls=3", "ctx=3"}, fails: map[string]string{
		"mini-swe-agent":         "context_overflow",
		"qwen-code sglang":       "context_overflow",
		"qwen-code sglang-plain": "context_overflow",
	}},
}

// lastAnswer matches the last answers of the script, as the harnesses report them.
const lastAnswer = `The answer is 42|(?m)^(?:note-\d+-\d+|Done\.)\s*$`

// A scene is what the run of a harness has of one scenario.
type scene struct {
	rows, chains, differences                        int
	trained, auxiliary, superseded, cut, quarantined int
	failed                                           string // class
}

// TestHarnesses runs the published harnesses with their presets against the scripted engine. It
// compares the rows with the engine's log, id by id. ROLLOUT_HARNESS is the folder into which make
// harnesses installed them. HARNESSES and DIALECTS select some of them. With -short,
// each harness runs with one dialect. With CONTINUITY, each also runs with harness.continuity.
func TestHarnesses(t *testing.T) {
	home := os.Getenv("ROLLOUT_HARNESS")
	if home == "" {
		t.Skip("no harnesses are installed: make e2e-harness installs them and runs this test; .ci/run does it with two of them")
	}
	names := strings.Fields(cmp.Or(os.Getenv("HARNESSES"), strings.Join(harness.PresetNames(), " ")))
	ways := []bool{false}
	if os.Getenv("CONTINUITY") != "" {
		ways = []bool{false, true}
	}
	dialects := strings.Fields(cmp.Or(os.Getenv("DIALECTS"), "vllm sglang sglang-plain"))
	t.Setenv("PATH", filepath.Join(home, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
	table, differences := new(bytes.Buffer), 0
	w := tabwriter.NewWriter(table, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "harness\tengine\tscenario\tcontinuity\trows\tchains\ttrained\tauxiliary\tsuperseded\tcut\tquarantined\tdifferences\tfailed\t\n")
	for i, name := range names {
		for k, dialect := range dialects {
			if testing.Short() && k != i%len(dialects) {
				continue
			}
			for _, continuity := range ways {
				t.Run(fmt.Sprintf("%s/%s/%v", name, dialect, continuity), func(t *testing.T) {
					scenes, n := harnessScenes(t, name, dialect, continuity)
					differences += n
					for i, s := range scenes {
						fmt.Fprintf(w, "%s\t%s\t%s\t%v\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t\n", name, dialect, scenarios[i].name, continuity,
							s.rows, s.chains, s.trained, s.auxiliary, s.superseded, s.cut, s.quarantined, s.differences, s.failed)
					}
				})
			}
		}
	}
	noError(t, w.Flush())
	t.Logf("all harnesses, with %d differences:\n%s", differences, table)
}

// harnessScenes collects one sample of each scenario, checks them, and returns what they have and the
// number of all differences from the engine's log.
func harnessScenes(t *testing.T, name, dialect string, continuity bool) (scenes []scene, differences int) {
	t.Helper()
	work := t.TempDir()
	log := filepath.Join(work, "calls.jsonl")
	engine, url := startServing(t, work, nil, "simulate", "--serve-engine", dialect, "--listen", "127.0.0.1:0", "--calls-log", log)
	var tasks []byte
	for i, s := range scenarios {
		tasks = fmt.Appendf(tasks, "{\"id\": %q, \"messages\": [\"Write two notes. %s\"]}\n", s.name, enginesim.Marker(i+1, s.options...))
	}
	config := fmt.Sprintf("harness: {preset: %s, timeout: 4m}\nengine: [%s]\ntasks: {file: tasks.jsonl}\n"+
		"output: {dir: run}\nserver: {max_in_flight: 3}\nrun: {retries: 0, fail_on_error: 100%%}\n"+
		"reward: {kind: regex, pattern: '%s'}\n", name, url, lastAnswer)
	if continuity {
		config = strings.Replace(config, "harness: {", "harness: {continuity: true, ", 1)
	}
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
	run := filepath.Join(work, "run")
	scenes, failed := readScenes(t, run, name, dialect)
	report := compareWithLog(t, run, log, failed...)
	checkScenes(t, scenes, report)
	return scenes, 0
}

// readScenes returns the scenes of a run, and the seeds of the scenarios that failed.
func readScenes(t *testing.T, run, name, dialect string) (scenes []scene, failed []string) {
	t.Helper()
	data := verified(t, run)
	for i, s := range scenarios {
		var sc scene
		id := sampleID{s.name, 0}
		for _, row := range data.rows[id] {
			sc.rows++
			if s.name != "length" && *row.Reward != 1 { // some harnesses end with an answer that was too long
				t.Errorf("%s: the harness did not finish its task", s.name)
			}
			sc.chains = max(sc.chains, int(row.Chain)+1)
			for _, m := range row.LossMask {
				sc.trained += int(m)
			}
		}
		for _, f := range data.failures[id] {
			switch n := len(f.OutputIDs); {
			case f.Call < 0:
				sc.failed = f.Class
			case f.Class != "untrained":
				sc.quarantined += n
				t.Errorf("%s: call %d is in quarantine: %s %s %s", s.name, f.Call, f.Class, f.Reason, f.Error)
			case f.Reason == tokenize.ReasonAuxiliary.String():
				sc.auxiliary += n
			case f.Reason == tokenize.ReasonSuperseded.String():
				sc.superseded += n
			default:
				sc.cut += n
			}
		}
		want := cmp.Or(s.fails[name+" "+dialect], s.fails[name])
		if sc.failed != want {
			t.Errorf("%s: the sample failed with the class %q, want %q", s.name, sc.failed, want)
		}
		if sc.failed != "" {
			failed = append(failed, fmt.Sprint(i+1))
		} else if sc.rows == 0 {
			t.Errorf("%s: no rows", s.name)
		}
		if !s.faulty && sc.superseded+sc.cut > 0 {
			t.Errorf("%s: %d tokens are superseded and %d are cut, although there was no fault", s.name, sc.superseded, sc.cut)
		}
		scenes = append(scenes, sc)
	}
	return scenes, failed
}

// checkScenes adds the differences to the scenes, and compares the numbers of tokens.
func checkScenes(t *testing.T, scenes []scene, r *trainedReport) {
	t.Helper()
	var got scene
	for i := range scenes {
		got.trained += scenes[i].trained
		got.auxiliary += scenes[i].auxiliary
		got.cut += scenes[i].cut + scenes[i].superseded
	}
	want := r.Expected
	if got.trained != want["trained"].Tokens || got.auxiliary != want["auxiliary"].Tokens || got.cut != want["cut"].Tokens {
		t.Errorf("trained, auxiliary, and cut or superseded: %d, %d and %d tokens; the engine's log has %d, %d and %d",
			got.trained, got.auxiliary, got.cut, want["trained"].Tokens, want["auxiliary"].Tokens, want["cut"].Tokens)
	}
}
