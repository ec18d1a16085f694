package prompt_test

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// alertAfter stores a compaction note in the step of call k of the first send.
func alertAfter(m *memory, k int) {
	id := m.steps[0][k].ID
	at := 0
	for i := range m.messages[0] {
		if m.messages[0][i].StepID == id {
			at = i + 1
		}
	}
	m.messages[0] = slices.Insert(m.messages[0], at, alertOf(id))
}

// alertAtEnd stores a compaction note in the last step of the last send.
func alertAtEnd(m *memory) {
	last := &m.messages[len(m.messages)-1]
	*last = append(*last, alertOf((*last)[len(*last)-1].StepID))
}

// alertOf returns a compaction note in a step.
func alertOf(stepID string) letta.Message {
	return letta.Message{Type: letta.TypeUser, StepID: stepID, Content: letta.Content{Text: `{"type":"system_alert"}`}}
}

// TestReasons removes or changes parts of the records, and checks the reason and note of each call.
func TestReasons(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	raising := parseTemplate(t, "model", "{{ messages[0].content }}\n{{ raise_exception('no roles') }}", chat.Options{})
	lives := map[string]*knownLife{}
	for _, k := range remembered(t, "tool-two", "multi", "compaction", "conversation") {
		lives[k.name] = k
	}
	noTraces := func(m *memory) { clear(m.traces) }
	tests := []struct {
		name, life string
		model      *prompt.Model
		change     func(m *memory, e *record.Rollout)
		want       []string // source or reason per call
		note       string   // part of the last call's note
		finish     string   // the last call's finish reason
		err        string   // part of the error, if one is expected
	}{
		{name: "all is there", life: "tool-two", want: []string{"stored", "stored", "stored"}, finish: "stop"},
		{
			name: "the tools in another order than the agent's", life: "tool-two",
			change: func(_ *memory, e *record.Rollout) { slices.Reverse(e.Agent.Tools) },
			want:   []string{"stored", "stored", "stored"},
		},
		{
			name: "another order between two sends", life: "multi",
			change: func(m *memory, e *record.Rollout) {
				slices.Reverse(e.Agent.Tools)
				delete(m.traces, m.steps[2][len(m.steps[2])-1].ID)
			},
			want: []string{"stored", "stored", "stored", "tool_order"}, note: "stored: no trace of this request shows the order in which the server read the agent's 2 tools; step step-",
		},
		{
			name: "another order and a trace of the last call but one only", life: "tool-two",
			change: func(m *memory, e *record.Rollout) {
				slices.Reverse(e.Agent.Tools)
				delete(m.traces, m.steps[0][2].ID)
			},
			want: []string{"stored", "stored", "stored"},
		},
		{
			name: "another order and no traces", life: "tool-two",
			change: func(m *memory, e *record.Rollout) { slices.Reverse(e.Agent.Tools); noTraces(m) },
			want:   []string{"tool_order", "tool_order", "tool_order"}, note: "no trace of this request shows the order in which",
		},
		{
			// The agent, when read again, has its tools in the original order. That does not show
			// their order during the request.
			name: "no traces, and all is as it was", life: "tool-two", change: func(m *memory, _ *record.Rollout) { noTraces(m) },
			want: []string{"tool_order", "tool_order", "tool_order"}, note: "no trace of this request shows the order in which",
		},
		{
			name: "traces without names of tools", life: "tool-two",
			change: func(m *memory, e *record.Rollout) {
				slices.Reverse(e.Agent.Tools)
				for id, trace := range m.traces {
					m.traces[id] = traceOf(t, `{"messages":[],"tools":[1,{"function":2},{"function":{"name":3}}]}`, string(trace.Response.JSON))
				}
			},
			want: []string{"no_prompt", "no_prompt", "no_prompt"}, note: `stored: the trace has a tool "" that the agent did not have`,
		},
		{
			name: "no steps", life: "tool-two", change: func(m *memory, _ *record.Rollout) { m.steps[0] = nil },
			err: "turn 0 (hole): the call has no step in its server run",
		},
		{
			name: "a step too few", life: "tool-two", change: func(m *memory, _ *record.Rollout) { m.steps[0] = m.steps[0][:2] },
			err: "turn 2 (hole): the call has no step",
		},
		{
			name: "a step without turn", life: "tool-two",
			change: func(m *memory, _ *record.Rollout) { m.steps[0] = append(m.steps[0], m.steps[0][2]) },
			err:    "(hole): the server run has 4 steps with output, but its answer has 3 turns",
		},
		{
			name: "another number of tokens", life: "tool-two",
			change: func(m *memory, _ *record.Rollout) { m.steps[0][1].CompletionTokens = new(int64(3)) }, err: "reports 3",
		},
		{
			name: "no messages, but traces", life: "tool-two", change: func(m *memory, _ *record.Rollout) { m.messages[0] = nil },
			want: []string{"trace", "trace", "trace"},
		},
		{
			name: "neither messages nor traces", life: "tool-two",
			change: func(m *memory, _ *record.Rollout) { m.messages[0] = nil; noTraces(m) },
			want:   []string{"tool_order", "no_prompt", "no_prompt"}, note: "stored: the server run has no messages; step step-",
		},
		{
			name: "no system message", life: "tool-two", change: func(m *memory, e *record.Rollout) { e.SystemText = "" },
			want: []string{"trace", "trace", "trace"},
		},
		{
			name: "no system message and only the first trace", life: "tool-two", change: func(m *memory, e *record.Rollout) {
				e.SystemText = ""
				first := m.steps[0][0].ID
				m.traces = map[string]*letta.ProviderTrace{first: m.traces[first]}
			},
			want: []string{"trace", "no_prompt", "no_prompt"}, note: "stored: the system message is unknown; step step-",
		},
		{
			name: "another system message", life: "tool-two", change: func(m *memory, e *record.Rollout) { e.SystemText += "!!"; noTraces(m) },
			want: []string{"count_mismatch", "count_mismatch", "count_mismatch"}, note: "the server counted 5",
		},
		{
			name: "a step without count", life: "tool-two",
			change: func(m *memory, _ *record.Rollout) { m.steps[0][2].PromptTokens = nil },
			want:   []string{"stored", "stored", "no_prompt"}, note: "has no prompt token count",
		},
		{
			name: "traces of other calls", life: "tool-two", change: func(m *memory, e *record.Rollout) {
				e.SystemText = ""
				a, b := m.steps[0][0].ID, m.steps[0][2].ID
				m.traces[a], m.traces[b] = m.traces[b], m.traces[a]
			},
			want: []string{"no_prompt", "trace", "no_prompt"}, note: "has different output tokens than the turn",
		},
		{
			name: "traces that are not JSON", life: "tool-two", change: func(m *memory, e *record.Rollout) {
				e.SystemText = ""
				for id := range m.traces {
					m.traces[id] = traceOf(t, "{}", "[]")
				}
			},
			want: []string{"no_prompt", "no_prompt", "no_prompt"}, note: "response_json: ",
		},
		{
			name: "a template that raises", life: "tool-two", model: &prompt.Model{Template: raising, Tokenizer: model.Tokenizer},
			want: []string{"no_prompt", "no_prompt", "no_prompt"}, note: "stored: render: chat: model:2: ",
		},
		{
			name: "a second send without run", life: "multi", change: func(m *memory, e *record.Rollout) { e.Sends[1].RunID = ""; noTraces(m) },
			want: []string{"tool_order", "no_prompt", "no_prompt", "no_prompt"}, note: "stored: send 2 has no server run id; step step-",
		},
		{
			name: "compaction at the end of the first send", life: "compaction",
			want: []string{"stored", "stored", "compacted", "compacted"}, note: "ran a compaction and has no trace",
		},
		{
			// Nothing else changes here, so every count would agree.
			name: "compaction after the first call", life: "tool-two", change: func(m *memory, _ *record.Rollout) { noTraces(m); alertAfter(m, 0) },
			want: []string{"tool_order", "compacted", "compacted"}, note: "a compaction ran before this call",
		},
		{
			name: "a trace is not cut across a compaction", life: "tool-two", change: func(m *memory, e *record.Rollout) {
				e.SystemText = ""
				alertAfter(m, 1)
				last := m.steps[0][2].ID
				m.traces = map[string]*letta.ProviderTrace{last: m.traces[last]}
			},
			want: []string{"no_prompt", "no_prompt", "trace"},
		},
		{
			name: "an overridden system message after a compaction", life: "tool-two",
			change: func(m *memory, e *record.Rollout) { alertAfter(m, 0); override(e) },
			want:   []string{"tool_order", "compacted", "compacted"}, note: "the native system message is unknown",
		},
		{
			name: "a mismatch before a compaction keeps its reason", life: "compaction",
			change: func(m *memory, e *record.Rollout) { e.SystemText += "!!"; noTraces(m) },
			want:   []string{"count_mismatch", "count_mismatch", "compacted", "compacted"},
		},
		{
			name: "a user who writes like the server", life: "tool-two", change: func(m *memory, e *record.Rollout) {
				noTraces(m)
				note := alertOf(m.messages[0][0].StepID)
				e.Sends[0].Request = &letta.LettaRequest{Messages: letta.InputMessages{letta.UserText(note.Content.Text)}}
				m.messages[0][0] = note
			},
			want: []string{"count_mismatch", "count_mismatch", "count_mismatch"},
		},
		{
			name: "a conversation that was summarized", life: "conversation",
			change: func(m *memory, _ *record.Rollout) { noTraces(m); alertAtEnd(m) },
			want:   []string{"no_prompt", "no_prompt", "no_prompt", "no_prompt"}, note: "a compaction replaced the first system message",
		},
		{
			// The override is in the trace. The system message that the engine received was read
			// only after the compaction replaced it with another text of the same length.
			name: "an overridden system message in a conversation that was summarized", life: "conversation",
			change: func(m *memory, e *record.Rollout) { alertAtEnd(m); override(e) },
			want:   []string{"no_prompt", "no_prompt", "no_prompt", "no_prompt"}, note: "a compaction replaced the first system message",
		},
		{
			name: "a step twice", life: "tool-two",
			change: func(m *memory, _ *record.Rollout) { m.steps[0][1].ID = m.steps[0][0].ID }, err: "twice",
		},
		{
			name: "the server is away", life: "tool-two", change: func(m *memory, _ *record.Rollout) { m.err = collector.ErrUnavailable },
			err: collector.ErrUnavailable.Error(),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			known := lives[tt.life]
			of := known.clone()
			if tt.change != nil {
				tt.change(of.memory, of.reply.Evidence)
			}
			calls, err := prompt.NewRebuilder(cmp.Or(tt.model, model), true, true).Prompts(t.Context(), &of.reply.Reply, of.rollout())
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error %v, want %q", err, tt.err)
				}
				if hole := (*tokenize.AlignError)(nil); errors.As(err, &hole) && !errors.Is(err, tokenize.ErrCounts) {
					t.Errorf("%v does not wrap ErrCounts", err)
				}
				if of.memory.err != nil && !collector.Classify(err).Retryable() {
					t.Errorf("class %v is not tried again", collector.Classify(err))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i := range calls {
				c := &calls[i]
				if c.Grade == tokenize.Quarantined {
					got = append(got, c.Reason.String())
					if c.Note == "" || c.PromptIDs != nil || c.Source != tokenize.SourceNone {
						t.Errorf("call %d: note %q, source %v, %d ids", i, c.Note, c.Source, len(c.PromptIDs))
					}
					continue
				}
				got = append(got, c.Source.String())
				if !slices.Equal(c.PromptIDs, known.truths[i].prompt) {
					t.Errorf("call %d claims a prompt that the model did not see", i)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("calls %q, want %q", got, tt.want)
			}
			if tt.finish != "" && calls[len(calls)-1].FinishReason != tt.finish {
				t.Errorf("finish reason %q, want %q", calls[len(calls)-1].FinishReason, tt.finish)
			}
			if note := calls[len(calls)-1].Note; !strings.Contains(note, tt.note) {
				t.Errorf("note %q, want %q in it", note, tt.note)
			}
		})
	}
}

// TestTraceLost: a trace that the server could not store because of a NaN is distinguished from a
// trace that the server does not keep.
func TestTraceLost(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	for _, tt := range []struct {
		life   string
		reason tokenize.Reason
		note   string
	}{
		{"nan", tokenize.ReasonTraceLost, "a NaN or infinite log-probability, and the server cannot store such a trace"},
		{"tool-two", tokenize.ReasonToolOrder, "no trace of this request shows the order in which the server read the agent's 2 tools"},
	} {
		known := remembered(t, tt.life)[0]
		clear(known.memory.traces)
		for _, rebuilder := range []*prompt.Rebuilder{prompt.NewRebuilder(model, true, true), prompt.NewRebuilder(model, true, true).Answers()} {
			calls := known.rebuilt(t, rebuilder)
			for i := range calls {
				if c := &calls[i]; c.Reason != tt.reason || !strings.Contains(c.Note, tt.note) {
					t.Errorf("%s call %d: %v (%s), want %v with %q", tt.life, i, c.Reason, c.Note, tt.reason, tt.note)
				}
			}
		}
	}
}
