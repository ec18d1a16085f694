package enginesim_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
)

type chatAnswer struct {
	PromptIDs []int32 `json:"prompt_token_ids"`
	Choices   []struct {
		Message struct {
			Content *string
			Calls   []struct {
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
		Delta struct {
			Content string
		}
		Logprobs *struct {
			Content []struct {
				Token   string
				Logprob float32
			}
		}
		Finish   *string `json:"finish_reason"`
		TokenIDs []int32 `json:"token_ids"`
	}
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
	}
}

const chatMessages = `{"model":"/models/qwen3","messages":[{"role":"system","content":"You are careful."},{"role":"user","content":"Add. [script:SCRIPT]"}]`

const oneTool = `,"tools":[{"type":"function","function":{"name":"add","parameters":{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}}}}}]`

func TestChatCompletion(t *testing.T) {
	t.Parallel()
	s := serve(t, enginesim.Config{})
	ask := func(script, more string) chatAnswer {
		t.Helper()
		status, body := s.post(t, "/v1/chat/completions", strings.Replace(chatMessages, "SCRIPT", script, 1)+`,"max_completion_tokens":900`+more+`}`)
		if status != 200 {
			t.Fatalf("%d %s", status, body)
		}
		return decode[chatAnswer](t, body)
	}
	plain := ask("tool", "")
	if plain.PromptIDs != nil || plain.Choices[0].TokenIDs != nil || plain.Choices[0].Logprobs != nil {
		t.Errorf("ids that were not requested: %+v", plain)
	}
	a := ask("tool", oneTool+`,"logprobs":true,"return_token_ids":true,"temperature":0.5`)
	calls := s.Calls()
	c := calls[len(calls)-1]
	if !slices.Equal(a.PromptIDs, c.InputIDs) || !slices.Equal(a.Choices[0].TokenIDs, c.OutputIDs) || a.Usage.Prompt != len(c.InputIDs) || a.Usage.Completion != len(c.OutputIDs) {
		t.Errorf("answer %+v, truth %+v", a, c)
	}
	for i, lp := range a.Choices[0].Logprobs.Content {
		if lp.Logprob != c.Logprobs[i] {
			t.Errorf("logprob %d: %v, truth %v", i, lp, c.Logprobs[i])
		}
	}
	m := a.Choices[0].Message
	if m.Content != nil || len(m.Calls) != 1 || m.Calls[0].Function.Name != "add" || m.Calls[0].Function.Arguments != `{"a": 2, "b": 3}` || *a.Choices[0].Finish != "tool_calls" {
		t.Errorf("message %+v", m)
	}
	if string(c.Sampling) == "" || !strings.Contains(string(c.Sampling), `"temperature":0.5`) || strings.Contains(string(c.Sampling), "careful") {
		t.Errorf("sampling %s", c.Sampling)
	}

	// The call and its result, and then the next call.
	status, body := s.post(t, "/v1/chat/completions", strings.TrimSuffix(strings.Replace(chatMessages, "SCRIPT", "tool", 1), "]")+
		`,{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"add","arguments":"{\"a\": 2, \"b\": 3}"}}]},{"role":"tool","tool_call_id":"c1","content":"5"}]`+oneTool+`}`)
	if status != 200 || !strings.Contains(string(body), "The sum is 5.") {
		t.Errorf("%d %s", status, body)
	}
	status, body = s.post(t, "/v1/chat/completions", `{"messages":[{"role":"system","content":"Write a detailed summary."},{"role":"user","content":"user: Add. [script:tool]"}]}`)
	if status != 200 || !strings.Contains(string(body), "Summary: ") {
		t.Errorf("%d %s", status, body)
	}
}

// TestStreams joins the events of both dialects.
func TestStreams(t *testing.T) {
	t.Parallel()
	s := serve(t, enginesim.Config{})
	events := func(body []byte) (out [][]byte) {
		for part := range bytes.SplitSeq(bytes.TrimSpace(body), []byte("\n\n")) {
			out = append(out, bytes.TrimPrefix(part, []byte("data: ")))
		}
		if string(out[len(out)-1]) != "[DONE]" {
			t.Errorf("the stream ends with %s", out[len(out)-1])
		}
		return out[:len(out)-1]
	}
	_, body := s.post(t, "/generate", generateBody(s.prompt(t, "agent-1", "Go. [script:think]", 0), `,"stream":true`))
	var last generated
	n := 0
	for _, event := range events(body) {
		g := decode[generated](t, event)
		if !slices.Equal(g.OutputIDs[:len(last.OutputIDs)], last.OutputIDs) {
			t.Error("an event does not extend the previous one")
		}
		last = g
		n++
	}
	c := s.Calls()[0]
	if n < 3 || !slices.Equal(last.OutputIDs, c.OutputIDs) || last.Text != c.Text {
		t.Errorf("%d events, the last %+v, truth %+v", n, last, c)
	}

	_, body = s.post(t, "/v1/chat/completions", strings.Replace(chatMessages, "SCRIPT", "unicode", 1)+`,"max_tokens":500,"stream":true,"stream_options":{"include_usage":true},"logprobs":true,"return_token_ids":true}`)
	var joined chatAnswer
	var text string
	var ids []int32
	var lps []float32
	for _, event := range events(body) {
		a := decode[chatAnswer](t, event)
		joined.PromptIDs = append(joined.PromptIDs, a.PromptIDs...)
		if a.Usage != nil {
			joined.Usage = a.Usage
		}
		for _, choice := range a.Choices {
			text += choice.Delta.Content
			ids = append(ids, choice.TokenIDs...)
			if choice.Logprobs != nil {
				for _, lp := range choice.Logprobs.Content {
					lps = append(lps, lp.Logprob)
				}
			}
		}
	}
	c = s.Calls()[1]
	if !slices.Equal(joined.PromptIDs, c.InputIDs) || !slices.Equal(ids, c.OutputIDs) || !slices.Equal(lps, c.Logprobs) || text != c.Text || joined.Usage == nil {
		t.Errorf("joined %q %v %v, truth %+v", text, ids, lps, c)
	}
}

// TestBytes is an engine without a model, which the simulated server can ask.
func TestBytes(t *testing.T) {
	t.Parallel()
	var s served
	s.start(t, enginesim.Config{})
	ids := []int32{}
	for _, b := range []byte("Go. [script:tool]\n") {
		ids = append(ids, int32(b))
	}
	if g := s.generate(t, ids); g.OutputIDs[len(g.OutputIDs)-1] != 256 || !strings.HasPrefix(g.Text, "<tool_call>") {
		t.Errorf("%+v", g)
	}
}
