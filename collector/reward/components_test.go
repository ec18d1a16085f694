package reward_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/reward"
)

func TestComponents(t *testing.T) {
	t.Parallel()
	c := command(t, reward.CommandConfig{})
	of := func(weight float64) reward.Components {
		return reward.Components{
			{Name: "correct", Weight: 1, Scorer: reward.Each(reward.Contains{})},
			{Name: "own", Weight: weight, Scorer: reward.Each(c)},
		}
	}
	for _, tt := range []struct {
		output, answer string
		weight         float64
		want, err      string
	}{
		{`7`, "7", 0.5, `1.5 {"correct":{"reward":1},"own":{"reward":1,"details":{"nth":N}}}`, ""},
		{`12`, "7", -2, `-4 {"correct":{"reward":0},"own":{"reward":2,"details":{"nth":N}}}`, ""},
		{`raw:{"reward":null,"details":{"a":7}}`, "7", 1, `null {"correct":{"reward":1},"own":{"reward":null,"details":{"a":7}}}`, ""},
		{`raw:{"reward":null,"details":{"a":7}}`, "7", 0, `1 {"correct":{"reward":1},"own":{"reward":null,"details":{"a":7}}}`, ""},
		{`raw:{"error":"no 7"}`, "7", 1, `null {"correct":{"reward":1},"error":"own: reward: PROGRAM: no 7","own":{"reward":null,"details":{"error":"reward: PROGRAM: no 7"}}}`, "own: reward: PROGRAM: no 7"},
		{`raw:{"error":"no 7"}`, "7", 0, `1 {"correct":{"reward":1},"own":{"reward":null,"details":{"error":"reward: PROGRAM: no 7"}}}`, ""},
		{`raw:{"error":"no 7"}`, "", 1, `null {`, "own: reward: PROGRAM: no 7"}, // a failure of the scorer is not hidden
		{`7`, "", 1, `null {`, "correct: reward: the task has no answer"},
	} {
		task := &collector.Task{ID: "t", Messages: []string{"m"}}
		if tt.answer != "" {
			task.Answer = &tt.answer
		}
		r, err := collector.Settle(of(tt.weight).Score(t.Context(), task, &collector.Reply{Output: tt.output}))
		got := resultText(t, r)
		if i := strings.Index(got, `"nth":`); i >= 0 {
			got = got[:i+6] + "N" + strings.TrimLeft(got[i+6:], "0123456789")
		}
		program := strings.NewReplacer("PROGRAM", programName(t))
		if !strings.HasPrefix(got, program.Replace(tt.want)) || (err == nil) != (tt.err == "") || err != nil && !strings.HasPrefix(err.Error(), program.Replace(tt.err)) {
			t.Errorf("%s × %v:\n%s, %v, want\n%s, %s", tt.output, tt.weight, got, err, tt.want, tt.err)
		}
		if errors.Is(err, collector.ErrNoAnswer) != strings.HasPrefix(tt.err, "correct") {
			t.Errorf("%s: %v", tt.output, err)
		}
	}
	none := &collector.Task{ID: "t"}
	if err := of(1).Check(none); !errors.Is(err, collector.ErrNoAnswer) {
		t.Errorf("Check of a task without an answer = %v", err)
	}
	only := reward.Components{{Name: "correct", Scorer: reward.Each(reward.Contains{})}, {Name: "own", Weight: 1, Scorer: reward.Each(c)}}
	if err := only.Check(none); err != nil {
		t.Errorf("Check with a component of weight 0 = %v", err)
	}
	huge := reward.Components{{Name: "a", Weight: 1e308, Scorer: reward.Each(c)}}
	if r, err := collector.Settle(huge.Score(t.Context(), none, &collector.Reply{Output: "12"})); err == nil || r.Value != nil {
		t.Errorf("a sum that is not finite: %v, %v", r, err)
	}
}

// A component can see the group.
func TestComponentsOfGroup(t *testing.T) {
	t.Parallel()
	g := must(reward.NewPythonGroup(reward.PythonConfig{File: scorerFile(t, pythonScorer), Function: "rank", Interpreter: interpreter(t)}))
	defer func() { _ = g.Close() }()
	c := reward.Components{{Name: "long", Weight: 2, Scorer: g}, {Name: "seven", Weight: 1, Scorer: reward.Each(must(reward.NewRegex("7")))}}
	var got []string
	for _, r := range c.ScoreGroup(t.Context(), groupOf("7", "777")) {
		got = append(got, fmt.Sprint(resultText(t, r.Reward), r.Err))
	}
	want := []string{
		`-1 {"long":{"reward":-1,"details":{"of":2}},"seven":{"reward":1}}<nil>`,
		`3 {"long":{"reward":1,"details":{"of":2}},"seven":{"reward":1}}<nil>`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %q, want %q", got, want)
	}
}

func programName(t *testing.T) string {
	t.Helper()
	return must(os.Executable())
}
