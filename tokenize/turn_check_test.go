package tokenize_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/tokenize"
)

func assistantTurn(ids []int32, logprobs []float32) tokenize.Turn {
	return tokenize.Turn{Role: tokenize.RoleAssistant, OutputIDs: ids, Logprobs: logprobs, IDMismatch: -1}
}

func TestCheckTurn(t *testing.T) {
	t.Parallel()
	mismatch := assistantTurn([]int32{1, 2}, []float32{-1, -1})
	mismatch.IDMismatch = 1
	tests := []struct {
		name   string
		turn   tokenize.Turn
		err    error
		reason tokenize.Reason
		token  int
	}{
		{"good", assistantTurn([]int32{1, 2}, []float32{-1, -1}), nil, 0, 0},
		{"surplus", assistantTurn([]int32{1}, []float32{-1, -1}), nil, 0, 0},
		{"empty", assistantTurn([]int32{}, []float32{}), nil, 0, 0},
		{"tool", tokenize.Turn{Role: tokenize.RoleTool, IDMismatch: -1}, nil, 0, 0},
		{"no ids", assistantTurn(nil, []float32{-1}), tokenize.ErrNoTokens, tokenize.ReasonHole, -1},
		{"no list", assistantTurn([]int32{1}, nil), tokenize.ErrLogprob, tokenize.ReasonNoLogprobs, -1},
		{"too few", assistantTurn([]int32{1, 2}, []float32{-1}), tokenize.ErrLength, tokenize.ReasonLengthMismatch, 1},
		{"surplus of nothing", assistantTurn([]int32{}, []float32{-1}), tokenize.ErrLength, tokenize.ReasonLengthMismatch, 0},
		{"another token", mismatch, tokenize.ErrIDMismatch, tokenize.ReasonIDMismatch, 1},
	}
	for _, tt := range tests {
		err := tokenize.CheckTurn(&tt.turn)
		e, ok := errors.AsType[*tokenize.AlignError](err)
		if !errors.Is(err, tt.err) || tt.err != nil && (!ok || e.Reason != tt.reason || e.Token != tt.token) {
			t.Errorf("%s: got %v, want %v %s at token %d", tt.name, err, tt.err, tt.reason, tt.token)
		}
	}
}

func TestCallsFromTurnsErrors(t *testing.T) {
	t.Parallel()
	before := []tokenize.Call{{StepID: "kept"}}
	calls, err := tokenize.CallsFromTurns(before, []tokenize.Turn{{Role: tokenize.RoleTool}})
	var e *tokenize.AlignError
	if !errors.As(err, &e) || e.Reason != tokenize.ReasonNoTurns || !errors.Is(err, tokenize.ErrNoTokens) || len(calls) != 1 {
		t.Errorf("no assistant turn: %v, %d calls", err, len(calls))
	}
	calls, err = tokenize.CallsFromTurns(before, []tokenize.Turn{
		assistantTurn([]int32{1}, []float32{-1}), {Role: tokenize.RoleTool}, assistantTurn([]int32{1}, nil),
	})
	if !errors.As(err, &e) || e.Turn != 2 || e.Reason != tokenize.ReasonNoLogprobs || len(calls) != 1 {
		t.Errorf("third turn bad: %v, %d calls", err, len(calls))
	}
}

// byteEncoder gives every byte its own id.
type byteEncoder struct{ fail bool }

var errEncoder = errors.New("no such character")

func (e byteEncoder) AppendTokens(dst []int32, text string) ([]int32, error) {
	if e.fail {
		return nil, errEncoder
	}
	for _, b := range []byte(text) {
		dst = append(dst, int32(b))
	}
	return dst, nil
}

