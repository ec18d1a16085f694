package enginecheck_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/live/enginecheck"
	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/sink"
)

// world returns the calls of two agents and more. a1 made three: the second prompt continues the
// first call, the third does not. a2 made one with the same ids and log-probabilities as the first
// of a1.
func world() (*enginecheck.Run, []enginesim.Call) {
	call := func(n int, agent string, prompt, output []int32) enginesim.Call {
		c := enginesim.Call{
			N: n, Path: "/generate", Status: 200, InputIDs: prompt, OutputIDs: output, Finish: enginesim.Finish{Type: "stop"},
			Version: "7", Script: "tool", Agent: agent + " default", Sampling: []byte(`{"temperature":1.0,"max_new_tokens":4096,"top_p":0.9}`),
		}
		seed := enginesim.PromptSeed(prompt)
		for i, id := range output {
			c.Logprobs = append(c.Logprobs, enginesim.Logprob(seed, i, id))
		}
		return c
	}
	calls := []enginesim.Call{
		call(1, "a1", []int32{1, 2, 3}, []int32{10, 11}),
		call(2, "a1", []int32{1, 2, 3, 10, 11, 4}, []int32{12, 13, 14}),
		call(3, "a1", []int32{1, 2, 9}, []int32{15}),
		call(4, "a2", []int32{1, 2, 4}, []int32{10, 11}),
		call(5, "a2", []int32{1, 2, 4, 5}, []int32{16}),
		{N: 6, Path: "/generate", Status: 500, Script: "tool", Agent: "a3 default"},
		call(7, "a3", []int32{8}, []int32{17, 18}),
		call(8, "p", []int32{7}, []int32{19}),
	}
	calls[7].Script = "" // a preflight
	calls[3].Logprobs = slices.Clone(calls[0].Logprobs)
	calls[2].Logprobs = []float32{float32(math.NaN())}
	one := func(f float32) *float32 { return &f }
	row := func(key, agent string, segment, of int32, spans ...[]int32) *sink.StoredRow {
		r := &sink.StoredRow{SampleKey: key, TaskID: key, AgentID: agent, SegmentIndex: segment, SegmentCount: of, Verification: "exact", PromptSource: "tap", Temperature: one(1), TopP: one(0.9), TurnOffsets: []int32{0}}
		for k, ids := range spans {
			r.InputIDs = append(r.InputIDs, ids...)
			r.TurnOffsets = append(r.TurnOffsets, int32(len(r.InputIDs)))
			r.TurnRoles = append(r.TurnRoles, []int8{0, 1, 2, 1}[k])
		}
		r.LossMask, r.Logprobs, r.Versions = make([]int8, len(r.InputIDs)), make([]float32, len(r.InputIDs)), make([]int32, len(r.InputIDs))
		for i := range r.Versions {
			r.Versions[i] = -1
		}
		return r
	}
	fill := func(r *sink.StoredRow, span int, c enginesim.Call) {
		from := r.TurnOffsets[span]
		for i, p := range c.Logprobs {
			if !math.IsNaN(float64(p)) {
				r.LossMask[int(from)+i], r.Logprobs[int(from)+i] = 1, p
			} else {
				r.Unscored++
			}
			r.Versions[int(from)+i] = 7
		}
		r.FinishReasons = append(r.FinishReasons, "stop")
	}
	long := row("s1", "a1", 0, 2, []int32{1, 2, 3}, []int32{10, 11}, []int32{4}, []int32{12, 13, 14})
	fill(long, 1, calls[0])
	fill(long, 3, calls[1])
	fork := row("s1", "a1", 1, 2, []int32{1, 2, 9}, []int32{15})
	fill(fork, 1, calls[2])
	other := row("s2", "a2", 0, 1, []int32{1, 2, 4}, []int32{10, 11})
	fill(other, 1, calls[3])
	failure := &sink.StoredFailure{
		SampleKey: "s2", TaskID: "s2", AgentID: "a2", Class: "quarantined", Reason: "tool_order", Call: 1,
		OutputIDs: []int32{16}, Logprobs: slices.Clone(calls[4].Logprobs),
	}
	return &enginecheck.Run{Rows: []*sink.StoredRow{long, fork, other}, Failures: []*sink.StoredFailure{failure}}, calls
}

