package enginesim_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// A choice has the members that one of the engines puts into a choice.
type choice struct {
	Message   message
	Delta     message
	Logprobs  *struct{ Content []tokenLogprob }
	Finish    *string `json:"finish_reason"`
	Matched   *int32  `json:"matched_stop"`
	TokenIDs  []int32 `json:"token_ids"`
	Response  []int32 `json:"response_token_ids"`
	PromptIDs []int32 `json:"prompt_token_ids"`
	Meta      *struct {
		Logprobs [][]*float64 `json:"output_token_logprobs"`
		Version  string       `json:"weight_version"`
	} `json:"meta_info"`
}

type tokenLogprob struct {
	Token   string
	Logprob float32
}

type message struct {
	Content   *string
	Reasoning string
	Thought   string `json:"reasoning_content"`
	Calls     []struct {
		Index    int
		ID       string
		Function struct{ Name, Arguments string }
	} `json:"tool_calls"`
}

// A completion is an answer or an event in a stream.
type completion struct {
	Choices   []choice
	PromptIDs []int32 `json:"prompt_token_ids"`
	Ext       *struct {
		Input  []int32   `json:"input_ids"`
		Output [][]int32 `json:"output_ids"`
	} `json:"sglext"`
	Usage *struct {
		Completion int `json:"completion_tokens"`
	}
}

// An outcome is what a client makes of an answer, streamed or not.
type outcome struct {
	content, reasoning, finish string
	calls                      []string // id, name and arguments
	prompt, output             []int32  // from wherever they were
	where                      string   // the names of the members with ids, in their order
	logprobs                   []float32
	usage                      int
}

func (o *outcome) add(t *testing.T, c completion) {
	t.Helper()
	note := func(name string, into *[]int32, ids []int32) {
		if ids != nil {
			*into = append(*into, ids...)
			if !strings.HasSuffix(o.where, name) {
				o.where = strings.TrimSpace(o.where + " " + name)
			}
		}
	}
	note("prompt_token_ids", &o.prompt, c.PromptIDs)
	for _, x := range c.Choices {
		m := x.Delta
		if x.Message.Content != nil || x.Message.Calls != nil {
			m = x.Message
		}
		if m.Content != nil {
			o.content += *m.Content
		}
		o.reasoning += m.Reasoning + m.Thought
		for _, call := range m.Calls {
			if call.ID != "" {
				o.calls = append(o.calls, call.ID+" "+call.Function.Name+" ")
			}
			o.calls[call.Index] += call.Function.Arguments
		}
		if x.Finish != nil {
			o.finish = *x.Finish
		}
		if x.Logprobs != nil {
			for _, lp := range x.Logprobs.Content {
				o.logprobs = append(o.logprobs, lp.Logprob)
			}
		}
		note("choices.prompt_token_ids", &o.prompt, x.PromptIDs)
		note("choices.token_ids", &o.output, x.TokenIDs)
		note("choices.response_token_ids", &o.output, x.Response)
	}
	if c.Ext != nil {
		if len(c.Choices) > 0 && c.Choices[0].Message.Content == nil {
			t.Error("sglext in an event with choices")
		}
		note("sglext.input_ids", &o.prompt, c.Ext.Input)
		for _, ids := range c.Ext.Output {
			note("sglext.output_ids", &o.output, ids)
		}
	}
	if c.Usage != nil {
		o.usage = c.Usage.Completion
	}
}

// complete asks for a completion and reads the answer, streamed or not.
func (s *served) complete(t *testing.T, body string, headers ...string) outcome {
	t.Helper()
	status, raw := s.ask(t, body, headers...)
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, raw)
	}
	var o outcome
	if !strings.Contains(body, `"stream":true`) {
		o.add(t, decode[completion](t, raw))
		return o
	}
	parts := bytes.Split(bytes.TrimSpace(raw), []byte("\n\n"))
	if string(parts[len(parts)-1]) != "data: [DONE]" {
		t.Errorf("the stream ends with %s", parts[len(parts)-1])
	}
	for _, part := range parts[:len(parts)-1] {
		o.add(t, decode[completion](t, bytes.TrimPrefix(part, []byte("data: "))))
	}
	return o
}

// ask returns the status and what was received of the body.
func (s *served) ask(t *testing.T, body string, headers ...string) (int, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		r.Header.Set(h, "1")
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil // the connection was dropped
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body) // an answer that is cut off is what some tests expect
	return resp.StatusCode, b
}

