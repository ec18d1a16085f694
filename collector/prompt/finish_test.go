package prompt_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// TestEndsOfRecordings: finish reasons equal the recorded engine's, even without traces. The step of
// a call is the step in the list of steps.
func TestEndsOfRecordings(t *testing.T) {
	t.Parallel()
	p := newPrompter(t, prompt.Config{}) // shared: ids learned from one recording help with the next
	known, named := 0, 0
	for _, rec := range recordings(t) {
		var want []string
		for _, x := range rec.Exchanges {
			for _, c := range x.ModelCalls {
				if x.Response.Status == 200 && c.Path == "/generate" && c.Status == 200 && len(c.Response.OutputIDs) > 0 {
					want = append(want, c.Response.MetaInfo.FinishReason.Type)
				}
			}
		}
		if len(want) == 0 {
			continue
		}
		reply := live(t, &rec)
		calls := must(p.Prompts(t.Context(), &reply.Reply, reply.Evidence))(t)
		for i := range calls {
			if got := calls[i].FinishReason; got != "" && got != want[i] {
				t.Errorf("%s: call %d ended with %q, but the engine returned %q", rec.name, i, got, want[i])
			} else if got != "" {
				known++
			} else if want[i] != "length" { // the collector knows this from the stop reason
				t.Logf("%s: call %d: unknown, the engine returned %q", rec.name, i, want[i])
			}
		}
		left := calls
		for _, send := range reply.Evidence.Sends {
			if send.RunID == "" {
				continue // the only send that names no run; it has one call
			}
			steps := must(reply.Evidence.Run(send.RunID).Calls(t.Context()))(t)
			for i := range steps[:min(len(steps), len(left))] {
				if got := left[i].StepID; got != steps[i].ID {
					t.Errorf("%s: a call has step %q, want %s", rec.name, got, steps[i].ID)
				}
				named++
			}
			left = left[min(len(steps), len(left)):]
		}
	}
	if known < 70 || named < 70 {
		t.Errorf("%d finish reasons and %d steps are known, want nearly all", known, named)
	}
	if n := p.Stats().Requests.Total(); n > 6 {
		t.Errorf("it took %d traces to know them", n)
	}
}

// played runs one attempt and returns its calls.
func played(t *testing.T, backend *agent.Backend, a collector.Attempt) []tokenize.Call {
	t.Helper()
	g := must(backend.Open(t.Context(), a))(t)
	reply := must(g.Run(t.Context()))(t)
	calls := must(g.Prompts(t.Context(), reply))(t)
	if err := g.Close(t.Context()); err != nil {
		t.Error(err)
	}
	return calls
}

// A traceServer counts the requests for traces.
type traceServer struct {
	http.Handler
	// lacks reports whether the n-th request for the trace of a step finds none. steps counts the
	// steps whose traces were requested so far, including this one.
	lacks func(n, steps int) bool

	mu    sync.Mutex
	total int
	asked map[string]int
}

func (s *traceServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/trace") {
		s.mu.Lock()
		s.total++
		s.asked[r.URL.Path]++
		lacks := s.lacks(s.asked[r.URL.Path], len(s.asked))
		s.mu.Unlock()
		if lacks {
			_, _ = w.Write([]byte("null"))
			return
		}
	}
	s.Handler.ServeHTTP(w, r)
}

// TestEnds collects over HTTP from a server that hides finish reasons, with prompts from turns.
func TestEnds(t *testing.T) {
	t.Parallel()
	add := json.RawMessage(`{"tools":["add"]}`)
	script := lettasim.Script{Calls: lettasim.Range{Min: 3, Max: 3}}
	for _, tt := range []struct {
		name   string
		fault  lettasim.FaultKind
		script lettasim.Script
		none   bool // the server keeps no traces
		want   []string
		traces int // at most, for ten samples
	}{
		{name: "a stop", script: script, want: []string{"stop", "stop", "stop"}, traces: 1},
		{name: "given up by the engine", fault: lettasim.Abort, script: script, want: []string{"stop", "stop", "abort"}, traces: 11},
		{name: "the limit behind a tool call", fault: lettasim.LengthCall, script: script, want: []string{"length", "stop", "stop"}, traces: 11},
		{
			name: "the limit", script: lettasim.Script{Calls: lettasim.Range{Min: 2, Max: 2}, Length: 1},
			want: []string{"stop", ""}, traces: 1, // the collector takes it from the stop reason
		},
		{name: "the limit behind a tool call, no traces", fault: lettasim.LengthCall, script: script, none: true, want: []string{"length", "", ""}, traces: 8 * 3},
		{name: "given up, no traces", fault: lettasim.Abort, script: script, none: true, want: []string{"", "", ""}, traces: 8 * 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := lettasim.Config{InputIDs: true, Script: tt.script}
			if tt.fault != "" {
				cfg.Faults = lettasim.Faults{{Kind: tt.fault, Rate: 1}}
			}
			sim := must(lettasim.New(cfg))(t)
			server := &traceServer{Handler: sim, lacks: func(int, int) bool { return tt.none }, asked: make(map[string]int)}
			backend := newBackend(t, dial(t, server, letta.ClientConfig{}), agent.Config{Model: "sglang//models/qwen3", Create: add, Prompter: newPrompter(t, prompt.Config{})})
			for i := range 10 {
				calls := played(t, backend, collector.Attempt{
					Task: &collector.Task{ID: "t", Messages: []string{"Add 3 and 4."}}, Key: "key", Index: i, GroupSize: 10, N: 1, RunID: "run",
				})
				var got, steps []string
				for k := range calls {
					got, steps = append(got, calls[k].FinishReason), append(steps, calls[k].StepID)
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("sample %d: calls ended with %q, want %q", i, got, tt.want)
				}
				if slices.Contains(steps, "") || len(slices.Compact(slices.Sorted(slices.Values(steps)))) != len(steps) {
					t.Errorf("sample %d: steps %q", i, steps)
				}
			}
			if server.total > tt.traces {
				t.Errorf("%d requests for traces, want at most %d", server.total, tt.traces)
			}
		})
	}
}

