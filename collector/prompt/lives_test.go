package prompt_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

type plan struct {
	name  string
	sends []int // calls of each send
	tools int   // of the agent
	words int   // of each thought and tool result; 0: 9
	// keep leaves the text before tool calls in later prompts, as for reasoners.
	keep bool
	// version is the engine's weight version; empty: default.
	version string
	// cut is the send, counted from 1, whose last call ends at the engine's token limit.
	cut      int
	block    bool // the agent has a memory block
	override bool // the requests override the model
	talk     bool // in a conversation
}

// madeUp generates a life of several sends, with all server records in memory. Its answers agree
// with the records, and each of its calls has a trace.
func madeUp(tb testing.TB, model *prompt.Model, seed uint64, of plan) *knownLife {
	tb.Helper()
	r := rand.New(rand.NewPCG(seed, uint64(len(of.sends))))
	words := cmp.Or(of.words, 9)
	tools := []any{}
	for i := range of.tools {
		name := [...]string{"search", "print", "count"}[i]
		tools = append(tools, map[string]any{"name": name, "json_schema": json.RawMessage(fmt.Sprintf(
			`{"name":%q,"description":"It will %s the files.","parameters":{"type":"object","properties":{"query":{"type":"string"},"limit":{"type":"integer"}},"required":["query"]}}`, name, name))})
	}
	blocks := []any{}
	if of.block {
		blocks = append(blocks, map[string]any{"id": "block-1", "label": "human", "value": "x"})
	}
	state := must(json.Marshal(map[string]any{
		"llm_config": map[string]any{"put_inner_thoughts_in_kwargs": false, "enable_reasoner": of.keep, "max_reasoning_tokens": 0},
		"tools":      tools, "blocks": blocks,
	}))(tb)
	agent := must(letta.Read[letta.AgentState](string(state)))(tb)
	e := &record.Rollout{Agent: agent, SystemText: prose(r, 40)}
	if of.talk {
		e.Conversation = &letta.Conversation{ID: "conv-1"}
	}
	m := &memory{traces: map[string]*letta.ProviderTrace{}, agent: agent, system: e.SystemText}
	known := &knownLife{name: of.name, memory: m, reply: &prompt.Answered{Evidence: e}}
	for i, calls := range of.sends {
		run := fmt.Sprintf("run-%d", i+1)
		request := &letta.LettaRequest{Messages: letta.InputMessages{letta.UserText(prose(r, 12))}}
		if of.override {
			request.OverrideModel = new("sglang//models/qwen3")
		}
		var turns []tokenize.Turn
		var steps []letta.Step
		var said letta.Messages
		for k := range calls {
			step := fmt.Sprintf("step-%d-%d", i+1, k+1)
			say := func(m letta.Message) {
				m.StepID, m.RunID = step, run
				said = append(said, m)
			}
			text := "<think>\n" + prose(r, words) + "\n</think>\n\n" + prose(r, 6)
			output, last := text, k == calls-1
			call, args := fmt.Sprintf("call_%d_%d", i, k), fmt.Sprintf(`{"query": %q, "limit": %d}`, prose(r, 3), k)
			if !last {
				output += "\n<tool_call>\n{\"name\": \"search\", \"arguments\": " + args + "}\n</tool_call>"
				say(letta.Message{Type: letta.TypeToolCall, ToolCalls: []letta.ToolCall{{Name: "search", Arguments: args, ToolCallID: call}}})
			} else {
				say(letta.Message{Type: letta.TypeAssistant, Content: letta.Content{Text: text}})
			}
			if !last || of.cut != i+1 {
				output += "<|im_end|>"
			}
			ids := encode(tb, model, output)
			turns = append(turns, tokenize.Turn{Role: tokenize.RoleAssistant, OutputIDs: ids, Logprobs: slices.Repeat([]float32{-0.5}, len(ids)), Content: text, IDMismatch: -1})
			steps = append(steps, letta.Step{ID: step, CompletionTokens: new(int64(len(ids)))})
			if !last {
				result, _ := json.MarshalIndent(map[string]string{"status": "OK", "message": prose(r, words)}, "", "  ")
				turns = append(turns, tokenize.Turn{Role: tokenize.RoleTool, Content: string(result), ToolName: "search", IDMismatch: -1})
				say(letta.Message{Type: letta.TypeToolReturn, ToolReturns: []letta.ToolReturn{{ToolCallID: call, Content: letta.Content{Text: "x"}, Status: "success"}}})
			}
		}
		stored := append(letta.Messages{{Type: letta.TypeUser, RunID: run, Content: letta.Content{Text: "as sent"}}}, said...)
		m.steps, m.messages = append(m.steps, steps), append(m.messages, stored)
		e.Sends = append(e.Sends, record.Send{Request: request, Response: &letta.LettaResponse{Messages: said}, RunID: run})
		known.reply.Sends = append(known.reply.Sends, collector.Send{Turns: turns, RunID: run, StopReason: "end_turn"})
	}
	known.countAll(tb, model)
	known.traceAll(tb, of)
	known.findTruths(tb, model)
	return known
}

