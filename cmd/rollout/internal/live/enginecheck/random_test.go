package enginecheck_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/live/enginecheck"
	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/sink"
)

// randomWorld returns agents whose calls continue the row before or fork, with few different ids,
// so that outputs and prompts are often equal. Some calls are quarantined.
func randomWorld(r *rand.Rand) (*enginecheck.Run, []enginesim.Call) {
	run, calls := new(enginecheck.Run), []enginesim.Call(nil)
	ids := func(n int) []int32 {
		out := make([]int32, n)
		for i := range out {
			out[i] = int32(r.IntN(4))
		}
		return out
	}
	for a := range 1 + r.IntN(4) {
		agent := fmt.Sprintf("agent-%d", a)
		var row *sink.StoredRow
		end := func() {
			if row != nil {
				run.Rows = append(run.Rows, row)
			}
			row = nil
		}
		for range 1 + r.IntN(5) {
			prompt, added := append([]int32{int32(100 + a)}, ids(1+r.IntN(4))...), []int32(nil)
			if row != nil && r.IntN(3) > 0 {
				added = ids(1 + r.IntN(3))
				prompt = append(slices.Clone(row.InputIDs), added...)
			}
			c := enginesim.Call{N: len(calls) + 1, Status: 200, Script: "x", Agent: agent, InputIDs: prompt, OutputIDs: ids(1 + r.IntN(3)), Finish: enginesim.Finish{Type: "stop"}, Version: "5", Sampling: []byte(`{}`)}
			seed := enginesim.PromptSeed(prompt)
			for i, id := range c.OutputIDs {
				c.Logprobs = append(c.Logprobs, min(enginesim.Logprob(seed, i, id), -1e-6))
			}
			calls = append(calls, c)
			if r.IntN(6) == 0 {
				end()
				run.Failures = append(run.Failures, &sink.StoredFailure{SampleKey: agent, AgentID: agent, Class: "no_prompt", Call: int32(len(calls)), OutputIDs: c.OutputIDs, Logprobs: slices.Clone(c.Logprobs)})
				continue
			}
			if added == nil {
				end()
				row = &sink.StoredRow{SampleKey: agent, AgentID: agent, Verification: "exact", TurnOffsets: []int32{0}}
				extend(row, 0, prompt, nil)
			} else {
				extend(row, 2, added, nil)
			}
			extend(row, 1, c.OutputIDs, c.Logprobs)
			row.FinishReasons = append(row.FinishReasons, "stop")
		}
		end()
	}
	return run, calls
}

func extend(row *sink.StoredRow, role int8, ids []int32, logprobs []float32) {
	for i, id := range ids {
		mask, p, version := int8(0), float32(0), int32(-1)
		if logprobs != nil {
			mask, p, version = 1, logprobs[i], 5
		}
		row.InputIDs, row.LossMask, row.Logprobs, row.Versions = append(row.InputIDs, id), append(row.LossMask, mask), append(row.Logprobs, p), append(row.Versions, version)
	}
	row.TurnOffsets, row.TurnRoles = append(row.TurnOffsets, int32(len(row.InputIDs))), append(row.TurnRoles, role)
}

// Compare accepts random runs, and finds one error planted in each.
func TestCompareRandom(t *testing.T) {
	t.Parallel()
	planted := 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 9))
		run, calls := randomWorld(r)
		if res := enginecheck.Compare(run, calls); res.Wrongs > 0 || res.Lost.Calls > 0 || res.InRows.Calls+res.Quarantined.Calls != len(calls) {
			t.Fatalf("seed %d: %d calls\n%s", seed, len(calls), res)
		}
		if len(run.Rows) == 0 {
			continue
		}
		row := run.Rows[r.IntN(len(run.Rows))]
		at := r.IntN(len(row.InputIDs))
		var what string
		switch kind := r.IntN(7); {
		case kind == 0:
			what = "an id"
			row.InputIDs[at] += 50
		case kind == 1 && row.LossMask[at] == 1:
			what = "a bit of a log-probability"
			row.Logprobs[at] = math.Float32frombits(math.Float32bits(row.Logprobs[at]) ^ 1)
		case kind == 2:
			what = "a mask"
			row.LossMask[at] ^= 1
		case kind == 3:
			what = "a row twice"
			run.Rows = append(run.Rows, row)
		case kind == 4 && len(run.Rows) > 1:
			i := r.IntN(len(run.Rows))
			if !slices.ContainsFunc(run.Rows, func(o *sink.StoredRow) bool { return o != run.Rows[i] && o.AgentID == run.Rows[i].AgentID }) {
				continue // the agent is then in no row, so its calls count as lost
			}
			what = "a row missing"
			run.Rows = slices.Delete(run.Rows, i, i+1)
		case kind == 5 && row.LossMask[at] == 1:
			what = "a version"
			row.Versions[at] = 6
		case kind == 6 && len(run.Failures) > 0:
			what = "a failure's token"
			run.Failures[0].OutputIDs = append(slices.Clone(run.Failures[0].OutputIDs), 1)
			run.Failures[0].Logprobs = append(run.Failures[0].Logprobs, -77)
		default:
			continue
		}
		planted++
		if res := enginecheck.Compare(run, calls); res.Wrongs == 0 {
			t.Errorf("seed %d: %s at %d of %v was not found\n%s", seed, what, at, row.InputIDs, res)
		}
	}
	if planted < 1500 {
		t.Errorf("only %d wrong things were planted", planted)
	}
}