// TestEndOfLateTrace: a trace that was missing for a proof can exist when the finish reason is
// needed. It can show that the engine aborted the call.
func TestEndOfLateTrace(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	sim := must(lettasim.New(lettasim.Config{
		Script: lettasim.Script{Calls: lettasim.Range{Min: 1, Max: 1}}, Faults: lettasim.Faults{{Kind: lettasim.Abort, Rate: 1}},
	}))(t)
	late := func(n, steps int) bool { return steps > 1 && n <= 3 } // from the second step on
	server := &traceServer{Handler: sim, lacks: late, asked: make(map[string]int)}
	client := dial(t, server, letta.ClientConfig{})
	backend := newBackend(t, client, agent.Config{Model: "sglang//models/qwen3", Prompter: newPrompter(t, prompt.Config{Model: model})})
	for n := 1; n <= 2; n++ {
		calls := played(t, backend, collector.Attempt{
			Task: &collector.Task{ID: "t", Messages: []string{"Add 3 and 4."}}, Key: "key", GroupSize: 1, N: n, RunID: "run",
		})
		if len(calls) != 1 || calls[0].FinishReason == "" {
			t.Errorf("attempt %d: %d calls, the end of the first is not known", n, len(calls))
		}
	}
}

// TestUncertainSteps: if messages and turns do not match, no call gets the step of another.
func TestUncertainSteps(t *testing.T) {
	t.Parallel()
	said := func(kind, step string) string {
		return `{"message_type":"` + kind + `_message","id":"message-x","step_id":"` + step + `","content":"c","reasoning":"","tool_return":"","status":"success","tool_call_id":"c1"}`
	}
	assistant := func(content string) tokenize.Turn {
		return tokenize.Turn{Role: tokenize.RoleAssistant, Content: content, OutputIDs: []int32{1}, Logprobs: []float32{-1}, IDMismatch: -1}
	}
	tool := tokenize.Turn{Role: tokenize.RoleTool, Content: "r"}
	for _, tt := range []struct {
		name     string
		turns    []tokenize.Turn
		messages []string
		want     []string
	}{
		{"one to one", []tokenize.Turn{assistant(""), tool, assistant("c")}, []string{said("tool_call", "a"), said("tool_return", "a"), said("assistant", "b")}, []string{"a", "b"}},
		{"text and call are one step", []tokenize.Turn{assistant("x"), tool, assistant("c")}, []string{said("assistant", "a"), said("tool_call", "a"), said("tool_return", "a"), said("assistant", "b")}, []string{"a", "b"}},
		{"a return names an earlier step", []tokenize.Turn{tool, assistant("c")}, []string{said("tool_return", "old"), said("assistant", "b")}, []string{"b"}},
		{"nothing said at the end", []tokenize.Turn{assistant(""), tool, assistant("")}, []string{said("tool_call", "a"), said("tool_return", "a")}, []string{"a", ""}},
		{"nothing said at first", []tokenize.Turn{assistant(""), assistant("c")}, []string{said("assistant", "b")}, []string{"", "b"}},
		{"a call that waits", []tokenize.Turn{assistant("")}, []string{said("approval_request", "a")}, []string{"a"}},
		{"a turn is missing", []tokenize.Turn{assistant("c")}, []string{said("tool_call", "a"), said("tool_return", "a"), said("assistant", "b")}, []string{""}},
		{"a message is missing", []tokenize.Turn{assistant(""), tool, assistant("c")}, []string{said("assistant", "b")}, []string{"", ""}},
		{"the return of another", []tokenize.Turn{assistant("x"), tool, assistant("c")}, []string{said("tool_call", "a"), said("assistant", "b"), said("tool_return", "b")}, []string{"", ""}},
		{"mixed up", []tokenize.Turn{assistant("x"), assistant("y"), assistant("z")}, []string{said("assistant", "a"), said("assistant", "b"), said("assistant", "a")}, []string{"", "", ""}},
		{"no step", []tokenize.Turn{assistant("x")}, []string{said("assistant", "")}, []string{""}},
		{"no messages", []tokenize.Turn{assistant("x")}, nil, []string{""}},
	} {
		messages := must(letta.Read[letta.Messages]("[" + strings.Join(tt.messages, ",") + "]"))(t)
		rollout := record.New(nil)
		rollout.Sends = []record.Send{{Response: &letta.LettaResponse{Messages: *messages}}}
		reply := &collector.Reply{Sends: []collector.Send{{Turns: tt.turns}}}
		calls := must(newPrompter(t, prompt.Config{}).Prompts(t.Context(), reply, rollout))(t)
		var got []string
		for k := range calls {
			got = append(got, calls[k].StepID)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: steps %q, want %q", tt.name, got, tt.want)
		}
	}
}
