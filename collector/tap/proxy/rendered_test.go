package proxy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

// byteRenderer renders like an engine without a tokenizer: the ids are bytes, and each message is a line.
type byteRenderer struct{}

func (byteRenderer) Render(c *proxy.Conversation) (ids []int32, err error) {
	for _, m := range c.Messages {
		if bytes.Contains(m, []byte("refuse me")) {
			return nil, errors.New("I do not render this")
		}
		if bytes.Contains(m, []byte("panic")) {
			panic("a bug")
		}
		for _, b := range append(slices.Clone(m), '\n') {
			ids = append(ids, int32(b))
		}
	}
	return ids, nil
}

func (byteRenderer) Parse(o *proxy.Output) ([]byte, bool) {
	var text []byte
	for _, id := range o.IDs {
		if id < 256 {
			text = append(text, byte(id))
		}
	}
	content, _ := json.Marshal(fmt.Sprintf("%s|%s|%s", text, o.Stop, o.Tools))
	return fmt.Appendf(nil, `{"role":"assistant","content":%s}`, content), false
}

// TestRenderedRequest checks the request that an engine gets for the members of a chat completion, and which
// members are refused.
func TestRenderedRequest(t *testing.T) {
	t.Parallel()
	set, err := proxy.ParseSet([]string{"top_p=0.5", "max_new_tokens=7"})
	if err != nil {
		t.Fatal(err)
	}
	const one = `"messages":[{}]`
	for _, c := range []struct {
		body, sglang, vllm string // of the engine's request; empty: refused
		set                proxy.Set
	}{
		{
			body:   `{` + one + `,"model":"x","stream":true,"stream_options":{"include_usage":true},"user":"u","temperature":null,"tool_choice":"auto","parallel_tool_calls":false}`,
			sglang: `{"sampling_params":{"max_new_tokens":null},"return_logprob":true,"stream":false,"input_ids":[123,125,10]}`,
			vllm:   `{"max_tokens":null,"logprobs":0,"return_token_ids":true,"model":"/models/qwen3","stream":false,"prompt":[123,125,10]}`,
		},
		{
			body:   `{"max_tokens":9,"seed":3,"min_tokens":1,"top_k":5,"stop":["a","b"],"stop_token_ids":[4],` + one + `,"presence_penalty":0.5,"n":1,"response_format":{"type": "text"}}`,
			sglang: `{"sampling_params":{"max_new_tokens":9,"min_new_tokens":1,"presence_penalty":0.5,"sampling_seed":3,"stop":["a","b"],"stop_token_ids":[4],"top_k":5},"return_logprob":true,"stream":false,"input_ids":[123,125,10]}`,
			vllm:   `{"max_tokens":9,"min_tokens":1,"presence_penalty":0.5,"seed":3,"stop":["a","b"],"stop_token_ids":[4],"top_k":5,"logprobs":0,"return_token_ids":true,"model":"/models/qwen3","stream":false,"prompt":[123,125,10]}`,
		},
		{
			body:   `{"max_tokens":9,"max_completion_tokens":8,` + one + `}`,
			sglang: `{"sampling_params":{"max_new_tokens":8},"return_logprob":true,"stream":false,"input_ids":[123,125,10]}`,
		},
		{
			body: `{"max_completion_tokens":8,` + one + `,"max_tokens":9,"top_p":1}`, set: set,
			sglang: `{"sampling_params":{"max_new_tokens":7,"top_p":0.5},"return_logprob":true,"stream":false,"input_ids":[123,125,10]}`,
		},
		{body: `{` + one + `,"response_format":{"type":"json_object"}}`},
		{body: `{` + one + `,"tool_choice":"required"}`},
		{body: `{` + one + `,"tool_choice":{"type":"function","function":{"name":"f"}}}`},
		{body: `{` + one + `,"logit_bias":{"5":1}}`},
		{body: `{` + one + `,"n":2}`},
		{body: `{` + one + `,"logprobs":true}`},
		{body: `{` + one + `,"continue_final_message":true}`},
		{body: `{` + one + `,"a_new_member":1}`},
		{body: `{` + one + `,"user":"a","user":"b"}`},
		{body: `{"messages":[{"content":"refuse me"}]}`},
		{body: `{"messages":[]}`},
	} {
		for dialect, want := range map[enginesim.Dialect]string{enginesim.DialectSGLangPlain: c.sglang, enginesim.DialectVLLM: c.vllm} {
			if want == "" && c.sglang != "" {
				continue
			}
			engine, err := enginesim.New(enginesim.Config{Dialect: dialect})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			r := newSessionRig(t, proxy.Config{Set: c.set, Renderer: byteRenderer{}}, trialedPaths{engine, func(body string) { got = body }})
			key := r.begin(t)
			status, text := r.call(t, key, c.body)
			if got != want || (status == http.StatusBadRequest) != (want == "") {
				t.Errorf("%v %s: %d %s; the engine got\n%s, want\n%s", dialect, c.body, status, text, got, want)
			}
			if n := len(r.record(t, key).Calls); n != 1 {
				t.Errorf("%s: %d calls were recorded", c.body, n)
			}
		}
	}
}