func TestCompareRight(t *testing.T) {
	t.Parallel()
	run, calls := world()
	r := enginecheck.Compare(run, calls)
	want := &enginecheck.Result{
		Samples: 2, Rows: 3, Failures: 1, Spans: 4, InRows: enginecheck.Count{Calls: 4, Tokens: 8}, Quarantined: enginecheck.Count{Calls: 1, Tokens: 1},
		Lost: enginecheck.Count{Calls: 1, Tokens: 2}, Other: enginecheck.Count{Calls: 1, Tokens: 1}, Refused: 1,
		Grades: map[string]int{"exact": 3}, Sources: map[string]int{"tap": 3}, Reasons: map[string]int{"quarantined/tool_order": 1}, Versions: map[string]int{"7": 4}, Flags: map[string]int{}, Told: map[string]int{"temperature 1": 4, "top_p 0.9": 4},
	}
	if got := fmt.Sprintf("%+v", *r); got != fmt.Sprintf("%+v", *want) {
		t.Errorf("%s\nwant %+v", got, *want)
	}
	if s := r.String(); !strings.Contains(s, "4 right") || !strings.Contains(s, "exact 3") {
		t.Errorf("summary:\n%s", s)
	}
	sum := enginecheck.Compare(&enginecheck.Run{}, nil)
	sum.Add(r)
	if fmt.Sprintf("%+v", *sum) != fmt.Sprintf("%+v", *r) {
		t.Errorf("added to nothing: %+v", sum)
	}
	// The prompt decides between two calls with the same output, in any order.
	slices.Reverse(calls)
	slices.Reverse(run.Rows)
	if r := enginecheck.Compare(run, calls); r.Wrongs != 0 {
		t.Errorf("in another order:\n%s", r)
	}
}

