package prompt_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/tokenize"
)

// A lie changes one field of the answer to send i of a life.
type lie struct {
	name string
	tell func(known *knownLife, i int) bool // returns false if the life has no such field
	// told means that the answer must be rejected: the records are fetched.
	told bool
	// unread means that the change is noticed only if the trace of the send is read.
	unread bool
	// traced means that a trace is changed, and believed if nothing contradicts it.
	traced bool
}

func usageLies() (all []lie) {
	add := func(name string, change func(u *letta.UsageStatistics, n int64)) {
		for _, n := range []int64{-1, 1} {
			all = append(all, lie{fmt.Sprintf("%s %+d", name, n), func(known *knownLife, i int) bool {
				change(&known.reply.Evidence.Sends[i].Response.Usage, n)
				return true
			}, true, false, false})
		}
	}
	add("prompt tokens", func(u *letta.UsageStatistics, n int64) { u.PromptTokens += n })
	add("completion tokens", func(u *letta.UsageStatistics, n int64) { u.CompletionTokens += n })
	add("steps", func(u *letta.UsageStatistics, n int64) { u.StepCount += int32(n) })
	add("context tokens", func(u *letta.UsageStatistics, n int64) { u.ContextTokens = new(*u.ContextTokens + n) })
	add("prompt and context tokens", func(u *letta.UsageStatistics, n int64) {
		u.PromptTokens += n
		u.ContextTokens = new(*u.ContextTokens + n)
	})
	return append(all, lie{"no counts", func(known *knownLife, i int) bool {
		known.reply.Evidence.Sends[i].Response.Usage = letta.UsageStatistics{}
		return true
	}, true, false, false})
}

func messageLies(j int) (all []lie) {
	add := func(name string, told bool, change func(list letta.Messages) letta.Messages) {
		all = append(all, lie{fmt.Sprintf("message %d %s", j, name), func(known *knownLife, i int) bool {
			list := &known.reply.Evidence.Sends[i].Response.Messages
			if j >= len(*list) {
				return false
			}
			changed := change(*list)
			if changed == nil {
				return false
			}
			*list = changed
			return true
		}, told, name == "of another step", false})
	}
	of := func(change func(m *letta.Message) bool) func(letta.Messages) letta.Messages {
		return func(list letta.Messages) letta.Messages {
			if !change(&list[j]) {
				return nil
			}
			return list
		}
	}
	ofCall := func(change func(c *letta.ToolCall)) func(letta.Messages) letta.Messages {
		return of(func(m *letta.Message) bool {
			if len(m.ToolCalls) == 0 {
				return false
			}
			change(&m.ToolCalls[0])
			return true
		})
	}
	add("of another step", false, of(func(m *letta.Message) bool { m.StepID = "step-of-another"; return true }))
	add("of no step", false, of(func(m *letta.Message) bool { m.StepID = ""; return true }))
	add("of the step of the last one", false, func(list letta.Messages) letta.Messages { list[j].StepID = list[len(list)-1].StepID; return list })
	add("of another run", true, of(func(m *letta.Message) bool { m.RunID = "run-of-another"; return true }))
	add("of no run", true, of(func(m *letta.Message) bool { m.RunID = ""; return true }))
	for _, kind := range []letta.MessageType{letta.TypeUser, letta.TypeSystem, letta.TypeApprovalRequest, letta.TypeSummary, letta.TypeEvent, "unknown"} {
		add("is "+string(kind), true, of(func(m *letta.Message) bool { m.Type = kind; return true }))
	}
	for _, kind := range []letta.MessageType{letta.TypeAssistant, letta.TypeReasoning, letta.TypeToolCall, letta.TypeToolReturn} {
		add("is "+string(kind), false, of(func(m *letta.Message) bool { is := m.Type == kind; m.Type = kind; return !is }))
	}
	add("is gone", false, func(list letta.Messages) letta.Messages { return slices.Delete(list, j, j+1) })
	add("is there twice", false, func(list letta.Messages) letta.Messages { return slices.Insert(list, j, list[j]) })
	add("comes later", false, func(list letta.Messages) letta.Messages {
		if j+1 == len(list) {
			return nil
		}
		list[j], list[j+1] = list[j+1], list[j]
		return list
	})
	add("calls another tool", false, ofCall(func(c *letta.ToolCall) { c.Name += "x" }))
	add("calls with other arguments", false, ofCall(func(c *letta.ToolCall) { c.Arguments = strings.Replace(c.Arguments, ":", `:1,"x":`, 1) }))
	add("calls by another id", false, ofCall(func(c *letta.ToolCall) { c.ToolCallID = "call_x" }))
	add("calls nothing", false, of(func(m *letta.Message) bool { is := m.ToolCalls != nil; m.ToolCalls = nil; return is }))
	add("calls twice", false, of(func(m *letta.Message) bool {
		m.ToolCalls = append(m.ToolCalls, m.ToolCalls...)
		return m.ToolCalls != nil
	}))
	add("returns nothing", false, of(func(m *letta.Message) bool { is := m.ToolReturns != nil; m.ToolReturns = nil; return is }))
	add("returns for another call", false, of(func(m *letta.Message) bool {
		if len(m.ToolReturns) == 0 {
			return false
		}
		m.ToolReturns[0].ToolCallID = "call_x"
		return true
	}))
	return all
}