// TestDialects asks each dialect in each way, and compares the ids and where they were with what
// the dialect promises.
func TestDialects(t *testing.T) {
	t.Parallel()
	const (
		flag    = `,"return_token_ids":true`
		flags   = `,"return_token_ids":true,"return_prompt_token_ids":true,"return_meta_info":true`
		ext     = `,"return_input_ids_in_sglext":true,"return_output_ids_in_sglext":true`
		both    = "prompt_token_ids choices.token_ids"
		perNew  = "choices.prompt_token_ids choices.response_token_ids"
		perOld  = "choices.prompt_token_ids choices.token_ids"
		sglext  = "sglext.input_ids sglext.output_ids"
		refused = "refused"
	)
	headers := []string{"X-SGLext-Return-Input-IDs", "x-sglext-return-output-ids"}
	for _, tt := range []struct {
		dialect      enginesim.Dialect
		ask          string
		headers      []string
		whole, event string // the members with ids
	}{
		{enginesim.DialectVLLM, "", nil, "", ""},
		{enginesim.DialectVLLM, flag, nil, both, both},
		{enginesim.DialectVLLM, ext, headers, "", ""},
		{enginesim.DialectSGLang, "", nil, "", ""},
		{enginesim.DialectSGLang, "", headers, sglext, sglext},
		{enginesim.DialectSGLang, "", headers[1:], "sglext.output_ids", "sglext.output_ids"},
		{enginesim.DialectSGLang, ext, nil, sglext, sglext},
		{enginesim.DialectSGLang, flags, nil, perNew, refused},
		{enginesim.DialectSGLangPlain, "", headers, "", ""},
		{enginesim.DialectSGLangPlain, flags, nil, perNew, refused},
		{enginesim.DialectSGLangPlain, flag, nil, perNew, refused},
		{enginesim.DialectSGLangFirst, flags, nil, perOld, refused},
		{enginesim.DialectNone, flags + ext, headers, "", ""},
	} {
		t.Run(fmt.Sprint(tt.dialect, tt.ask, len(tt.headers)), func(t *testing.T) {
			t.Parallel()
			s := serve(t, enginesim.Config{Dialect: tt.dialect, Reasoning: true})
			body := strings.Replace(chatMessages, "SCRIPT", "think-parallel", 1) + oneTool + `,"logprobs":true` + tt.ask
			whole := s.complete(t, body+`}`, tt.headers...)
			c := s.Calls()[0]
			s.compare(t, whole, c, tt.whole)
			if !c.Complete || c.Listed != len(whole.output) || c.FinishReason != "tool_calls" {
				t.Errorf("complete %t, %d of %d ids, %s", c.Complete, c.Listed, len(whole.output), c.FinishReason)
			}
			body += `,"stream":true,"stream_options":{"include_usage":true}}`
			if tt.event == refused {
				status, raw := s.ask(t, body, tt.headers...)
				if status != http.StatusBadRequest || !strings.Contains(string(raw), "is not supported with streaming on /v1/chat/completions") ||
					strings.Contains(string(raw), `"error":`) {
					t.Errorf("%d %s", status, raw)
				}
				return
			}
			streamed := s.complete(t, body, tt.headers...)
			s.compare(t, streamed, s.Calls()[1], tt.event)
			if streamed.content != whole.content || streamed.reasoning != whole.reasoning || !slices.Equal(streamed.calls, whole.calls) {
				t.Errorf("streamed %+v, whole %+v", streamed, whole)
			}
		})
	}
}

// compare compares an answer with the engine's record.
func (s *served) compare(t *testing.T, o outcome, c enginesim.Call, where string) {
	t.Helper()
	if o.where != where {
		t.Errorf("ids in %q, want %q", o.where, where)
	}
	if o.prompt != nil && !slices.Equal(o.prompt, c.InputIDs) || o.output != nil && !slices.Equal(o.output, c.OutputIDs) {
		t.Errorf("%v %v, truth %+v", o.prompt, o.output, c)
	}
	if !slices.Equal(o.logprobs, c.Logprobs) || o.usage != len(c.OutputIDs) || o.finish != "tool_calls" {
		t.Errorf("%d logprobs, usage %d, finish %s; truth %+v", len(o.logprobs), o.usage, o.finish, c)
	}
	if len(o.calls) != 2 || !strings.HasSuffix(o.calls[1], ` add {"a": 3, "b": 4}`) || strings.TrimSpace(o.reasoning) != "Two at once." || strings.Contains(o.content, "think") {
		t.Errorf("content %q, reasoning %q, calls %q", o.content, o.reasoning, o.calls)
	}
}