// Compare finds each single error.
func TestCompareFinds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, want string
		plant      func(r *enginecheck.Run, calls []enginesim.Call)
	}{
		{"a context of the same length", "differ at token 1", func(r *enginecheck.Run, _ []enginesim.Call) { r.Rows[0].InputIDs[1] = 99 }},
		{"a context of another length", "the context has 2 tokens", func(r *enginecheck.Run, _ []enginesim.Call) {
			row := r.Rows[1]
			row.InputIDs, row.LossMask, row.Logprobs, row.Versions = row.InputIDs[1:], row.LossMask[1:], row.Logprobs[1:], row.Versions[1:]
			row.TurnOffsets = []int32{0, 2, 3}
		}},
		{"the context of the tool", "differ at token 5", func(r *enginecheck.Run, _ []enginesim.Call) { r.Rows[0].InputIDs[5] = 99 }},
		{"the context of another agent", "already", func(r *enginecheck.Run, _ []enginesim.Call) { r.Rows[2].InputIDs[2] = 3 }},
		{"a sampled token", "the engine sampled 13", func(r *enginecheck.Run, _ []enginesim.Call) { r.Rows[0].InputIDs[7] = 99 }},
		{"the last bit of a log-probability", "log-probability", func(r *enginecheck.Run, _ []enginesim.Call) {
			r.Rows[0].Logprobs[4] = math.Nextafter32(r.Rows[0].Logprobs[4], -9)
		}},
		{"a log-probability that there is none of", "log-probability", func(r *enginecheck.Run, _ []enginesim.Call) {
			r.Rows[1].LossMask[3], r.Rows[1].Unscored = 1, 0
		}},
		{"a zero under mask 0 that is negative", "mask 0", func(r *enginecheck.Run, _ []enginesim.Call) {
			r.Rows[1].Logprobs[3] = float32(math.Copysign(0, -1))
		}},
		{"a token untrained without a word", "n_unscored is 0", func(r *enginecheck.Run, _ []enginesim.Call) {
			r.Rows[0].LossMask[4], r.Rows[0].Logprobs[4] = 0, 0
		}},
		{"a token untrained that has a log-probability", "mask 0, but the engine returned", func(r *enginecheck.Run, _ []enginesim.Call) {
			r.Rows[0].LossMask[4], r.Rows[0].Logprobs[4], r.Rows[0].Unscored = 0, 0, 1
		}},
		{"a trained tool", "was not sampled", func(r *enginecheck.Run, _ []enginesim.Call) { r.Rows[0].LossMask[5] = 1 }},
		{"a row twice", "already", func(r *enginecheck.Run, _ []enginesim.Call) { r.Rows = append(r.Rows, r.Rows[2]) }},
		{"rows of two rollouts of a sample", "rows from two rollouts", func(r *enginecheck.Run, _ []enginesim.Call) {
			r.Rows[0].RolloutID, r.Rows[1].RolloutID = "s1/1", "s1/2"
		}},
		{"a row missing", "in none of them", func(r *enginecheck.Run, _ []enginesim.Call) { r.Rows = r.Rows[1:] }},
		{"a failure missing", "in none of them", func(r *enginecheck.Run, _ []enginesim.Call) { r.Failures = nil }},
		{"a failure twice", "did not sample the tokens", func(r *enginecheck.Run, _ []enginesim.Call) {
			r.Failures = append(r.Failures, r.Failures[0])
		}},
		{"a failure's token that is in a row", "did not sample the tokens from index 0", func(r *enginecheck.Run, c []enginesim.Call) {
			r.Failures[0].OutputIDs, r.Failures[0].Logprobs = []int32{12, 13, 14}, c[1].Logprobs
		}},
		{"a failure's log-probability", "did not sample", func(r *enginecheck.Run, _ []enginesim.Call) { r.Failures[0].Logprobs[0]-- }},
		{"a trimmed output", "n_trimmed is 0", func(r *enginecheck.Run, _ []enginesim.Call) {
			row := r.Rows[2]
			row.InputIDs, row.LossMask, row.Logprobs, row.Versions = row.InputIDs[:4], row.LossMask[:4], row.Logprobs[:4], row.Versions[:4]
			row.TurnOffsets = []int32{0, 3, 4}
		}},
		{"more trimmed than there was", "n_trimmed counts 3", func(r *enginecheck.Run, _ []enginesim.Call) { r.Rows[0].Trimmed = 3 }},
		{"a version", "has the version 8", func(r *enginecheck.Run, _ []enginesim.Call) { r.Rows[0].Versions[3] = 8 }},
		{"a version that the engine never told", "has the version 7", func(_ *enginecheck.Run, c []enginesim.Call) { c[0].Version = "default" }},
		{"a finish reason", "the finish reason is stop", func(_ *enginecheck.Run, c []enginesim.Call) { c[1].Finish.Type = "length" }},
		{"finish reasons of too few calls", "finish reasons", func(r *enginecheck.Run, _ []enginesim.Call) {
			r.Rows[0].FinishReasons = r.Rows[0].FinishReasons[:1]
		}},
		{"a sampling parameter", "top_p is 0.9", func(_ *enginecheck.Run, c []enginesim.Call) {
			c[0].Sampling = []byte(`{"temperature":1,"top_p":1.0}`)
		}},
		{"a parameter that was not told", "received none", func(_ *enginecheck.Run, c []enginesim.Call) { c[0].Sampling = []byte(`{}`) }},
		{"a call of an agent that has rows", "in none of them", func(_ *enginecheck.Run, c []enginesim.Call) {
			c[7].Script, c[7].Agent = "tool", "a1 default"
		}},
		{"a row of nothing", "never sampled", func(_ *enginecheck.Run, c []enginesim.Call) { clear(c[1:]) }},
		{"columns of different lengths", "different lengths", func(r *enginecheck.Run, _ []enginesim.Call) {
			r.Rows[0].LossMask = r.Rows[0].LossMask[1:]
		}},
		{"spans beyond the row", "different lengths", func(r *enginecheck.Run, _ []enginesim.Call) { r.Rows[0].TurnOffsets[4] = 99 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			run, calls := world()
			tt.plant(run, calls)
			r := enginecheck.Compare(run, calls)
			if r.Wrongs == 0 || !strings.Contains(strings.Join(r.Wrong, "\n"), tt.want) {
				t.Errorf("found:\n%s\nwant %q", r, tt.want)
			}
		})
	}
}