func turnLies(j int) (all []lie) {
	add := func(name string, change func(turns []tokenize.Turn) []tokenize.Turn) {
		all = append(all, lie{fmt.Sprintf("turn %d %s", j, name), func(known *knownLife, i int) bool {
			turns := &known.reply.Sends[i].Turns
			if j >= len(*turns) {
				return false
			}
			*turns = change(*turns)
			return true
		}, false, false, false})
	}
	add("says something else", func(turns []tokenize.Turn) []tokenize.Turn { turns[j].Content += " x"; return turns })
	add("says nothing", func(turns []tokenize.Turn) []tokenize.Turn { turns[j].Content = ""; return turns })
	add("is gone", func(turns []tokenize.Turn) []tokenize.Turn { return slices.Delete(turns, j, j+1) })
	add("is there twice", func(turns []tokenize.Turn) []tokenize.Turn { return slices.Insert(turns, j, turns[j]) })
	add("sampled one less", func(turns []tokenize.Turn) []tokenize.Turn {
		if t := &turns[j]; t.Role == tokenize.RoleAssistant {
			t.OutputIDs, t.Logprobs = t.OutputIDs[:len(t.OutputIDs)-1], t.Logprobs[:len(t.Logprobs)-1]
		}
		return turns
	})
	return all
}

func traceLies() (all []lie) {
	add := func(name, old, as string) {
		all = append(all, lie{"the trace " + name, func(known *knownLife, i int) bool {
			steps := known.memory.steps[i]
			id := steps[len(steps)-1].ID
			t := known.memory.traces[id]
			if t == nil || !strings.Contains(string(t.JSON), old) {
				return false
			}
			changed, err := letta.Read[letta.ProviderTrace](strings.Replace(string(t.JSON), old, as, 1))
			known.memory.traces[id] = changed
			return err == nil
		}, true, true, true})
	}
	add("counts another prompt", `"prompt_tokens":`, `"prompt_tokens":1`)
	add("counts another prompt, spaced", `"prompt_tokens": `, `"prompt_tokens": 1`)
	add("samples another token", `"output_ids":[`, `"output_ids":[7,`)
	add("samples another token, spaced", `"output_ids": [`, `"output_ids": [7, `)
	add("names another tool", `"tools":[`, `"tools":[{"type":"function","function":{"name":"other","parameters":{}}},`)
	add("shows another user", `"role":"user"`, `"role":"assistant"`)
	return append(all, lie{"the trace is not there", func(known *knownLife, i int) bool {
		steps := known.memory.steps[i]
		delete(known.memory.traces, steps[len(steps)-1].ID)
		return true
	}, true, true, true})
}

// TestAnswersThatLie changes one field of one answer at a time. The result is then the same as from
// the records alone, and every prompt is the true one.
func TestAnswersThatLie(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	lies := slices.Concat(usageLies(), traceLies())
	for j := range 8 {
		lies = append(append(lies, messageLies(j)...), turnLies(j)...)
	}
	names, fewer := []string{"single", "tool", "tool-two", "tool-parallel", "tool-malformed", "multi", "conversation", "max-steps", "tool-list"}, testing.Short() || raceEnabled
	if fewer {
		names = []string{"tool", "tool-two", "multi"}
	}
	lives := remembered(t, names...)
	for _, p := range plans {
		if len(p.sends) > 1 && (!fewer || p.known != "" || p.block) || len(p.sends) == 1 && p.sends[0] > 2 && !fewer {
			lives = append(lives, madeUp(t, model, 3, p.plan))
		}
	}
	told, believed := 0, 0
	for _, known := range lives {
		for i := range known.reply.Sends {
			for _, l := range lies {
				of := known.clone()
				if !l.tell(of, i) {
					continue
				}
				records, answers := of.roads(t, model)
				unread := l.unread && answers.asked.Traces < int64(len(known.reply.Sends)) && i+1 < len(known.reply.Sends)
				if err := sameRoads(records, answers); err != nil && !unread {
					t.Errorf("%s, send %d: %s: records and answers: %v", known.name, i, l.name, err)
				}
				for k := range answers.calls {
					if c := &answers.calls[k]; !l.traced && c.Grade != tokenize.Quarantined && (k >= len(known.truths) || !slices.Equal(c.PromptIDs, known.truths[k].prompt)) {
						t.Errorf("%s, send %d: %s: call %d: a wrong prompt: %s", known.name, i, l.name, k, short(c))
					}
				}
				if answers.err != nil || answers.asked.Messages > 0 {
					told++
					continue
				}
				if believed++; l.told && !unread {
					t.Errorf("%s, send %d: %s: it was believed", known.name, i, l.name)
				}
			}
		}
	}
	t.Logf("%d answers were rejected, and the change of %d is in no prompt", told, believed)
}