// countAll sets the steps' counts from a first run, and the answers' sums.
func (known *knownLife) countAll(tb testing.TB, model *prompt.Model) {
	tb.Helper()
	for _, steps := range known.memory.steps {
		for k := range steps {
			steps[k].PromptTokens = new(int64(0))
		}
	}
	tried := known.rebuilt(tb, prompt.NewRebuilder(model, true, false))
	n := 0
	for i, steps := range known.memory.steps {
		u := letta.UsageStatistics{StepCount: int32(len(steps))}
		for k := range steps {
			if _, err := fmt.Sscanf(tried[n].Note, "stored: the rebuilt prompt has %d tokens", steps[k].PromptTokens); err != nil {
				tb.Fatalf("call %d: %q", n, tried[n].Note)
			}
			n++
			u.PromptTokens += *steps[k].PromptTokens
			u.CompletionTokens += *steps[k].CompletionTokens
			u.ContextTokens = new(*steps[k].PromptTokens + *steps[k].CompletionTokens)
		}
		known.reply.Evidence.Sends[i].Response.Usage = u
	}
}

func (known *knownLife) traceAll(tb testing.TB, of plan) {
	tb.Helper()
	e := known.reply.Evidence
	tools := []any{}
	for i := range e.Agent.Tools {
		tools = append(tools, map[string]any{"type": "function", "function": json.RawMessage(e.Agent.Tools[i].JSONSchema)})
	}
	history := []any{map[string]any{"role": "system", "content": e.SystemText}}
	for i, steps := range known.memory.steps {
		history = append(history, map[string]any{"role": "user", "content": letta.InputText(e.Sends[i].Request.Messages[0].(*letta.MessageCreate).Content)})
		k := 0
		for j := range known.reply.Sends[i].Turns {
			turn := &known.reply.Sends[i].Turns[j]
			if turn.Role == tokenize.RoleTool {
				history = append(history, map[string]any{"role": "tool", "content": turn.Content, "tool_call_id": fmt.Sprintf("call_%d_%d", i, k-1)})
				continue
			}
			known.memory.traces[steps[k].ID] = known.traced(tb, of, history, tools, turn, *steps[k].PromptTokens, of.cut == i+1 && k == len(steps)-1)
			said := map[string]any{"role": "assistant", "content": turn.Content}
			for _, m := range known.memory.messages[i] {
				if m.StepID != steps[k].ID || m.Type != letta.TypeToolCall {
					continue
				}
				c := m.ToolCalls[0]
				said["tool_calls"] = []any{map[string]any{"id": c.ToolCallID, "type": "function", "function": map[string]any{"name": c.Name, "arguments": c.Arguments}}}
				if e.Scrubs(e.Sends[i].Request) {
					said["content"] = nil
				}
			}
			history = append(history, said)
			k++
		}
	}
}

func (*knownLife) traced(tb testing.TB, of plan, history, tools []any, turn *tokenize.Turn, counted int64, cut bool) *letta.ProviderTrace {
	tb.Helper()
	body := map[string]any{"messages": history}
	if len(tools) > 0 {
		body["tools"] = tools
	}
	request := must(json.Marshal(body))(tb)
	finish, version := map[string]any{"type": "stop", "matched": 151645}, "default"
	if cut {
		finish = map[string]any{"type": "length", "length": len(turn.OutputIDs)}
	}
	if of.version != "" {
		version = of.version
	}
	logprobs := make([][3]any, len(turn.OutputIDs))
	for i, id := range turn.OutputIDs {
		logprobs[i] = [3]any{turn.Logprobs[i], id, nil}
	}
	response := must(json.Marshal(map[string]any{
		"text": turn.Content, "output_ids": turn.OutputIDs,
		"meta_info": map[string]any{"finish_reason": finish, "weight_version": version, "prompt_tokens": counted, "output_token_logprobs": logprobs},
	}))(tb)
	return traceOf(tb, string(request), string(response))
}

// findTruths sets the true prompts to those that the records prove.
func (known *knownLife) findTruths(tb testing.TB, model *prompt.Model) {
	tb.Helper()
	calls := known.rebuilt(tb, prompt.NewRebuilder(model, true, false))
	for k := range calls {
		if calls[k].Grade != tokenize.CountVerified {
			tb.Fatalf("%s: call %d is %v: %s", known.name, k, calls[k].Grade, calls[k].Note)
		}
		known.truths = append(known.truths, truth{prompt: calls[k].PromptIDs, output: calls[k].OutputIDs, hasTrace: true})
	}
}

// clone returns a copy of the life whose agent, requests, answers, turns and records can be changed.
func (known *knownLife) clone() *knownLife {
	out := *known
	e, agent := *known.reply.Evidence, *known.reply.Evidence.Agent
	agent.Tools = slices.Clone(agent.Tools)
	e.Agent, e.Sends = &agent, slices.Clone(e.Sends)
	for i := range e.Sends {
		request, answer := *e.Sends[i].Request, *e.Sends[i].Response
		request.Messages, answer.Messages = slices.Clone(request.Messages), slices.Clone(answer.Messages)
		for k := range answer.Messages {
			m := &answer.Messages[k]
			m.ToolCalls, m.ToolReturns = slices.Clone(m.ToolCalls), slices.Clone(m.ToolReturns)
		}
		e.Sends[i].Request, e.Sends[i].Response = &request, &answer
	}
	reply := *known.reply
	reply.Evidence, reply.Sends = &e, slices.Clone(reply.Sends)
	for i := range reply.Sends {
		reply.Sends[i].Turns = slices.Clone(reply.Sends[i].Turns)
	}
	out.reply = &reply
	m := *known.memory
	m.steps, m.messages, m.traces = slices.Clone(m.steps), slices.Clone(m.messages), maps.Clone(m.traces)
	for i := range m.steps {
		m.steps[i], m.messages[i] = slices.Clone(m.steps[i]), slices.Clone(m.messages[i])
	}
	out.memory = &m
	return &out
}