func TestLiteral(t *testing.T) {
	t.Parallel()
	tool := func(s string) tokenize.Turn { return tokenize.Turn{Role: tokenize.RoleTool, Content: s} }
	turns := []tokenize.Turn{
		tool("a"),
		assistantTurn([]int32{1}, []float32{-1}),
		tool("bc"), tool("d"),
		assistantTurn([]int32{2}, []float32{-1}),
		assistantTurn([]int32{3}, []float32{-1}),
		tool("after the end"),
	}
	l := tokenize.Literal{Encoder: byteEncoder{}}
	for range 2 {
		calls, err := l.Calls(nil, turns)
		if err != nil || len(calls) != 3 {
			t.Fatalf("%d calls, %v", len(calls), err)
		}
		for k, want := range []string{"a", "bcd", ""} {
			var got []byte
			for _, id := range calls[k].Context {
				got = append(got, byte(id))
			}
			c := calls[k]
			if string(got) != want || c.Source != tokenize.SourceLiteral || c.Grade != tokenize.Unverified || c.Reason != tokenize.ReasonNone || c.PromptIDs != nil {
				t.Errorf("call %d: %q %+v, want %q", k, got, c, want)
			}
		}
		if calls[1].After != tokenize.RoleTool || calls[2].After != tokenize.RoleUser {
			t.Error("After is wrong")
		}
	}
	l.Encoder = byteEncoder{fail: true}
	if calls, err := l.Calls(nil, turns); !errors.Is(err, errEncoder) || len(calls) != 0 {
		t.Errorf("%d calls, %v", len(calls), err)
	}
}

func TestAlignRefuses(t *testing.T) {
	t.Parallel()
	known := tokenize.Call{PromptIDs: []int32{1}, Source: tokenize.SourceTap, OutputIDs: []int32{2}, Logprobs: []float32{-1}}
	literal := tokenize.Call{Source: tokenize.SourceLiteral, Grade: tokenize.Unverified, OutputIDs: []int32{2}, Logprobs: []float32{-1}}
	short, bare := known, known
	short.Logprobs, bare.PromptIDs = nil, nil
	forgotten, boasting, guessed := known, known, literal
	forgotten.Source, boasting.Source, guessed.Grade = tokenize.SourceNone, tokenize.SourceTrace, tokenize.CountVerified
	tests := []struct {
		name  string
		calls []tokenize.Call
		want  error
	}{
		{"lengths", []tokenize.Call{known, short}, tokenize.ErrLength},
		{"no prompt", []tokenize.Call{known, bare}, tokenize.ErrNoPrompt},
		{"mixed", []tokenize.Call{known, literal}, tokenize.ErrNoPrompt},
		{"exact from nowhere", []tokenize.Call{known, forgotten}, tokenize.ErrInvariant},
		{"exact and rebuilt", []tokenize.Call{boasting}, tokenize.ErrInvariant},
		{"verified and literal", []tokenize.Call{guessed}, tokenize.ErrInvariant},
	}
	for _, tt := range tests {
		rows, sum, err := tokenize.NewAligner(tokenize.AlignConfig{}).Align(tt.calls)
		if !errors.Is(err, tt.want) || len(rows) != 0 || sum.Sampled != 0 {
			t.Errorf("%s: %v, %d rows, want %v", tt.name, err, len(rows), tt.want)
		}
	}
}

func TestCheckCounts(t *testing.T) {
	t.Parallel()
	calls := []tokenize.Call{
		{PromptIDs: make([]int32, 10), OutputIDs: make([]int32, 3)},
		{PromptIDs: make([]int32, 15), OutputIDs: make([]int32, 4)},
	}
	unknown := slices.Clone(calls)
	unknown[1].PromptIDs = nil
	tests := []struct {
		name  string
		calls []tokenize.Call
		want  tokenize.Counts
		err   tokenize.Reason
	}{
		{"agree", calls, tokenize.Counts{PromptTokens: 25, CompletionTokens: 7, Steps: 2}, tokenize.ReasonNone},
		{"not given", calls, tokenize.Counts{PromptTokens: -1, CompletionTokens: -1, Steps: -1}, tokenize.ReasonNone},
		{"a token missing", calls, tokenize.Counts{PromptTokens: 25, CompletionTokens: 8, Steps: 2}, tokenize.ReasonHole},
		{"a step missing", calls, tokenize.Counts{PromptTokens: 25, CompletionTokens: 7, Steps: 3}, tokenize.ReasonHole},
		{"a prompt one off", calls, tokenize.Counts{PromptTokens: 24, CompletionTokens: 7, Steps: 2}, tokenize.ReasonCountMismatch},
		{"a prompt unknown", unknown, tokenize.Counts{PromptTokens: 25, CompletionTokens: 7, Steps: 2}, tokenize.ReasonNone},
	}
	for _, tt := range tests {
		err := tokenize.CheckCounts(tt.calls, tt.want)
		e, ok := errors.AsType[*tokenize.AlignError](err)
		if ok != (tt.err != tokenize.ReasonNone) || ok && (e.Reason != tt.err || !errors.Is(err, tokenize.ErrCounts)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.err)
		}
	}
}