// Compare accepts rows that claim less.
func TestCompareAllows(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		plant func(r *enginecheck.Run)
		check func(r *enginecheck.Result) bool
	}{
		{"an unverified row with another context", func(r *enginecheck.Run) {
			r.Rows[1].Verification, r.Rows[1].InputIDs[0] = "unverified", 99
		}, func(r *enginecheck.Result) bool {
			return r.NotClaimed == 1
		}},
		{"a failed sample without its tokens", func(r *enginecheck.Run) {
			r.Failures[0].Call, r.Failures[0].OutputIDs, r.Failures[0].Logprobs = -1, nil, nil
		}, func(r *enginecheck.Result) bool { return r.Named == enginecheck.Count{Calls: 1, Tokens: 1} }},
		{"a failed sample with its tokens", func(r *enginecheck.Run) {
			f := r.Failures[0]
			f.Call = -1
			f.OutputIDs, f.Logprobs = append([]int32{10, 11}, f.OutputIDs...), append(slices.Clone(r.Rows[2].Logprobs[3:]), f.Logprobs...)
			r.Rows = r.Rows[:2]
		}, func(r *enginecheck.Result) bool { return r.Quarantined.Calls == 2 }},
		{"nothing known of versions, ends and parameters", func(r *enginecheck.Run) {
			for _, row := range r.Rows {
				row.Versions, row.Temperature, row.TopP = nil, nil, nil
				for i := range row.FinishReasons {
					row.FinishReasons[i] = ""
				}
			}
		}, func(r *enginecheck.Result) bool { return r.InRows.Calls == 4 }},
		{"a row that was trimmed, and says so", func(r *enginecheck.Run) {
			row := r.Rows[2]
			row.InputIDs, row.LossMask, row.Logprobs, row.Versions, row.Trimmed = row.InputIDs[:4], row.LossMask[:4], row.Logprobs[:4], row.Versions[:4], 1
			row.TurnOffsets = []int32{0, 3, 4}
		}, func(r *enginecheck.Result) bool { return r.InRows.Calls == 4 }},
		{"an output that was trimmed as a whole, and says so", func(r *enginecheck.Run) {
			row := r.Rows[0]
			row.LossMask[3], row.LossMask[4], row.Logprobs[3], row.Logprobs[4] = 0, 0, 0, 0
			row.TurnOffsets, row.TurnRoles, row.FinishReasons = []int32{0, 6, 9}, []int8{0, 1}, row.FinishReasons[1:]
			row.Versions[3], row.Versions[4], row.Trimmed = -1, -1, 2
		}, func(r *enginecheck.Result) bool { return r.Named.Calls == 1 && r.InRows.Calls == 3 }},
		{"a row that was cut, and says so", func(r *enginecheck.Run) {
			r.Rows[2].Flags, r.Failures = []string{"cut"}, nil
		}, func(r *enginecheck.Result) bool { return r.Named.Calls == 1 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			run, calls := world()
			tt.plant(run)
			if r := enginecheck.Compare(run, calls); r.Wrongs != 0 || !tt.check(r) {
				t.Errorf("%s", r)
			}
		})
	}
}