// TestMetaInfo reads ids and log-probabilities from SGLang's meta_info.
func TestMetaInfo(t *testing.T) {
	t.Parallel()
	s := serve(t, enginesim.Config{Dialect: enginesim.DialectSGLangPlain, Version: "4"})
	body := strings.Replace(chatMessages, "SCRIPT", "single", 1)
	_, raw := s.ask(t, body+`,"logprobs":true,"return_meta_info":true}`)
	got, c := decode[completion](t, raw).Choices[0], s.Calls()[0]
	if got.Meta == nil || got.Meta.Version != "4" || len(got.Meta.Logprobs) != len(c.OutputIDs) || *got.Matched != 151645 {
		t.Fatalf("%s", raw)
	}
	for i, triple := range got.Meta.Logprobs {
		if float32(*triple[0]) != c.Logprobs[i] || int32(*triple[1]) != c.OutputIDs[i] {
			t.Errorf("token %d: %v", i, triple)
		}
	}
	if !bytes.Contains(raw, []byte(`"metadata":{"weight_version":"4"}`)) {
		t.Errorf("%s", raw)
	}
}

// TestTokensAsIDs: vLLM prints ids instead of tokens in log-probabilities.
func TestTokensAsIDs(t *testing.T) {
	t.Parallel()
	s := serve(t, enginesim.Config{})
	body := strings.Replace(chatMessages, "SCRIPT", "single", 1) + `,"logprobs":true,"return_tokens_as_token_ids":true}`
	_, raw := s.ask(t, body)
	for i, lp := range decode[completion](t, raw).Choices[0].Logprobs.Content {
		if want := fmt.Sprintf("token_id:%d", s.Calls()[0].OutputIDs[i]); lp.Token != want {
			t.Errorf("token %d is %q, want %s", i, lp.Token, want)
		}
	}
}

// TestMessagesAsEnginesReadThem: parts, null and developer are rendered as a string and a system
// message, and the arguments of a call as the same tokens as sampled.
func TestMessagesAsEnginesReadThem(t *testing.T) {
	t.Parallel()
	for d, joined := range map[enginesim.Dialect]string{enginesim.DialectVLLM: "one\ntwo", enginesim.DialectSGLang: "one two"} {
		s := serve(t, enginesim.Config{Dialect: d, Reasoning: true})
		head := `{"messages":[{"role":"developer","content":"Rules."},{"role":"user","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]},{"role":"user","content":"Go. [script:think-tool]"}`
		first := s.complete(t, head+`]`+oneTool+`}`)
		id, call, _ := strings.Cut(first.calls[0], " ")
		name, arguments, _ := strings.Cut(call, " ")
		s.complete(t, head+fmt.Sprintf(`,{"role":"assistant","content":null,"reasoning_content":%q,"tool_calls":[{"id":%q,"type":"function","function":{"name":%q,"arguments":%q}}]},{"role":"tool","tool_call_id":%[2]q,"content":"5"}]`,
			first.reasoning, id, name, arguments)+oneTool+`}`)
		calls := s.Calls()
		text, err := s.model.Tokenizer.AppendText(nil, calls[1].InputIDs, bpe.DecodeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "<|im_start|>system\nRules.") || !strings.Contains(string(text), joined) {
			t.Errorf("%s: %s", d, text)
		}
		before := slices.Concat(calls[0].InputIDs, calls[0].OutputIDs)
		if n := len(before); len(calls[1].InputIDs) < n || !slices.Equal(calls[1].InputIDs[:n], before) {
			t.Errorf("%s: the second prompt does not begin with the first call: %s", d, text)
		}
	}
}

// TestModelsAndContext: the refusals that clients recognize.
func TestModelsAndContext(t *testing.T) {
	t.Parallel()
	for d, want := range map[enginesim.Dialect]string{
		enginesim.DialectVLLM:        "This model's maximum context length is 60 tokens. However, you requested",
		enginesim.DialectSGLangPlain: "tokens) is longer than the model's context length (60 tokens).",
	} {
		s := serve(t, enginesim.Config{Dialect: d, MaxModelLen: 60, StrictModel: true})
		status, raw := s.ask(t, `{"model":"/models/qwen3","messages":[{"role":"user","content":"`+strings.Repeat("word ", 60)+`"}]}`)
		if status != http.StatusBadRequest || !strings.Contains(string(raw), want) || !strings.Contains(string(raw), `"BadRequestError"`) {
			t.Errorf("%s: %d %s", d, status, raw)
		}
		if status, raw = s.ask(t, `{"model":"policy","messages":[{"role":"user","content":"Hello."}]}`); status != http.StatusNotFound || !strings.Contains(string(raw), "`policy`") {
			t.Errorf("%s: %d %s", d, status, raw)
		}
	}
	if _, err := enginesim.ParseDialect("tgi"); err == nil || !strings.Contains(err.Error(), "sglang-plain") {
		t.Error(err)
	}
	for _, name := range enginesim.Dialects() {
		if d, err := enginesim.ParseDialect(name); err != nil || d.String() != name {
			t.Errorf("%s: %v %v", name, d, err)
		}
	}
}