// checkWords checks the words of an enum's values, in both directions.
func checkWords[T interface {
	comparable
	String() string
	MarshalText() ([]byte, error)
}, P interface {
	*T
	UnmarshalText(text []byte) error
}](t *testing.T, value func(i int) T, words ...string,
) {
	t.Helper()
	for i, want := range words {
		v := value(i)
		if b, err := v.MarshalText(); v.String() != want || string(b) != want || err != nil {
			t.Errorf("%T(%d) is %q, marshals to %q (%v), want %q", v, i, v.String(), b, err, want)
		}
		var got T
		if err := P(&got).UnmarshalText([]byte(want)); err != nil || got != v {
			t.Errorf("%T: reading %q = %v, %v", v, want, got, err)
		}
	}
	beyond := value(len(words))
	if b, err := beyond.MarshalText(); err == nil {
		t.Errorf("%T: a value without a word marshals to %q", beyond, b)
	}
	if err := P(&beyond).UnmarshalText([]byte("nonsense")); err == nil {
		t.Errorf("%T: nonsense is accepted", beyond)
	}
}

// TestWords pins the closed lists that files and metrics depend on. A new word is compatible; a
// changed word is a new schema version.
func TestWords(t *testing.T) {
	t.Parallel()
	checkWords(t, func(i int) tokenize.Role { return tokenize.Role(i) }, "prompt", "assistant", "tool", "user")
	checkWords(t, func(i int) tokenize.PromptSource { return tokenize.PromptSource(i) }, "none", "turns", "tap", "stored", "trace", "literal")
	checkWords(t, func(i int) tokenize.Grade { return tokenize.Grade(i) }, "exact", "count_verified", "unverified", "quarantined")
	checkWords(t, func(i int) tokenize.Reason { return tokenize.Reason(i) },
		"", "no_prompt", "count_mismatch", "length_mismatch", "id_mismatch", "no_logprobs", "hole", "compacted", "vocab", "drift", "no_turns",
		"grade", "tool_order", "clock", "no_trace", "not_native", "deleted", "unfinished", "trace_lost", "continuity",
		"no_ids", "auxiliary", "superseded", "cut_answer", "ambiguous_retry")
	checkWords(t, func(i int) tokenize.ChainKind { return tokenize.ChainKind(i) }, "main", "subagent", "auxiliary")
	checkWords(t, func(i int) tokenize.DivergenceKind { return tokenize.DivergenceKind(i) },
		"", "prompt", "context", "earlier_output", "last_output", "proper_prefix", "after_lost")
	checkWords(t, func(i int) tokenize.Drift { return tokenize.Drift(i) }, "fork", "realign", "reject")
	checkWords(t, func(i int) tokenize.Flags { return tokenize.Flags(1 << i >> 1) },
		"", "cut", "client_tool_context", "censored", "surplus_logprobs", "realigned", "reattached", "length", "spliced", "after_stop", "padded_id")
	both := tokenize.FlagCut | tokenize.FlagRealigned
	if both.String() != "cut,realigned" || !slices.Equal(both.AppendNames(nil), []string{"cut", "realigned"}) {
		t.Errorf("flags = %q", both)
	}
	var read tokenize.Flags
	if err := read.UnmarshalText([]byte("cut,realigned")); err != nil || read != both {
		t.Errorf("%v, %v", read, err)
	}
	if b, err := json.Marshal(map[tokenize.Grade]tokenize.Reason{tokenize.Quarantined: tokenize.ReasonHole}); err != nil || string(b) != `{"quarantined":"hole"}` {
		t.Errorf("%s, %v", b, err)
	}
}
