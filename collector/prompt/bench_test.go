package prompt_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// rollout generates a life of one send with its records in memory. It has the given number of
// calls, each but the last with one tool call, and about the given number of tokens. keep leaves
// the text before tool calls in later prompts, as for reasoners.
func rollout(tb testing.TB, model *prompt.Model, seed uint64, calls, tokens int, keep bool) *knownLife {
	tb.Helper()
	r := rand.New(rand.NewPCG(seed, uint64(calls)))
	agent, err := letta.Read[letta.AgentState](`{"llm_config":{"put_inner_thoughts_in_kwargs":false,"enable_reasoner":` + fmt.Sprint(keep) + `,"max_reasoning_tokens":0},
		"tools":[{"name":"search","json_schema":{"name":"search","description":"Search the files.","parameters":{"type":"object","properties":{"query":{"type":"string","description":"what to look for"},"limit":{"type":"integer"}},"required":["query"]}}}]}`)
	if err != nil {
		tb.Fatal(err)
	}
	m := &memory{traces: map[string]*letta.ProviderTrace{}}
	encode := func(text string) []int32 {
		ids, err := model.Tokenizer.AppendTokens(nil, text)
		if err != nil {
			tb.Fatal(err)
		}
		return ids
	}
	words := tokens * 2 / (9 * calls) // of each of two texts: a word with its separator is some 2.2 tokens
	var turns []tokenize.Turn
	var steps []letta.Step
	var stored letta.Messages
	completions := int64(0)
	for k := range calls {
		step := fmt.Sprintf("step-%d", k)
		text := "<think>\n" + prose(r, words) + "\n</think>\n\n" + prose(r, 8)
		said := text
		if k < calls-1 {
			args := fmt.Sprintf(`{"query": %q, "limit": %d}`, prose(r, 6), k)
			said += "\n<tool_call>\n{\"name\": \"search\", \"arguments\": " + args + "}\n</tool_call>"
			stored = append(stored, letta.Message{
				Type: letta.TypeToolCall, StepID: step, RunID: "run-1",
				ToolCalls: []letta.ToolCall{{Name: "search", Arguments: args, ToolCallID: fmt.Sprintf("call_%d", k)}},
			})
		}
		ids := encode(said + "<|im_end|>")
		logprobs := make([]float32, len(ids))
		for i := range logprobs {
			logprobs[i] = -0.5
		}
		turns = append(turns, tokenize.Turn{Role: tokenize.RoleAssistant, OutputIDs: ids, Logprobs: logprobs, Content: text, IDMismatch: -1})
		completions += int64(len(ids))
		steps = append(steps, letta.Step{ID: step, CompletionTokens: new(int64(len(ids))), PromptTokens: new(int64(0))})
		if k < calls-1 {
			result, _ := json.MarshalIndent(map[string]string{"status": "OK", "message": prose(r, words)}, "", "  ")
			turns = append(turns, tokenize.Turn{Role: tokenize.RoleTool, Content: string(result), ToolName: "search", IDMismatch: -1})
			stored = append(stored, letta.Message{
				Type: letta.TypeToolReturn, StepID: step, RunID: "run-1",
				ToolReturns: []letta.ToolReturn{{ToolCallID: fmt.Sprintf("call_%d", k), Content: letta.Content{Text: "x"}, Status: "success"}},
			})
		} else {
			stored = append(stored, letta.Message{Type: letta.TypeAssistant, StepID: step, RunID: "run-1", Content: letta.Content{Text: text}})
		}
	}
	m.steps, m.messages = [][]letta.Step{steps}, []letta.Messages{stored}
	e := &record.Rollout{Agent: agent, SystemText: prose(r, 150), Sends: []record.Send{{
		Request:  &letta.LettaRequest{Messages: letta.InputMessages{letta.UserText(prose(r, 40))}},
		Response: &letta.LettaResponse{Messages: stored}, RunID: "run-1",
	}}}
	m.agent, m.system = e.Agent, e.SystemText
	known := &knownLife{memory: m, reply: &prompt.Answered{Evidence: e, Reply: collector.Reply{Sends: []collector.Send{{Turns: turns, RunID: "run-1"}}}}}

	// A first run provides the server's counts.
	tried, err := prompt.NewRebuilder(model, true, false).Prompts(tb.Context(), m, known.reply)
	if err != nil {
		tb.Fatal(err)
	}
	sum := int64(0)
	for k := range tried {
		if _, err := fmt.Sscanf(tried[k].Note, "stored: rebuilt %d tokens", steps[k].PromptTokens); err != nil {
			tb.Fatalf("call %d: %q", k, tried[k].Note)
		}
		sum += *steps[k].PromptTokens
	}
	traceLast(tb, known, keep)
	e.Sends[0].Response.Usage = letta.UsageStatistics{PromptTokens: sum, CompletionTokens: completions, StepCount: int32(calls), ContextTokens: new(*steps[calls-1].PromptTokens + *steps[calls-1].CompletionTokens)}
	known.reply.Sends[0].Usage = collector.Usage{PromptTokens: sum, CompletionTokens: completions, Steps: int32(calls)}
	return known
}

