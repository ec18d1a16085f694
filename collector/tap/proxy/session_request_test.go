package proxy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

// TestSessionRequest proves which members of a request the engine receives changed. All other
// members keep their bytes and their order.
func TestSessionRequest(t *testing.T) {
	t.Parallel()
	set, err := proxy.ParseSet([]string{"temperature=0.7", "max_new_tokens=99"})
	if err != nil {
		t.Fatal(err)
	}
	const asks = `"return_token_ids":true,"return_prompt_token_ids":true,"return_meta_info":true,"logprobs":true`
	for i, want := range [][4]string{
		{ // vLLM
			`{"return_token_ids":true,"logprobs":true,"temperature":0.7,"max_completion_tokens":99,"model":"/models/qwen3", "messages" :[ {"role":"user","content":"caf\u00e9"} ],"stream":true,"stream_options":{"include_usage":true,"x":1}}`,
			`{"return_token_ids":true,"logprobs":true,"stream_options":{"include_usage":true},"max_completion_tokens":99,"messages":[{}],"model":"/models/qwen3","stream":true,"temperature":0.7}`,
			`{"return_token_ids":true,"return_prompt_token_ids":true,"return_meta_info":true,"temperature":0.7,"max_completion_tokens":99,"messages":[{}],"logprobs":true,"model":"/models/qwen3"}`,
			`{"model":"/models/qwen3",` + asks + `,"temperature":0.7,"messages":[],"max_completion_tokens":99,"max_tokens":5}`,
		},
		{ // SGLang, headers
			`{"logprobs":true,"temperature":0.7,"max_completion_tokens":99,"model":"/models/qwen3", "messages" :[ {"role":"user","content":"caf\u00e9"} ],"stream":true,"stream_options":{"include_usage":true,"x":1}}`,
			`{"logprobs":true,"stream_options":{"include_usage":true},"max_completion_tokens":99,"messages":[{}],"model":"/models/qwen3","stream":true,"temperature":0.7}`,
		},
		{ // SGLang, whole answers
			`{` + asks + `,"temperature":0.7,"max_completion_tokens":99,"model":"/models/qwen3", "messages" :[ {"role":"user","content":"caf\u00e9"} ],"stream":false,"stream_options":null}`,
			`{` + asks + `,"max_completion_tokens":99,"messages":[{}],"model":"/models/qwen3","stream":false,"temperature":0.7}`,
		},
	} {
		engine := forms[i].engine(t)
		var mu sync.Mutex
		var got []string
		var header http.Header
		r := newSessionRig(t, proxy.Config{Set: set}, trialed{engine, func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			mu.Lock()
			defer mu.Unlock()
			got, header = append(got, string(body)), r.Header
			panic(http.ErrAbortHandler)
		}})
		key := r.begin(t)
		for k, body := range []string{
			`{"model":"gpt-4", "messages" :[ {"role":"user","content":"caf\u00e9"} ],"stream":true,"stream_options":{"include_usage":false,"x":1}}`,
			`{"messages":[{}],"model":null,"stream":true,"temperature":1}`,
			`{"messages":[{}],"logprobs":false,"model":"x"}`,
			`{"messages":[],"max_completion_tokens":7,"max_tokens":5}`,
		} {
			if want[k] == "" {
				continue
			}
			status, text := r.do(t, "POST", "/r/"+string(key)+"/v1/chat/completions", body, "Authorization", "Bearer mine", "X-Custom", "1", "X-Stainless-Retry-Count", "2", "Cookie", "a=b")
			if status != http.StatusBadGateway || !strings.Contains(text, "no engine answered") {
				t.Errorf("%s: %d %s", forms[i].name, status, text)
			}
			mu.Lock()
			var a, b map[string]json.RawMessage
			last := got[len(got)-1]
			if json.Unmarshal([]byte(last), &a) != nil || json.Unmarshal([]byte(want[k]), &b) != nil || fmt.Sprintf("%s", a) != fmt.Sprintf("%s", b) || len(last) != len(want[k]) {
				t.Errorf("%s: the engine got\n%s, want, in any order,\n%s", forms[i].name, last, want[k])
			}
			if header.Get("Authorization") != "Bearer mine" || header.Get("X-Custom") != "1" || header.Get("Accept-Encoding") != "" || header.Get("Cookie") != "" {
				t.Errorf("%s: the engine got the header %v", forms[i].name, header)
			}
			mu.Unlock()
		}
		for _, c := range r.record(t, key).Calls {
			if c.Status != 0 || c.Retry != 2 || !c.Cut || *c.Sampling.Temperature != 0.7 || *c.Sampling.MaxNewTokens != 99 {
				t.Errorf("%s: recorded %+v", forms[i].name, c)
			}
		}
	}
}