// TestAnswersNotTaken: if the answers of a rollout are incomplete, none of them is used.
func TestAnswersNotTaken(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	one, several := plan{sends: []int{2, 1}, tools: 1}, plan{sends: []int{2, 1, 2}, tools: 1}
	for _, tt := range []struct {
		name   string
		of     plan
		change func(known *knownLife)
		want   bool // whether no answer is used
	}{
		{"nothing", one, func(*knownLife) {}, false},
		{"the agent was read late", one, func(known *knownLife) { known.reply.Evidence.Late = true }, true},
		{"an answer is a record", one, func(known *knownLife) { known.reply.Sends[1].FromRecord = true }, true},
		{"a send names no run", one, func(known *knownLife) { known.reply.Evidence.Sends[1].RunID = "" }, true},
		{"a send and its messages name no run", one, func(known *knownLife) {
			s := &known.reply.Evidence.Sends[1]
			s.RunID = ""
			for k := range s.Response.Messages {
				s.Response.Messages[k].RunID = ""
			}
		}, true},
		{"the request overrode the system message", one, func(known *knownLife) { override(known.reply.Evidence) }, true},
		{"the request brought a tool", one, func(known *knownLife) {
			known.reply.Evidence.Sends[0].Request.ClientTools = []letta.ClientTool{{Name: "mine"}}
		}, true},
		{"the request answered a call", one, func(known *knownLife) {
			r := known.reply.Evidence.Sends[1].Request
			r.Messages = append(r.Messages, &letta.ApprovalCreate{Type: "approval"})
		}, true},
		{"a rule chooses tools", plan{sends: []int{2}, tools: 2}, func(known *knownLife) {
			known.reply.Evidence.Agent.ToolRules = []letta.RawJSON{`{"type":"run_first"}`}
		}, true},
		{"a step twice", several, func(known *knownLife) {
			first, last := known.reply.Evidence.Sends[0].Response.Messages, known.reply.Evidence.Sends[2].Response.Messages
			for k := range last[:2] {
				last[k].StepID = first[0].StepID
			}
		}, true},
		{"the list of steps names another one", plan{sends: []int{3}, tools: 1}, func(known *knownLife) {
			s := &known.memory.steps[0][2]
			known.memory.traces["step-of-another"] = known.memory.traces[s.ID]
			s.ID = "step-of-another"
		}, true},
		{"the list of steps counts another output", plan{sends: []int{3}, tools: 1}, func(known *knownLife) {
			s := known.memory.steps[0]
			s[0].CompletionTokens, s[1].CompletionTokens = new(*s[0].CompletionTokens+1), new(*s[1].CompletionTokens-1)
		}, true},
		{"one trace", several, func(*knownLife) {}, false},
		// The tool has another description in the first two sends, and the original one when the
		// agent is read again. The trace of the last send alone would show no change.
		{"a tool that changes", several, func(known *knownLife) {
			for i := range 2 {
				for _, s := range known.memory.steps[i] {
					old := known.memory.traces[s.ID]
					known.memory.traces[s.ID] = traceOf(t, strings.ReplaceAll(string(old.Request.JSON), "the files", "the books"), string(old.Response.JSON))
				}
			}
			now := *known.memory.agent
			now.Tools = slices.Clone(now.Tools)
			now.Tools[0].JSONSchema = letta.RawJSON(strings.ReplaceAll(string(now.Tools[0].JSONSchema), "the files", "the books"))
			known.memory.agent = &now
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			known := madeUp(t, model, 5, tt.of).clone()
			tt.change(known)
			records, answers := known.roads(t, model)
			if err := sameRoads(records, answers); err != nil {
				t.Errorf("records and answers: %v", err)
			}
			if took := answers.asked.Messages == 0; took == tt.want {
				t.Errorf("requested %q (%v)", asked(answers.asked), answers.err)
			}
		})
	}
}

// TestAnswersOfUntracedServer: once a server is known to keep no traces, records are fetched at
// once.
func TestAnswersOfUntracedServer(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	p := newPrompter(t, prompt.Config{Model: model})
	known := madeUp(t, model, 6, plan{sends: []int{2, 1, 1}, tools: 1})
	traces := known.memory.traces
	known.memory.traces = nil
	// Until the server is known, each sample also reads the agent once in vain.
	for n := range 10 {
		rollout := known.rollout()
		must(p.Prompts(t.Context(), &known.reply.Reply, rollout))(t)
		if r, vain := rollout.Requests(), n < 8; (r.Agents == 3) != vain {
			t.Errorf("sample %d: %q", n, asked(r))
		}
	}
	known.memory.traces = traces // the server keeps them now
	for n := range 2 {
		rollout := known.rollout()
		must(p.Prompts(t.Context(), &known.reply.Reply, rollout))(t)
		if r, again := rollout.Requests(), n > 0; (r.Messages == 0) != again {
			t.Errorf("sample %d of a server that keeps traces: %q", n, asked(r))
		}
	}
}