// trialedPaths is an engine that answers the trial. It passes the body of any other call to got, and closes
// the connection.
type trialedPaths struct {
	engine http.Handler
	got    func(body string)
}

func (e trialedPaths) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if r.URL.Path != "/v1/chat/completions" && r.Method == http.MethodPost && !strings.Contains(string(body), list(bytesOf(`{"role":"user","content":"Hi"}`+"\n"))) {
		e.got(string(body))
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	e.engine.ServeHTTP(w, r)
}

func bytesOf(text string) (ids []int32) {
	for _, b := range []byte(text) {
		ids = append(ids, int32(b))
	}
	return ids
}

// TestRenderedAnswers checks how the tap converts and records an engine's answers. Ids that are not proven
// are never recorded.
func TestRenderedAnswers(t *testing.T) {
	t.Parallel()
	const meta = `"prompt_tokens":3,"completion_tokens":2,"weight_version":"4"`
	good := func(meta string) string { return `{"text":"?","output_ids":[72,105],"meta_info":{` + meta + `}}` }
	probs := func(a, b string) string {
		return `,"finish_reason":{"type":"stop","matched":105},"output_token_logprobs":[[` + a + `,72,null],[` + b + `,105,null]]`
	}
	for _, c := range []struct {
		name, answer, content, unread string
		status                        int
	}{
		{"good", good(meta + probs("-0.5", "-1")), `"content":"Hi||"`, "", 200},
		{"not a number", good(meta + probs("null", "null")), `"content":"Hi||"`, "", 200},
		{"stop string", good(meta + `,"finish_reason":{"type":"stop","matched":"i"},"output_token_logprobs":[[-1,72,null],[-1,105,null]]`), `"content":"Hi|i|"`, "", 200},
		{"ids in the log-probabilities only", `{"meta_info":{` + meta + probs("-1", "-2") + `}}`, `"content":"Hi||"`, "", 200},
		{"another prompt", good(strings.Replace(meta, "3", "4", 1) + probs("-1", "-2")), `"content":"Hi||"`, "prompt_tokens", 200},
		{"another count", good(strings.Replace(meta, "2", "3", 1) + probs("-1", "-2")), `"content":"Hi||"`, "no_ids", 200},
		{"no ids", `{"text":"Hi","meta_info":{` + meta + `}}`, `"no_ids"`, "no_ids", 502},
		{"an error", `{"error":{"message":"x"}}`, `"engine_error"`, "error", 502},
		{"several", `[]`, `"several"`, "several", 502},
		{"not JSON", `{"text`, `"malformed"`, "malformed", 502},
		{"empty", ``, `"malformed"`, "malformed", 502},
	} {
		var mu sync.Mutex
		answer := ""
		r := newSessionRig(t, proxy.Config{Renderer: byteRenderer{}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			switch {
			case r.Method == http.MethodGet:
				_, _ = io.WriteString(w, `{"data":[{"id":"m","owned_by":"sglang"}]}`)
			case r.URL.Path != "/generate":
				w.WriteHeader(http.StatusNotFound)
			case bytes.Contains(body, []byte(`"max_new_tokens":4`)): // the trial
				n := bytes.Count(body[bytes.Index(body, []byte("input_ids")):], []byte(",")) + 1
				fmt.Fprintf(w, `{"output_ids":[1],"meta_info":{"prompt_tokens":%d,"completion_tokens":1,"finish_reason":{"type":"stop"},"output_token_logprobs":[[-1,1,null]]}}`, n)
			default:
				mu.Lock()
				defer mu.Unlock()
				_, _ = io.WriteString(w, answer)
			}
		}))
		key := r.begin(t)
		mu.Lock()
		answer = c.answer
		mu.Unlock()
		for _, stream := range []string{"false", "true"} {
			status, text := r.call(t, key, `{"messages":[{}],"stream":`+stream+`}`)
			if status != c.status || !strings.Contains(text, c.content) {
				t.Errorf("%s: %d %s, want %d %s", c.name, status, text, c.status, c.content)
			}
		}
		for _, call := range r.record(t, key).Calls {
			if call.Unread != c.unread || (call.Output != nil) != (c.unread == "" || c.unread == "prompt_tokens" || c.name == "another count") {
				t.Errorf("%s: recorded %q with the output %v", c.name, call.Unread, call.Output)
			}
			if c.unread == "" && (call.Version != "4" || !slices.Equal(call.Prompt, []int32{123, 125, 10}) || call.Finish != "stop") {
				t.Errorf("%s: recorded %+v", c.name, call)
			}
		}
	}
}

// TestRenderedPanic checks that a panic of the renderer fails only its call.
func TestRenderedPanic(t *testing.T) {
	t.Parallel()
	engine, err := enginesim.New(enginesim.Config{Dialect: enginesim.DialectSGLang})
	if err != nil {
		t.Fatal(err)
	}
	r := newSessionRig(t, proxy.Config{Renderer: byteRenderer{}}, engine)
	key := r.begin(t)
	if status, text := r.call(t, key, `{"messages":[{"content":"panic"}]}`); status < 500 {
		t.Errorf("%d %s", status, text)
	}
	if status, text := r.call(t, key, `{"messages":[{"content":"go on"}]}`); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
}
