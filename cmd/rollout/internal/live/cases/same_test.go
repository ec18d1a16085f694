//go:build linux

package cases_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/live/enginecheck"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
)

var scriptMark = regexp.MustCompile(`\[script:[^\]]*`)

// marked gives every message of the tasks its own marker. An engine that samples by the marker then
// answers each message differently, but equally whenever a task is played.
func marked(tasks []task) []task {
	n := 0
	for i := range tasks {
		tasks[i].says = slices.Clone(tasks[i].says)
		for k, text := range tasks[i].says {
			n++
			tasks[i].says[k] = scriptMark.ReplaceAllString(text, fmt.Sprintf("${0} copy=%d", n))
		}
	}
	// Its answer has a bare NaN, which is not JSON, so a tap does not read it.
	return slices.DeleteFunc(tasks, func(k task) bool { return k.id == "nan" })
}

// The parts that differ in every rollout: the agent and the time. A summary also has the length of
// its input, which includes ids of agents.
var (
	anAgent = regexp.MustCompile(`(agent|conv)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	aTime   = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2} [AP]M UTC\+0000`)
	aLength = regexp.MustCompile(`("context_tokens_(?:before|after)\\?"): [0-9]+`)
	aName   = regexp.MustCompile(`valid tools include: \[([^\]]*)\]`)
	aTool   = regexp.MustCompile(`(?m)^\{"type": "function", "function": .*\}$`)
)

// shown returns the text of ids without these parts, and with the tools in a fixed order.
func (w *world) shown(t *testing.T) func(ids []int32) string {
	t.Helper()
	return func(ids []int32) string {
		text := w.text(t, ids)
		tools := aTool.FindAllString(text, -1)
		slices.Sort(tools)
		out := aTool.ReplaceAllString(text, "{}")
		// The agent's tools, in the server's order at that moment.
		out = aName.ReplaceAllStringFunc(out, func(list string) string {
			names := strings.Split(aName.FindStringSubmatch(list)[1], ", ")
			slices.Sort(names)
			return strings.Join(names, ", ")
		})
		out = aLength.ReplaceAllString(out, "$1: some")
		out = aTime.ReplaceAllString(anAgent.ReplaceAllString(out, "$1"), "now")
		return out + "\n" + strings.Join(tools, "\n")
	}
}

func (w *world) order(t *testing.T) func(ids []int32) string {
	t.Helper()
	return func(ids []int32) string { return strings.Join(aTool.FindAllString(w.text(t, ids), -1), "\n") }
}

// mustBeSame compares two runs. Both must have at least this many calls and rows, and at most
// missing calls are only in the first.
func mustBeSame(t *testing.T, name string, first, second *enginecheck.Run, show, order func([]int32) string, calls, rows, missing int) {
	t.Helper()
	s := enginecheck.Same(first, second, show, order)
	t.Logf("%s\n%s", name, s)
	if s.Differing > 0 || s.Missing > missing || s.Calls < calls || s.Rows < rows {
		t.Errorf("%s: want no difference, %d calls and %d rows at least, and %d missing at most", name, calls, rows, missing)
	}
}

// same collects the same messages three times with an engine that always answers the same: without
// a tap, through one, and by plain requests whose server runs are read. The rows must be equal.
//
// No two agents have the same prompt: it contains the agent's id and the time, and lists the tools in
// any order. So the engine samples by the marker alone, and contexts are compared without these three
// parts. If the rollouts of one run are read again from the server's records, ids are compared.
func (w *world) same(t *testing.T) {
	t.Helper()
	v := w.with(t, "sglang-marker", func(c *enginesim.Config) { c.ByMarker = true })
	defer func() { w.took, w.server = v.took, v.server }()
	p := v.newTap(t, "sglang") // with this name, the server also asks for ids in its streams
	tasks := marked(plain(v.handle))

	from := len(v.engine.calls())
	v.collect(t, collection{name: "without a tap", tasks: tasks, samples: 1, code: exit.Tolerance, args: []string{"--keep-agents"}})
	driven, dir, calls := v.run, v.dir, v.engine.calls()[from:]

	t.Run("with a tap", func(t *testing.T) {
		tapped := marked(plain(p.handle))
		for i := range tapped {
			tapped[i].want.reasons = nil
		}
		c := p.through(collection{name: "what a model may say", tasks: tapped, samples: 1, code: exit.Tolerance, args: []string{"--prompts", "tap"}, source: "tap"})
		v.collect(t, c)
		mustBeSame(t, "without a tap and with one", driven, v.run, v.shown(t), v.order(t), 160, 80, 0)
	})
	t.Run("the same agents", func(t *testing.T) {
		info := must(runfolder.Read(dir))(t)
		read := v.readRuns(t, filepath.Join(t.TempDir(), "run"), exit.Failures, "--from-runs", "tag="+agent.TagRun(info.ID), "--fail-on-error", "100%")
		if res := enginecheck.Compare(read, calls); res.Wrongs > 0 {
			t.Errorf("%d things are wrong\n%s", res.Wrongs, res)
		}
		// Four server runs waited for an approval and ended, and one step made a summary.
		mustBeSame(t, "driven, and read from the server's runs", driven, read, nil, nil, 150, 70, 5)
	})
	v.l.MustRun(t, exit.OK, v.program, "clean", dir)
	t.Run("by curl", func(t *testing.T) { v.curled(t, p, tasks, driven) })
}

// readRuns reads server runs twice. The second time adds nothing. It returns the rows of the run.
func (w *world) readRuns(t *testing.T, dir string, code int, args ...string) *enginecheck.Run {
	t.Helper()
	args = append([]string{"collect", "--resume", "--server", w.l.URLs[0], "--tokenizer", w.l.Model, "--out", dir}, args...)
	w.l.MustRun(t, code, w.program, args...)
	w.l.MustRun(t, exit.OK, w.program, "verify", dir)
	run := must(enginecheck.Read(dir))(t)
	w.l.MustRun(t, code, w.program, args...)
	if again, err := enginecheck.Read(dir); err != nil || len(again.Rows) != len(run.Rows) || len(again.Failures) != len(run.Failures) {
		t.Errorf("a second time: %v, %d rows and %d failures, %d and %d before", err, len(again.Rows), len(again.Failures), len(run.Rows), len(run.Failures))
	}
	return run
}
