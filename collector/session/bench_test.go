package session_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
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

// manyConversations returns the record of a session with the given number of calls in small
// conversations. The shape is "subagents" if each conversation has two calls, the same system message
// and the same first answer; "texts" if each has one call, whose answer the next request quotes;
// "unfinished" if each ends with a tool call, after a call without tools; "retries" if all requests are
// the same, one after the other; "twins" if all requests are the same, at the same time, and each has a
// second call; "forks" if all requests continue the same call; "ids" if all answers have the same
// tool-call ids and the system message changes; "repeated" if the first answer repeats one byte, in
// proportion to the number of calls, and the last request quotes it.
func manyConversations(calls int, shape string) *session.Record {
	h := newHarness(task)
	m := h.mainConv().turn(does("s", "agent", "{}"), result("s", "started"))
	last := "nothing"
	for k := 1; len(h.record.Calls) < calls-1; k++ {
		c := h.subConv(fmt.Sprint("look at ", k))
		switch shape {
		case "subagents":
			c.turn(does("bash:0", "bash", "{}"), result("bash:0", "ok")).call(says("looked"))
		case "texts":
			c.add(user(last))
			last = fmt.Sprint("I have completed the task that you gave to me: ", k)
			c.call(says(last))
		case "unfinished":
			h.conv("", system("title"), user("look")).call(says("a title"))
			c.call(does(fmt.Sprint(k), "bash", "{}"))
		case "retries":
			h.subConv("look").call(says(fmt.Sprint("answer ", k)))
		case "twins":
			c = h.subConv("look")
			first := make([]*pending, (calls-2)/2)
			for i := range first {
				first[i] = c.begin()
			}
			for i, p := range first {
				p.end(does("bash:0", "bash", fmt.Sprintf(`{"n": %d}`, i)))
			}
			for i := range first {
				c.clone(does("bash:0", "bash", fmt.Sprintf(`{"n": %d}`, i)), result("bash:0", "ok")).call(says("looked"))
			}
		case "forks":
			m.clone(user(fmt.Sprint("try ", k))).call(says("no"))
		case "ids":
			c.msgs[0] = system(fmt.Sprint("it is ", k))
			c.turn(does("bash:0", "bash", fmt.Sprintf(`{"n": %d}`, k)), result("bash:0", "ok"))
			c.msgs[0] = system(fmt.Sprint("it is ", k, " and a half"))
			c.call(says("looked"))
		case "repeated":
			answer := "looked"
			if k == 1 {
				answer = strings.Repeat("-", 160*calls)
				m.add(user("result: " + answer))
			}
			c.call(says(answer))
		}
	}
	m.call(done)
	return &h.record
}

var conversationShapes = []string{"subagents", "texts", "unfinished", "retries", "twins", "forks", "ids", "repeated"}

// BenchmarkConversations measures sessions with many conversations.
func BenchmarkConversations(b *testing.B) {
	for _, calls := range []int{2_000, 20_000} {
		for _, shape := range conversationShapes {
			b.Run(fmt.Sprintf("calls=%d/shape=%s", calls, shape), func(b *testing.B) {
				r := manyConversations(calls, shape)
				b.ReportAllocs()
				for b.Loop() {
					if _, err := session.Build(r, session.Config{}); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*calls), "us/call")
			})
		}
	}
}
