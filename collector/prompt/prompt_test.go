package prompt_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/tokenize"
)

// says returns an assistant turn with n tokens, numbered from id. A promptLen of 0 means no prompt.
func says(id int32, n, promptLen int) tokenize.Turn {
	t := tokenize.Turn{Role: tokenize.RoleAssistant, IDMismatch: -1}
	for i := range n {
		t.OutputIDs = append(t.OutputIDs, id+int32(i))
		t.Logprobs = append(t.Logprobs, -0.5)
	}
	for i := range promptLen {
		t.PromptIDs = append(t.PromptIDs, int32(i))
	}
	return t
}

func returns(text string) tokenize.Turn {
	return tokenize.Turn{Role: tokenize.RoleTool, Content: text, IDMismatch: -1}
}

func reply(sends ...[]tokenize.Turn) *collector.Reply {
	r := &collector.Reply{}
	for _, turns := range sends {
		r.Sends = append(r.Sends, collector.Send{Turns: turns})
	}
	return r
}

func show(calls []tokenize.Call) []string {
	var out []string
	for i := range calls {
		c := &calls[i]
		out = append(out, fmt.Sprintf("%v(%d)>%v after %v: %v %v", c.Source, len(c.PromptIDs), c.OutputIDs, c.After, c.Grade, c.Reason))
	}
	return out
}

func TestAuto(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		reply *collector.Reply
		want  []string // the first call's After has no meaning
	}{
		{
			"prompts on every turn", reply([]tokenize.Turn{says(10, 2, 3), returns("x"), says(20, 1, 6)}),
			[]string{"turns(3)>[10 11] after *: exact ", "turns(6)>[20] after tool: exact "},
		},
		{
			"prompts on no turn", reply([]tokenize.Turn{says(10, 1, 0), says(20, 1, 0)}),
			[]string{"none(0)>[10] after *: quarantined no_prompt", "none(0)>[20] after user: quarantined no_prompt"},
		},
		{
			"prompts on some", reply([]tokenize.Turn{says(10, 1, 0), returns("x"), says(20, 1, 4)}),
			[]string{"none(0)>[10] after *: quarantined no_prompt", "turns(4)>[20] after tool: exact "},
		},
		{
			"a second message after a last word", reply([]tokenize.Turn{says(10, 1, 3)}, []tokenize.Turn{says(20, 1, 8)}),
			[]string{"turns(3)>[10] after *: exact ", "turns(8)>[20] after user: exact "},
		},
		{
			"a second message after a tool", reply([]tokenize.Turn{says(10, 1, 3), returns("x")}, []tokenize.Turn{says(20, 1, 8)}),
			[]string{"turns(3)>[10] after *: exact ", "turns(8)>[20] after user: exact "},
		},
		{
			"a client's tool", reply([]tokenize.Turn{says(10, 1, 3)}, []tokenize.Turn{returns("x"), says(20, 1, 8)}),
			[]string{"turns(3)>[10] after *: exact ", "turns(8)>[20] after tool: exact "},
		},
		{
			"a send without a call", reply([]tokenize.Turn{says(10, 1, 3)}, []tokenize.Turn{returns("x")}, []tokenize.Turn{says(20, 1, 8)}),
			[]string{"turns(3)>[10] after *: exact ", "turns(8)>[20] after user: exact "},
		},
	}
	for _, tt := range tests {
		for _, force := range []tokenize.PromptSource{tokenize.SourceNone, tokenize.SourceTurns} {
			calls := must(newPrompter(t, prompt.Config{Force: force}).Prompts(t.Context(), tt.reply, nil))(t)
			got, want := show(calls), slices.Clone(tt.want)
			want[0] = strings.Replace(want[0], "*", calls[0].After.String(), 1)
			if !slices.Equal(got, want) {
				t.Errorf("%s: source %v: calls\n%q\nwant\n%q", tt.name, force, got, want)
			}
		}
	}
}

// A turn that breaks a rule fails the sample. The error counts turns from the first send.
func TestBadTurnOfALaterSend(t *testing.T) {
	t.Parallel()
	p := newPrompter(t, prompt.Config{})
	bad := says(20, 2, 3)
	bad.Logprobs = bad.Logprobs[:1]
	_, err := p.Prompts(t.Context(), reply([]tokenize.Turn{says(10, 1, 3), returns("x")}, []tokenize.Turn{bad}), nil)
	e, ok := errors.AsType[*tokenize.AlignError](err)
	if !ok || e.Turn != 2 || e.Reason != tokenize.ReasonLengthMismatch {
		t.Errorf("Prompts = %v, want a length mismatch in turn 2", err)
	}
}

type letters struct{}

func (letters) AppendTokens(dst []int32, text string) ([]int32, error) {
	for i := range len(text) {
		dst = append(dst, int32(text[i]))
	}
	return dst, nil
}

func TestLiteral(t *testing.T) {
	t.Parallel()
	p := newPrompter(t, prompt.Config{Force: tokenize.SourceLiteral, Encoder: letters{}})
	calls := must(p.Prompts(t.Context(), reply([]tokenize.Turn{says(10, 1, 0), returns("ab")}, []tokenize.Turn{says(20, 1, 0)}), nil))(t)
	if len(calls) != 2 || !slices.Equal(calls[1].Context, []int32{'a', 'b'}) || calls[1].Grade != tokenize.Unverified || calls[1].Source != tokenize.SourceLiteral {
		t.Errorf("calls %+v", calls)
	}
}

func TestNewRefusesWhatItCannotDo(t *testing.T) {
	t.Parallel()
	for _, cfg := range []prompt.Config{
		{Force: tokenize.SourceLiteral}, {Force: tokenize.SourceStored}, {Force: tokenize.SourceTrace}, {Force: tokenize.SourceTap},
	} {
		if _, err := prompt.New(cfg); err == nil {
			t.Errorf("New(%v) = nil, want an error", cfg.Force)
		}
	}
}
