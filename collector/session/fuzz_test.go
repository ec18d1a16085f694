package session_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/tap"
)

// A tape turns fuzzed bytes into choices.
type tape struct{ b []byte }

func (p *tape) next(n int) int {
	if len(p.b) == 0 {
		return 0
	}
	v := int(p.b[0])
	p.b = p.b[1:]
	return v % n
}

// someTexts are messages, lists of tools, and texts that are neither.
var someTexts = []string{
	`{"role":"system","content":"a"}`, `{"role":"user","content":"fix the bug"}`, `{"role":"user","content":[{"type":"text","text":"fix"},{"type":"image"}]}`,
	`{"role":"assistant","content":"b"}`, `{"role":"assistant","content":null,"tool_calls":[{"id":"x","function":{"name":"bash","arguments":"{}"}}]}`,
	`{"role":"assistant","tool_calls":[{"function":{"name":"bash","arguments":{"a": 1}}},{"id":"y"}]}`, `{"role":"tool","tool_call_id":"x","content":"c"}`,
	`{"role":"assistant"}`, `{}`, `null`, `[]`, `{"role":1}`, `not JSON`, ``,
	`[{"type":"function","function":{"name":"bash"}},{"name":"edit"}]`, `[{"type":"function","function":{"name":"edit"}}]`, `[{}]`,
}

// recordFrom makes a record whose calls share messages, tools and tokens.
func recordFrom(p *tape) *session.Record {
	r := &session.Record{ID: "s"}
	for range 1 + p.next(len(someTexts)) {
		r.Texts = append(r.Texts, json.RawMessage(someTexts[p.next(len(someTexts))]))
	}
	if p.next(2) == 1 {
		r.Head.Task = &session.Task{Prompt: "fix the bug"}
	}
	began := time.Unix(1_700_000_000, 0)
	var seen [][]int32
	for i := range p.next(12) {
		c := session.Call{Number: i + 1, Tools: p.next(len(r.Texts)+1) - 1, Retry: p.next(4) - 1}
		if p.next(40) == 1 {
			c.Number, c.Tools = p.next(4), p.next(30)-2
		}
		for range p.next(6) {
			c.Messages = append(c.Messages, p.next(len(r.Texts)))
		}
		if i > 0 && p.next(2) == 1 { // more messages than an earlier call
			c.Messages = append(slices.Clone(r.Calls[p.next(i)].Messages), c.Messages...)
		}
		c.Call = tap.Call{Began: began.Add(time.Duration(p.next(20)) * time.Second), Status: 200 * p.next(2), Cut: p.next(4) == 1, PromptTokens: -1, OutputTokens: -1}
		c.Ended = c.Began.Add(time.Duration(p.next(8)-1) * time.Second)
		if len(seen) > 0 && p.next(3) > 0 {
			c.Prompt = slices.Clone(seen[p.next(len(seen))])
		}
		for range p.next(4) * (1 + 100*p.next(2)) {
			c.Prompt = append(c.Prompt, int32(p.next(3)))
		}
		for range p.next(4) * (1 + 100*p.next(2)) {
			c.Output, c.Logprobs = append(c.Output, int32(p.next(3))), append(c.Logprobs, -0.5)
		}
		if p.next(10) == 1 && len(c.Output) > 0 {
			c.Logprobs = c.Logprobs[1:]
		}
		if p.next(4) > 0 {
			c.PromptTokens, c.OutputTokens = int32(len(c.Prompt)), int32(len(c.Output))
		}
		c.Unread = []string{"", "", "", "no_ids"}[p.next(4)]
		c.Finish = []string{"stop", "length", "", "tool_calls", "abort"}[p.next(5)]
		c.Delivered = p.next(3) > 0
		if p.next(4) > 0 {
			c.Answer = r.Texts[p.next(len(r.Texts))]
		}
		seen = append(seen, slices.Concat(c.Prompt, c.Output))
		r.Calls = append(r.Calls, c)
	}
	if p.next(8) == 1 {
		r.End = &session.End{Calls: p.next(12)}
	}
	return r
}

// FuzzBuild checks that Build never panics, that every rollout passes verify, and that the order of
// the calls in the record does not matter.
func FuzzBuild(f *testing.F) {
	for seed := range 200 {
		b := make([]byte, 1500)
		x := uint32(seed + 1)
		for i := range b {
			x = x*1664525 + 1013904223
			b[i] = byte(x >> 24)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p := &tape{b}
		cfg := session.Config{TrainAuxiliary: p.next(2) == 1}
		r := recordFrom(p)
		out, err := session.Build(r, cfg)
		if out == nil {
			if !errors.Is(err, session.ErrNoCalls) && !errors.Is(err, session.ErrDamaged) {
				t.Fatal(err)
			}
			return
		}
		if err != nil && !errors.Is(err, session.ErrForeign) {
			t.Fatal(err)
		}
		if _, err := verify(r, out); err != nil {
			t.Fatalf("%v\n%s", err, summary(out))
		}
		if out.Main.Messages != nil && !json.Valid(out.Main.Messages) {
			t.Fatalf("messages %s", out.Main.Messages)
		}
		slices.Reverse(r.Calls)
		again, err2 := session.Build(r, cfg)
		if fmt.Sprint(err) != fmt.Sprint(err2) || !reflect.DeepEqual(out, again) {
			t.Fatalf("another result for another order of the calls:\n%s\n%s", summary(out), summary(again))
		}
	})
}
