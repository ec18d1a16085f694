package enginecheck

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

type comparison struct {
	calls    []enginesim.Call
	used     []bool           // used[i] is true if calls[i] has been matched
	byPrompt map[uint64][]int // indexes of calls, by PromptSeed of their prompt
	res      *Result
}

// A stand is the known state of one agent in a run.
type stand struct {
	failed bool // true if a failure covers the whole sample
	cut    bool // true if the last row was cut at the row limit; later calls are then missing from the rows
	// trimmed is the number of tokens in outputs that were removed completely. It is n_trimmed
	// minus the number of tokens that are missing from spans.
	trimmed int
}

// whole reports whether every call of the agent must be in a row or a failure.
func (s *stand) whole() bool { return !s.failed && !s.cut }

// Compare compares all rows and failures of a run with the calls that its engines made. The
// parameter calls can include calls from other runs, but only if those calls belong to other
// agents.
func Compare(run *Run, calls []enginesim.Call) *Result {
	c := comparison{calls: calls, used: make([]bool, len(calls)), byPrompt: map[uint64][]int{}, res: newResult()}
	for i := range calls {
		if calls[i].Sampled() {
			seed := enginesim.PromptSeed(calls[i].InputIDs)
			c.byPrompt[seed] = append(c.byPrompt[seed], i)
		}
	}
	agents, samples := map[string]*stand{}, map[string]string{} // samples: rollout ids by sample key; "" if the sample has no rows
	of := func(agent string) *stand {
		if agents[agent] == nil {
			agents[agent] = new(stand)
		}
		return agents[agent]
	}
	for _, row := range run.Rows {
		of(row.AgentID).cut = slices.Contains(row.Flags, "cut")
		if id := samples[row.SampleKey]; id != "" && id != row.RolloutID {
			c.wrong("%s: the sample has rows from two rollouts, %s and %s", rowName(row), id, row.RolloutID)
		}
		samples[row.SampleKey] = row.RolloutID
		c.res.Trimmed += int(row.Trimmed)
		of(row.AgentID).trimmed += c.row(row)
	}
	for _, failure := range run.Failures {
		if failure.Call < 0 || len(failure.OutputIDs) == 0 { // the failure covers the whole sample, or its tokens were not kept
			of(failure.AgentID).failed = true
		} else {
			of(failure.AgentID)
		}
		samples[failure.SampleKey] += "" // also count a sample without rows
		c.failure(failure)
	}
	delete(agents, "")
	c.res.Samples, c.res.Rows, c.res.Failures = len(samples), len(run.Rows), len(run.Failures)
	c.rest(agents)
	return c.res
}

// row compares one row with the calls. It returns the row's n_trimmed minus the number of tokens
// that are missing from the row's spans.
func (c *comparison) row(row *sink.StoredRow) (trimmedMore int) {
	c.res.Grades[row.Verification]++
	c.res.Sources[row.PromptSource]++
	for _, flag := range row.Flags {
		c.res.Flags[flag]++
	}
	at := rowName(row)
	if n := len(row.InputIDs); n != len(row.LossMask) || n != len(row.Logprobs) || row.Versions != nil && n != len(row.Versions) ||
		len(row.TurnOffsets) != len(row.TurnRoles)+1 || row.TurnOffsets[0] != 0 || int(row.TurnOffsets[len(row.TurnRoles)]) != n {
		c.wrong("%s: the columns have different lengths", at)
		return 0
	}
	call, unscored, trimmed := 0, 0, 0
	for k, role := range row.TurnRoles {
		from, to := int(row.TurnOffsets[k]), int(row.TurnOffsets[k+1])
		if from > to {
			c.wrong("%s: span %d ends before it begins", at, k)
			return 0
		}
		if role != int8(tokenize.RoleAssistant) {
			if i := slices.Index(row.LossMask[from:to], 1); i >= 0 {
				c.wrong("%s: token %d was not sampled, but has mask 1", at, from+i)
			}
			continue
		}
		if missing, missed, ok := c.span(row, call, from, to); ok {
			trimmed += missing
			unscored += missed
		}
		call++
	}
	if trimmed > int(row.Trimmed) {
		c.wrong("%s: %d sampled tokens are missing, but n_trimmed is %d", at, trimmed, row.Trimmed)
	}
	if unscored != int(row.Unscored) {
		c.wrong("%s: %d sampled tokens have mask 0, but n_unscored is %d", at, unscored, row.Unscored)
	}
	return max(0, int(row.Trimmed)-trimmed)
}

