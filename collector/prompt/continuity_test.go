package prompt_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// A passage is how one call passes a tap.
type passage struct {
	continuity bool   // the tap runs with continuity
	mark       string // the tap's mark, as JSON
	spliced    bool   // the engine received other ids, but as many as the server rendered
	lost       bool   // the call has no trace
}

// behind sends the calls of the life through a tap. Records of a spliced call differ only in the
// mark.
func (known *knownLife) behind(tb testing.TB, pass []passage) *knownLife {
	tb.Helper()
	out := known.clone()
	out.truths = slices.Clone(known.truths)
	n := 0
	for _, steps := range known.memory.steps {
		for _, step := range steps {
			p := &pass[n]
			if p.spliced {
				out.truths[n].prompt = slices.Clone(out.truths[n].prompt)
				out.truths[n].prompt[len(out.truths[n].prompt)/2]++
			}
			if p.continuity {
				out.memory.traces[step.ID] = withMark(tb, out.memory.traces[step.ID], p.mark)
			}
			if p.lost {
				delete(out.memory.traces, step.ID)
			}
			n++
		}
	}
	return out
}

// show puts the prompts into the turns of the life.
func (known *knownLife) show(prompts []truth) {
	n := 0
	for i := range known.reply.Sends {
		for j := range known.reply.Sends[i].Turns {
			if turn := &known.reply.Sends[i].Turns[j]; turn.Role == tokenize.RoleAssistant {
				turn.PromptIDs = prompts[n].prompt
				n++
			}
		}
	}
}

func withMark(tb testing.TB, t *letta.ProviderTrace, mark string) *letta.ProviderTrace {
	tb.Helper()
	response := strings.Replace(string(t.Response.JSON), `"meta_info":{`, `"meta_info":{"rollout":`+mark+`,`, 1)
	if !json.Valid([]byte(response)) || response == string(t.Response.JSON) {
		tb.Fatalf("no trace: %s", response)
	}
	return traceOf(tb, string(t.Request.JSON), response)
}

func mark(spliced int) string { return fmt.Sprintf(`{"continuity":true,"spliced":%d}`, spliced) }

// TestContinuityWithoutTap sends the calls of many lives through taps that start and stop with and
// without continuity, and finds their prompts without the tap. Once a trace shows such a tap, no
// call gets a prompt that its engine did not receive.
func TestContinuityWithoutTap(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	kept, lost, unseen := 0, 0, 0
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 7))
		p := plans[r.IntN(len(plans))]
		known := madeUp(t, model, seed, p.plan)
		pass := make([]passage, len(known.truths))
		on, often, losing := r.IntN(3) > 0, r.IntN(3), r.IntN(3) == 0
		for k := range pass {
			if r.IntN(6) == 0 {
				on = !on // the tap is restarted in the other mode
			}
			pass[k] = passage{continuity: on, lost: losing && r.IntN(3) == 0}
			if n := r.IntN(3); on && k > 0 && n > 0 && often > 0 {
				pass[k].spliced, pass[k].mark = true, []string{mark(n), `{"continuity":true}`, `{"spliced":"x","continuity":true}`}[r.IntN(3)]
			} else {
				pass[k].mark = mark(0)
			}
		}
		life := known.behind(t, pass)
		cfg := prompt.Config{Model: model, Unverified: r.IntN(3) == 0}
		if r.IntN(4) == 0 {
			cfg.Force = []tokenize.PromptSource{tokenize.SourceStored, tokenize.SourceTrace}[r.IntN(2)]
		}
		rollout := life.rollout()
		if r.IntN(2) == 0 {
			rollout.Engines = seenBehind(t, model)
		}
		if r.IntN(4) == 0 { // the server sends the prompts that it rendered
			life.show(known.truths)
			rollout.Engines = seenBehind(t, model)
			cfg.Force = tokenize.SourceNone
		}
		got := take(t, cfg, r.IntN(2) == 0, life.reply, rollout)
		if got.err != nil {
			t.Fatalf("seed %d: %v", seed, got.err)
		}
		for k := range got.calls {
			c := &got.calls[k]
			name := fmt.Sprintf("seed %d, %s, call %d, %+v", seed, p.name, k, pass[k])
			switch {
			case c.Grade == tokenize.Quarantined:
				lost++
				if pass[k].spliced && !pass[k].lost && rollout.Engines.Continuity() && (c.Reason != tokenize.ReasonContinuity || !strings.Contains(c.Note, "--continuity")) {
					t.Errorf("%s: %s", name, short(c))
				}
			case slices.Equal(c.PromptIDs, life.truths[k].prompt):
				kept++
			case !rollout.Engines.Continuity():
				unseen++ // and it cannot be known
			case c.Grade == tokenize.Unverified && pass[k].lost:
			default:
				t.Errorf("%s: the engine was given another prompt: %s", name, short(c))
			}
		}
		if last := pass[len(pass)-1]; last.continuity && !last.lost && len(pass) > 0 && !rollout.Engines.Continuity() {
			t.Errorf("seed %d, %s: the tap was not noticed", seed, p.name)
		}
	}
	t.Logf("%d calls have their true prompt, %d have none, %d passed a tap of which no trace was read", kept, lost, unseen)
	if kept < 100 || lost < 50 {
		t.Error("too little was shown")
	}
}

// seenBehind returns engines whose traces have shown a tap with continuity.
func seenBehind(tb testing.TB, model *prompt.Model) *record.Engines {
	tb.Helper()
	known := madeUp(tb, model, 1, plans[0].plan)
	life := known.behind(tb, []passage{{continuity: true, mark: mark(0)}})
	rollout := life.rollout()
	for id := range life.memory.traces {
		must(rollout.Trace(tb.Context(), id))(tb)
	}
	if !rollout.Engines.Continuity() {
		tb.Fatal("the mark was not read")
	}
	return rollout.Engines
}

