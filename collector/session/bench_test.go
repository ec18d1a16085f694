package session_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/tap"
)

// longSession returns the record of a session with the given number of calls, whose prompts have the
// given number of tokens. The shape is "chain" if each call continues the call before it, "drift" if
// the tokens of its answer differ from the next prompt, or "equal" if all requests are the same.
func longSession(calls, tokens int, shape string) *session.Record {
	r := &session.Record{ID: "s", Texts: []json.RawMessage{
		json.RawMessage(`[{"type":"function","function":{"name":"bash"}}]`),
		json.RawMessage(`{"role":"system","content":"you are an agent"}`),
		json.RawMessage(`{"role":"user","content":"fix the bug"}`),
	}}
	const each = 20 // tokens in an output, and in a tool result
	history := make([]int32, tokens-min(tokens, 2*each*calls))
	for i := range history {
		history[i] = int32(i * 7919 % 150_000)
	}
	messages := []int{1, 2}
	began := time.Unix(1_700_000_000, 0)
	for k := range calls {
		c := session.Call{Number: k + 1, Messages: slices.Clone(messages), Delivered: true, Retry: -1}
		c.Call = tap.Call{Began: began.Add(time.Duration(2*k) * time.Second), Status: 200, Prompt: slices.Clone(history), Finish: "tool_calls", Matched: -1}
		c.Ended = c.Began.Add(time.Second)
		if shape == "equal" {
			c.Ended = began.Add(time.Hour)
		}
		for i := range each {
			c.Output, c.Logprobs = append(c.Output, int32((k*31+i)%150_000)), append(c.Logprobs, -0.5)
		}
		c.PromptTokens, c.OutputTokens = int32(len(c.Prompt)), int32(len(c.Output))
		id := fmt.Sprint("c", k)
		answer := does(id, "bash", "{}")
		c.Answer = json.RawMessage(answer.json())
		r.Calls = append(r.Calls, c)
		if shape == "equal" {
			continue
		}
		history = append(history, c.Output...)
		if shape == "drift" {
			history[len(history)-3]++
		}
		for i := range each {
			history = append(history, int32(i))
		}
		tool := result(id, "ok "+id)
		r.Texts = append(r.Texts, c.Answer, json.RawMessage(tool.json()))
		messages = append(messages, len(r.Texts)-2, len(r.Texts)-1)
	}
	return r
}

// BenchmarkBuild measures sessions with long prompts.
func BenchmarkBuild(b *testing.B) {
	for _, size := range []struct{ calls, tokens int }{{50, 50_000}, {500, 5_000}, {500, 50_000}} {
		for _, shape := range []string{"chain", "drift", "equal"} {
			b.Run(fmt.Sprintf("calls=%d/tokens=%d/shape=%s", size.calls, size.tokens, shape), func(b *testing.B) {
				r := longSession(size.calls, size.tokens, shape)
				b.ReportAllocs()
				for b.Loop() {
					out, err := session.Build(r, session.Config{})
					if err != nil || out.Tally.Sampled != 20*size.calls {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(size.calls*size.tokens)*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
			})
		}
	}
}