// span compares the tokens [from, to) of a row with an unused engine call. The parameter call is
// the index of the span's call in the row. span returns the number of the engine call's tokens that
// the span lacks, and the number of tokens with mask 0.
func (c *comparison) span(row *sink.StoredRow, call, from, to int) (missing, unscored int, ok bool) {
	at := fmt.Sprintf("%s, call %d", rowName(row), call)
	c.res.Spans++
	fits := func(i int) bool { return c.sampled(i, row, from, to) == "" }
	if row.Verification == tokenize.Unverified.String() {
		c.res.NotClaimed++
	} else {
		context := row.InputIDs[:from]
		candidates := c.byPrompt[enginesim.PromptSeed(context)]
		fits = func(i int) bool {
			return slices.Contains(candidates, i) && slices.Equal(c.calls[i].InputIDs, context) && c.sampled(i, row, from, to) == ""
		}
	}
	found := c.find(to-from, fits)
	if found < 0 {
		c.res.Astray++
		c.wrong("%s: %s", at, c.explain(row, from, to))
		return 0, 0, false
	}
	c.used[found] = true
	truth := &c.calls[found]
	c.res.InRows.add(truth)
	for i := from; i < to; i++ {
		if row.LossMask[i] == 0 {
			unscored++
			if p := truth.Logprobs[i-from]; tokenize.UsableLogprob(p) {
				c.wrong("%s: token %d has mask 0, but the engine returned the log-probability %v", at, i, p)
			}
		}
	}
	c.facts(at, row, call, from, to, truth)
	return len(truth.OutputIDs) - (to - from), unscored, true
}

// sampled describes how the span differs from the output of calls[i]. It returns "" if the span
// matches. The span can lack the end of the output.
func (c *comparison) sampled(i int, row *sink.StoredRow, from, to int) string {
	truth := &c.calls[i]
	if to-from > len(truth.OutputIDs) || to == from {
		return fmt.Sprintf("%d tokens, but the engine sampled %d", to-from, len(truth.OutputIDs))
	}
	for j := from; j < to; j++ {
		switch {
		case row.InputIDs[j] != truth.OutputIDs[j-from]:
			return fmt.Sprintf("token %d is %d, but the engine sampled %d", j, row.InputIDs[j], truth.OutputIDs[j-from])
		case row.LossMask[j] == 1 && math.Float32bits(row.Logprobs[j]) != math.Float32bits(truth.Logprobs[j-from]):
			return fmt.Sprintf("token %d has the log-probability %v, but the engine's is %v", j, row.Logprobs[j], truth.Logprobs[j-from])
		case row.LossMask[j] == 0 && math.Float32bits(row.Logprobs[j]) != 0:
			return fmt.Sprintf("token %d has mask 0 and the log-probability %v", j, row.Logprobs[j])
		}
	}
	return ""
}

func (c *comparison) facts(at string, row *sink.StoredRow, call, from, to int, truth *enginesim.Call) {
	if row.Versions != nil {
		if v := row.Versions[from]; v >= 0 {
			c.res.Versions[strconv.Itoa(int(v))]++
		}
		want, err := strconv.ParseInt(truth.Version, 10, 32)
		for i := from; i < to; i++ {
			if v := int64(row.Versions[i]); v != -1 && (err != nil || v != want) {
				c.wrong("%s: token %d has the version %d, but the engine's was %s", at, i, v, truth.Version)
				break
			}
		}
	}
	switch {
	case call >= len(row.FinishReasons):
		c.wrong("%s: the row has %d finish reasons", at, len(row.FinishReasons))
	case row.FinishReasons[call] != "" && row.FinishReasons[call] != truth.Finish.Type:
		c.wrong("%s: the finish reason is %s, but the engine reported %s", at, row.FinishReasons[call], truth.Finish.Type)
	}
	var temperature, topP *float32
	var topK, maxNew *int32
	var params map[string]json.RawMessage
	if json.Unmarshal(truth.Sampling, &params) != nil {
		return
	}
	read := func(v any, names ...string) {
		for _, name := range names {
			if raw, ok := params[name]; ok && json.Unmarshal(raw, v) == nil {
				return
			}
		}
	}
	read(&temperature, "temperature")
	read(&topP, "top_p")
	read(&topK, "top_k")
	read(&maxNew, "max_new_tokens", "max_completion_tokens", "max_tokens")
	differ(c, at, "temperature", row.Temperature, temperature)
	differ(c, at, "top_p", row.TopP, topP)
	differ(c, at, "top_k", row.TopK, topK)
	differ(c, at, "max_new_tokens", row.MaxNewTokens, maxNew)
}

// differ records an error if a parameter in a row differs from the parameter that the engine
// received.
func differ[T comparable](c *comparison, at, name string, row, told *T) {
	if row != nil {
		c.res.Told[fmt.Sprintf("%s %v", name, *row)]++
	}
	if row == nil || told != nil && *row == *told {
		return
	}
	if told == nil {
		c.wrong("%s: %s is %v, but the engine received none", at, name, *row)
		return
	}
	c.wrong("%s: %s is %v, but the engine received %v", at, name, *row, *told)
}