// TestContinuityProof pins the proofs behind a tap with continuity and their requests.
func TestContinuityProof(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	all := func(p passage, n int) []passage { return slices.Repeat([]passage{p}, n) }
	marks := passage{continuity: true, mark: mark(0)}
	for _, tt := range []struct {
		name     string
		plan     plan
		pass     []passage
		seen     bool // the tap was noticed before
		cfg      prompt.Config
		turns    bool   // the turns have prompts
		want     string // first letters of the grades
		requests string
	}{
		{name: "no tap", plan: plan{sends: []int{2}, tools: 1}, pass: all(passage{}, 2), want: "cc", requests: "traces:1"},
		{name: "an engine's own member", plan: plan{sends: []int{2}, tools: 1}, pass: all(passage{continuity: true, mark: `["x"]`}, 2), want: "cc", requests: "traces:1"},
		{name: "it says false", plan: plan{sends: []int{2}, tools: 1}, pass: all(passage{continuity: true, mark: `{"continuity":false,"spliced":1}`}, 2), want: "cc", requests: "traces:1"},
		{name: "nothing was spliced", plan: plan{sends: []int{3}, tools: 1}, pass: all(marks, 3), want: "ccc", requests: "steps:1 traces:3"},
		{name: "one was spliced", plan: plan{sends: []int{3}, tools: 1}, pass: []passage{marks, {continuity: true, mark: mark(1), spliced: true}, marks}, want: "cqc", requests: "steps:1 traces:3"},
		{name: "the last was spliced", plan: plan{sends: []int{2}, tools: 1}, pass: []passage{marks, {continuity: true, mark: mark(2), spliced: true}}, want: "cq", requests: "traces:2"},
		{name: "one has no trace", plan: plan{sends: []int{2}, tools: 1}, pass: []passage{{continuity: true, mark: mark(0), lost: true}, marks}, want: "qc", requests: "traces:2"},
		{
			name: "one has no trace, and any will do", plan: plan{sends: []int{2}, tools: 1}, pass: []passage{{continuity: true, mark: mark(0), lost: true}, marks},
			cfg: prompt.Config{Unverified: true}, want: "uc", requests: "traces:2",
		},
		{name: "only the last trace is read", plan: plan{sends: []int{1, 1, 1}}, pass: []passage{marks, {continuity: true, mark: mark(1), spliced: true}, marks}, want: "cqc", requests: "agents:1 traces:3"},
		{name: "it came after the first call", plan: plan{sends: []int{2}, tools: 1}, pass: []passage{{}, marks}, want: "cc", requests: "traces:2"},
		{name: "it was noticed before, and is gone", plan: plan{sends: []int{2}, tools: 1}, pass: all(passage{}, 2), seen: true, want: "cc", requests: "traces:2"},
		{name: "it was noticed before, and there are no traces", plan: plan{sends: []int{1}}, pass: all(passage{lost: true}, 1), seen: true, want: "q"},
		{name: "no traces, and nothing noticed", plan: plan{sends: []int{1}}, pass: all(passage{lost: true}, 1), want: "c"},
		{name: "the server sends prompts", plan: plan{sends: []int{2}, tools: 1}, pass: []passage{marks, {continuity: true, mark: mark(1), spliced: true}}, turns: true, seen: true, want: "eq", requests: "traces:2"},
		{name: "the server sends prompts, and nothing was noticed", plan: plan{sends: []int{2}, tools: 1}, pass: all(passage{}, 2), turns: true, want: "ee", requests: ""},
	} {
		known := madeUp(t, model, 3, tt.plan)
		life := known.behind(t, tt.pass)
		if tt.turns {
			life.show(known.truths)
		}
		rollout := life.rollout()
		if tt.seen {
			rollout.Engines = seenBehind(t, model)
		}
		tt.cfg.Model = model
		got := take(t, tt.cfg, true, life.reply, rollout)
		graded, notes := "", ""
		for k := range got.calls {
			c := &got.calls[k]
			graded, notes = graded+c.Grade.String()[:1], notes+"; "+short(c)
		}
		if got.err != nil || graded != tt.want {
			t.Errorf("%s: %q, %v, want %q%s", tt.name, graded, got.err, tt.want, notes)
		}
		if tt.requests != "" && asked(got.asked) != tt.requests {
			t.Errorf("%s: %q is requested, want %q", tt.name, asked(got.asked), tt.requests)
		}
	}
}

// An invalid mark does not fail the trace.
func TestMarks(t *testing.T) {
	t.Parallel()
	type read struct {
		continuity bool
		spliced    int32
	}
	for text, want := range map[string]read{
		mark(0): {true, 0}, mark(3): {true, 3}, `{"spliced":3}`: {}, `{"continuity":true}`: {true, -1}, `{"continuity":true,"spliced":-2}`: {true, -1},
		`{"continuity":true,"spliced":"2"}`: {true, -1}, `{"continuity":1}`: {}, `{"continuity":"true"}`: {}, `null`: {}, `7`: {}, `[{}]`: {}, `"x"`: {},
		`{"continuity":true,"spliced":1e2}`: {true, -1}, `{"continuity":true,"spliced":99999999999}`: {true, -1},
	} {
		trace := traceOf(t, `{"messages":[]}`, `{"output_ids":[1],"meta_info":{"rollout":`+text+`,"prompt_tokens":4}}`)
		a, err := record.NewTrace(trace).Answer()
		if err != nil || a.PromptLength != 4 || (read{a.Continuity, a.Spliced}) != want {
			t.Errorf("%s is read as %+v, %v", text, a, err)
		}
	}
}