// traceLast adds the trace of a generated rollout's last call.
func traceLast(tb testing.TB, known *knownLife, keep bool) {
	tb.Helper()
	e, turns, steps := known.reply.Evidence, known.reply.Sends[0].Turns, known.memory.steps[0]
	messages := []any{
		map[string]any{"role": "system", "content": e.SystemText},
		map[string]any{"role": "user", "content": letta.InputText(e.Sends[0].Request.Messages[0].(*letta.MessageCreate).Content)},
	}
	calls := map[string][]letta.ToolCall{}
	for _, m := range known.memory.messages[0] {
		if m.Type == letta.TypeToolCall {
			calls[m.StepID] = m.ToolCalls
		}
	}
	last := &turns[len(turns)-1]
	for i, k := 0, 0; i < len(turns)-1; i++ {
		t := &turns[i]
		if t.Role == tokenize.RoleTool {
			messages = append(messages, map[string]any{"role": "tool", "content": t.Content, "tool_call_id": fmt.Sprintf("call_%d", k-1)})
			continue
		}
		m := map[string]any{"role": "assistant", "content": t.Content}
		if !keep {
			m["content"] = nil
		}
		for _, c := range calls[steps[k].ID] {
			m["tool_calls"] = []any{map[string]any{"id": c.ToolCallID, "type": "function", "function": map[string]any{"name": c.Name, "arguments": c.Arguments}}}
		}
		messages = append(messages, m)
		k++
	}
	logprobs := make([][3]any, len(last.OutputIDs))
	for i, id := range last.OutputIDs {
		logprobs[i] = [3]any{last.Logprobs[i], id, nil}
	}
	request, err := json.Marshal(map[string]any{"messages": messages, "tools": []any{map[string]any{"type": "function", "function": json.RawMessage(e.Agent.Tools[0].JSONSchema)}}})
	if err != nil {
		tb.Fatal(err)
	}
	response, err := json.Marshal(map[string]any{
		"text": last.Content, "output_ids": last.OutputIDs,
		"meta_info": map[string]any{"finish_reason": map[string]any{"type": "stop", "matched": 151645}, "output_token_logprobs": logprobs},
	})
	if err != nil {
		tb.Fatal(err)
	}
	known.memory.traces[steps[len(steps)-1].ID] = traceOf(tb, string(request), string(response))
}

func traceOf(tb testing.TB, request, response string) *letta.ProviderTrace {
	tb.Helper()
	trace, err := letta.Read[letta.ProviderTrace](`{"request_json":` + request + `,"response_json":` + response + "}")
	if err != nil {
		tb.Fatal(err)
	}
	return trace
}

var syllables = [...]string{"ba", "con", "der", "fi", "gre", "hol", "in", "ju", "ka", "lor", "mun", "ne", "op", "pra", "qui", "rest", "sta", "tion", "ul", "ver", "wex", "yl", "zon"}

func prose(r *rand.Rand, n int) string {
	list := [...]string{
		"the", "a", "of", "server", "token", "and", "call", "which", "prompt", "is", "renders", "exactly", "history", "was", "in",
		"func", "return", "if", "nil", "err", "count", "2048", "0.5", "path/to/file.go", "however", "because", "model", "sampled", "tools", "we",
	}
	var s strings.Builder
	for i := range n {
		if i > 0 {
			s.WriteString([...]string{" ", " ", " ", " ", ", ", ". ", "\n"}[r.IntN(7)])
		}
		if r.IntN(4) > 0 {
			s.WriteString(list[r.IntN(len(list))])
			continue
		}
		for range 1 + r.IntN(3) { // a word that the tokenizer has not seen before
			s.WriteString(syllables[r.IntN(len(syllables))])
		}
	}
	return s.String()
}

// BenchmarkRebuild renders, encodes and verifies all prompts of a rollout.
func BenchmarkRebuild(b *testing.B) {
	model, err := qwen3()
	if err != nil {
		b.Fatal(err)
	}
	for _, bench := range []struct {
		calls         int
		keep, answers bool
	}{{10, true, false}, {10, true, true}, {10, false, false}, {5, true, false}, {2, true, false}, {2, true, true}} {
		b.Run(fmt.Sprintf("calls=%d/tokens=8k/reasoning=%v/answers=%v", bench.calls, bench.keep, bench.answers), func(b *testing.B) {
			var lives []*knownLife
			for seed := range uint64(8) {
				lives = append(lives, rollout(b, model, seed, bench.calls, 7500+7500/bench.calls, bench.keep))
			}
			r := prompt.NewRebuilder(model, true, true)
			if bench.answers {
				r.Answers()
			}
			b.ReportAllocs()
			tokens, n := 0, 0
			for b.Loop() {
				known := lives[n%len(lives)]
				n++
				calls, err := r.Prompts(b.Context(), known.memory, known.reply)
				if err != nil {
					b.Fatal(err)
				}
				last := &calls[len(calls)-1]
				if last.Grade != tokenize.CountVerified {
					b.Fatal(last.Note)
				}
				tokens = len(last.PromptIDs) + len(last.OutputIDs)
			}
			b.ReportMetric(float64(tokens), "tokens")
		})
	}
}