// TestSessionLimitName proves that the older name of the token limit is recorded too.
func TestSessionLimitName(t *testing.T) {
	t.Parallel()
	r := newSessionRig(t, proxy.Config{}, newEngine(t))
	key := r.begin(t)
	r.call(t, key, chatBody("single", true, `,"max_tokens":321`))
	if c := r.record(t, key).Calls[0]; c.Sampling.MaxNewTokens == nil || *c.Sampling.MaxNewTokens != 321 {
		t.Errorf("recorded %+v", c.Sampling)
	}
}

// TestProbe proves that Probe names the engine and what to change.
func TestProbe(t *testing.T) {
	t.Parallel()
	const models = `{"data":[{"id":"m"}]}`
	const sound = `{"choices":[{"message":{"content":"x"},"finish_reason":"stop","token_ids":[1]}],"prompt_token_ids":[1],"usage":{"prompt_tokens":1,"completion_tokens":1}}`
	plain := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				_, _ = io.WriteString(w, models)
				return
			}
			if text == "" {
				w.WriteHeader(http.StatusUnauthorized)
			}
			if body, _ := io.ReadAll(r.Body); text == "busy" && strings.Contains(string(body), `"stream":true`) {
				w.WriteHeader(http.StatusTooManyRequests)
			} else if text == "busy" {
				_, _ = io.WriteString(w, sound)
			}
			if text != "busy" {
				_, _ = io.WriteString(w, text)
			}
		})
	}
	closed := httptest.NewServer(plain(""))
	closed.Close()
	for _, c := range []struct {
		name   string
		engine http.Handler
		want   string
	}{
		{"no ids", plain(`{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`), "vLLM 0.10.2 or later, or SGLang 0.5.18"},
		{"wrong count", plain(`{"choices":[{"message":{"content":"x"},"finish_reason":"stop","token_ids":[1]}],"prompt_token_ids":[1],"usage":{"prompt_tokens":1,"completion_tokens":2}}`), "vLLM 0.10.2"},
		{"needs a key", plain(""), "401 Unauthorized"},
		{"busy", plain("busy"), "429 Too Many Requests"},
		{"no API", http.NotFoundHandler(), "GET /v1/models: 404 Not Found"},
		{"not JSON", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }), "does not name a model"},
		{"down", nil, "connection refused"},
	} {
		cfg := proxy.Config{}
		var engines []http.Handler
		if c.engine != nil {
			engines = append(engines, c.engine)
		} else {
			cfg.Engines = []*url.URL{parse(t, closed.URL)}
		}
		r := newSessionRig(t, cfg, engines...)
		err := r.proxy.Probe(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "engine http://") {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
		status, text := r.call(t, r.begin(t), chatBody("single", false, ""))
		if status != http.StatusBadGateway || !strings.Contains(text, c.want) {
			t.Errorf("%s: a call got %d %s", c.name, status, text)
		}
	}
}

// TestSessionOneEngine proves that the calls of a session go to one engine, and to another engine if
// that engine cannot be reached.
func TestSessionOneEngine(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t), newEngine(t)
	r := newSessionRig(t, proxy.Config{}, a, b)
	for range 4 {
		key := r.begin(t)
		for range 5 {
			r.call(t, key, chatBody("single", true, ""))
		}
		used := map[string]int{}
		for _, c := range r.record(t, key).Calls {
			used[c.Engine]++
		}
		if len(used) != 1 {
			t.Errorf("the engines of a session: %v", used)
		}
	}
	if s := r.proxy.Stats(); s.Engines[0].Calls != 10 || s.Engines[1].Calls != 10 {
		t.Errorf("%+v", s.Engines)
	}
}