func (c *comparison) explain(row *sink.StoredRow, from, to int) string {
	context := row.InputIDs[:from]
	for i := range c.calls {
		if c.calls[i].Sampled() && slices.Equal(c.calls[i].InputIDs, context) {
			if how := c.sampled(i, row, from, to); how != "" {
				return fmt.Sprintf("under the prompt of engine call %d: %s", c.calls[i].N, how)
			}
			return fmt.Sprintf("engine call %d is already in another span", c.calls[i].N)
		}
	}
	for i := range c.calls {
		if how := c.sampled(i, row, from, to); c.calls[i].Sampled() && how == "" {
			truth := &c.calls[i]
			n := 0
			for n < len(context) && n < len(truth.InputIDs) && context[n] == truth.InputIDs[n] {
				n++
			}
			return fmt.Sprintf("the context has %d tokens, but engine call %d (script %s, step %d), which sampled these tokens, received %d; they differ at token %d: %v and %v",
				len(context), truth.N, truth.Script, truth.Step, len(truth.InputIDs), n, some(context, n), some(truth.InputIDs, n))
		}
	}
	return "the engine never sampled these tokens"
}

func some(ids []int32, n int) []int32 { return ids[min(n, len(ids)):min(n+8, len(ids))] }

// find returns the index of an unused call that fits. It prefers a call with n sampled tokens. It
// returns -1 if no call fits.
func (c *comparison) find(n int, fits func(i int) bool) int {
	other := -1
	for i := range c.calls {
		if c.used[i] || !c.calls[i].Sampled() || !fits(i) {
			continue
		}
		if len(c.calls[i].OutputIDs) == n {
			return i
		}
		if other < 0 {
			other = i
		}
	}
	return other
}

func (c *comparison) failure(f *sink.StoredFailure) {
	name := f.Class
	if f.Reason != "" {
		name += "/" + f.Reason
	}
	c.res.Reasons[name]++
	for at := 0; at < len(f.OutputIDs); {
		i := c.find(len(f.OutputIDs)-at, func(i int) bool { return c.holds(f, at, &c.calls[i]) })
		if i < 0 {
			c.wrong("failure of %s sample %d (%s, call %d): the engine did not sample the tokens from index %d on, or they are also elsewhere", f.TaskID, f.SampleIndex, name, f.Call, at)
			return
		}
		c.used[i] = true
		c.res.Quarantined.add(&c.calls[i])
		at += len(c.calls[i].OutputIDs)
	}
}

// holds reports whether the failure contains the tokens of the engine call, starting at index at.
func (c *comparison) holds(f *sink.StoredFailure, at int, truth *enginesim.Call) bool {
	n := len(truth.OutputIDs)
	if at+n > len(f.OutputIDs) || !slices.Equal(f.OutputIDs[at:at+n], truth.OutputIDs) {
		return false
	}
	if len(f.Logprobs) != len(f.OutputIDs) {
		return true // the cause of this failure is a wrong number of log-probabilities
	}
	return slices.EqualFunc(f.Logprobs[at:at+n], truth.Logprobs, func(a, b float32) bool {
		return math.Float32bits(a) == math.Float32bits(b) || math.IsNaN(float64(a)) && (math.IsNaN(float64(b)) || math.IsInf(float64(b), 0))
	})
}

func (c *comparison) rest(agents map[string]*stand) {
	for i := range c.calls {
		truth := &c.calls[i]
		agent, _, _ := strings.Cut(truth.Agent, " ")
		switch {
		case !truth.Sampled():
			c.res.Refused++
		case c.used[i]:
		case truth.Script == "":
			c.res.Other.add(truth)
		case agents[agent] != nil && agents[agent].trimmed >= len(truth.OutputIDs):
			agents[agent].trimmed -= len(truth.OutputIDs)
			c.res.Named.add(truth)
		case truth.Status == 200 && agents[agent] != nil && agents[agent].whole():
			c.wrong("engine call %d (script %s, step %d, %s): its agent has rows or failures, but the call's %d tokens are in none of them", truth.N, truth.Script, truth.Step, agent, len(truth.OutputIDs))
		case agents[agent] != nil && !agents[agent].whole():
			c.res.Named.add(truth)
		default:
			c.res.Lost.add(truth)
		}
	}
	for agent, s := range agents {
		if s.trimmed > 0 {
			c.wrong("%s: n_trimmed counts %d tokens more than are missing from the rows", agent, s.trimmed)
		}
	}
}

func rowName(row *sink.StoredRow) string {
	return fmt.Sprintf("%s sample %d row %d/%d (%s, %s)", row.TaskID, row.SampleIndex, row.SegmentIndex, row.SegmentCount, row.Verification, row.PromptSource)
}
