package proxy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

// An api is an API that the tap translates: the path of a call, and a request for a script.
type api struct {
	name, path, body, end, overflow string
}

var apis = []api{
	{
		"responses", "/v1/responses",
		`{"model":"policy","stream":%v,"instructions":"You are terse.","input":"[script:%s]","tools":[{"type":"function","name":"add","parameters":{}}]}`,
		"event: response.completed\n", `"code":"context_length_exceeded"`,
	},
	{
		"messages", "/v1/messages",
		`{"model":"policy","stream":%v,"max_tokens":1000,"system":"You are terse.","messages":[{"role":"user","content":"[script:%s]"}],"tools":[{"name":"add","input_schema":{}}]}`,
		"event: message_stop\n", `"message":"prompt is too long`,
	},
}

func (a *api) post(t *testing.T, r *sessionRig, key session.Key, script string, stream bool) (int, string) {
	t.Helper()
	return r.post(t, "/r/"+string(key)+a.path, fmt.Sprintf(a.body, stream, script))
}

// TestTranslatedCalls checks that a translated call is recorded with the ids of the engine and the
// messages of a chat completion. The client must get the answer in the form of its API.
func TestTranslatedCalls(t *testing.T) {
	t.Parallel()
	for _, a := range apis {
		for _, f := range forms {
			engine := f.engine(t)
			r := newSessionRig(t, proxy.Config{}, engine)
			if err := r.proxy.Probe(t.Context()); err != nil {
				t.Fatal(err)
			}
			trials := len(engine.Calls())
			key := r.begin(t)
			for _, script := range []string{"single", "tool", "think-parallel", "unicode", "empty"} {
				for _, stream := range []bool{false, true} {
					status, text := a.post(t, r, key, script, stream)
					if status != http.StatusOK || strings.Contains(text, a.end) != stream || strings.Contains(text, "token_ids") {
						t.Fatalf("%s, %s, %s, stream %v: %d %s", a.name, f.name, script, stream, status, text)
					}
					if !stream && !json.Valid([]byte(text)) {
						t.Errorf("%s, %s, %s: not JSON: %s", a.name, f.name, script, text)
					}
				}
			}
			rec, truth := r.record(t, key), engine.Calls()[trials:]
			if len(rec.Calls) != len(truth) {
				t.Fatalf("%s, %s: %d calls were recorded, the engine had %d", a.name, f.name, len(rec.Calls), len(truth))
			}
			for i, got := range rec.Calls {
				want := truth[i]
				if got.Unread != "" || !slices.Equal(got.Prompt, want.InputIDs) || !slices.Equal(got.Output, want.OutputIDs) || !slices.Equal(got.Logprobs, want.Logprobs) {
					t.Errorf("%s, %s, call %d: recorded %+v, the engine had %+v", a.name, f.name, i, got, want)
				}
				if got.Dialect != a.name || !got.Delivered || got.Answer == nil || string(rec.Texts[got.Messages[0]]) != `{"role":"system","content":"You are terse."}` {
					t.Errorf("%s, %s, call %d: recorded %q, delivered %v, answer %s", a.name, f.name, i, got.Dialect, got.Delivered, got.Answer)
				}
			}
		}
	}
}

// TestTranslatedErrors checks that a client gets every error in the form of its API, and that an
// engine's refusal is recorded.
func TestTranslatedErrors(t *testing.T) {
	t.Parallel()
	for _, a := range apis {
		const overflow = `{"error":{"message":"This model's maximum context length is 8192 tokens. However, you requested 9000."}}`
		r := newSessionRig(t, proxy.Config{}, trialed{newEngine(t), func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(overflow))
		}})
		key := r.begin(t)
		check := func(what string, status, wantStatus int, text, want string) {
			t.Helper()
			var v struct {
				Error struct{ Message, Type string }
			}
			if err := json.Unmarshal([]byte(text), &v); err != nil || v.Error.Message == "" || v.Error.Type == "" || status != wantStatus || !strings.Contains(text, want) {
				t.Errorf("%s, %s: %d %s, want %d with %s", a.name, what, status, text, wantStatus, want)
			}
		}
		for _, stream := range []bool{false, true} {
			status, text := a.post(t, r, key, "single", stream)
			check("overflow", status, 400, text, a.overflow)
		}
		path := "/r/" + string(key) + a.path
		status, text := r.post(t, path, `{"model":"policy"`)
		check("half a body", status, 400, text, "rollout tap: ")
		status, text = r.post(t, path, `{"banana":1,`+fmt.Sprintf(a.body, false, "single")[1:])
		check("unknown member", status, 400, text, "banana")
		status, text = r.post(t, path+"/count_tokens", `{}`)
		if status != http.StatusNotFound {
			t.Errorf("%s: count_tokens: %d %s, want 404", a.name, status, text)
		}
		rec := r.record(t, key)
		if len(rec.Calls) != 2 || rec.Calls[0].Unread != session.UnreadOverflow || rec.Calls[0].Answer != nil || rec.Calls[1].Unread != session.UnreadOverflow {
			t.Errorf("%s: recorded %+v, want two calls that exceed the context length", a.name, rec.Calls)
		}
		status, text = a.post(t, r, key, "single", false)
		check("sealed", status, 410, text, "sealed")
		status, text = a.post(t, r, session.NewKey(), "single", false)
		check("unknown key", status, 401, text, "key")
	}
}

// TestCountTokens checks that a count is the length of the rendered prompt, and that the session does
// not record it.
func TestCountTokens(t *testing.T) {
	t.Parallel()
	r := newSessionRig(t, proxy.Config{Renderer: byteRenderer{}}, newEngine(t))
	key := r.begin(t)
	const message = `{"role":"user","content":"Grüße"}`
	for _, c := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/v1/messages/count_tokens", `{"model":"policy","messages":[` + message + `]}`, 200, fmt.Sprintf(`{"input_tokens":%d}`, len(message)+1)},
		{"/v1/messages/count_tokens", `{"model":"policy","messages":[` + message + `],"banana":1}`, 400, "banana"},
		{"/v1/messages/count_tokens", `{"model":"policy","messages":[{"role":"user","content":"refuse me"}]}`, 400, "I do not render this"},
		{"/v1/responses/count_tokens", `{"model":"policy","input":"a"}`, 404, "not_found"},
	} {
		if status, text := r.post(t, "/r/"+string(key)+c.path, c.body); status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s %s: %d %s, want %d %s", c.path, c.body, status, text, c.status, c.want)
		}
	}
	if rec := r.record(t, key); len(rec.Calls) != 0 {
		t.Errorf("the session has %d calls, want 0", len(rec.Calls))
	}
}

// TestTranslatedStream checks that an engine's stream never reaches a client of another API. The
// engine sends a stream although the tap requested a whole answer.
func TestTranslatedStream(t *testing.T) {
	t.Parallel()
	for _, a := range apis {
		r := newSessionRig(t, proxy.Config{}, trialed{newEngine(t), func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte(firstEvent))
		}})
		key := r.begin(t)
		if status, text := a.post(t, r, key, "single", true); status != http.StatusBadGateway || strings.Contains(text, "delta") {
			t.Errorf("%s: %d %s, want 502", a.name, status, text)
		}
		if c := r.record(t, key).Calls[0]; c.Unread != "content_type" || c.Delivered {
			t.Errorf("%s: recorded %+v", a.name, c)
		}
	}
}

// TestTranslatedAnswers checks that a client gets all that an unusual answer of the engine contains.
func TestTranslatedAnswers(t *testing.T) {
	t.Parallel()
	const (
		usage  = `"usage":{"prompt_tokens":41,"completion_tokens":43,"prompt_tokens_details":{"cached_tokens":17}}`
		answer = `{%s,"prompt_token_ids":[1],"choices":[{"index":0,"message":{"role":"assistant","content":"a","tool_calls":[{"id":"c","type":"function","function":{"name":"add","arguments":%s}}]},"finish_reason":%q,"token_ids":%s}]}`
	)
	for _, c := range []struct {
		what, answer    string
		responses, said []string // parts of the answers, without backslashes
	}{
		{
			"malformed ids", fmt.Sprintf(answer, usage, `"{}"`, "length", "[-1]"),
			[]string{`"status":"incomplete"`, `"reason":"max_output_tokens"`, `"input_tokens":41`, `"cached_tokens":17`, `"output_tokens":43`},
			[]string{`"stop_reason":"max_tokens"`, `"input_tokens":24`, `"cache_read_input_tokens":17`, `"output_tokens":43`},
		},
		{
			"an aborted answer", fmt.Sprintf(answer, usage, `"{}"`, "abort", "[1]"),
			[]string{`"status":"incomplete"`},
			[]string{`"stop_reason":"max_tokens"`},
		},
		{
			"arguments that are an object", fmt.Sprintf(answer, usage, `{"a": 1}`, "tool_calls", "[1]"),
			[]string{`"arguments":"{"a": 1}"`},
			[]string{`{"a": 1}`},
		},
		{
			"arguments that are cut off", fmt.Sprintf(answer, usage, `"{\"input\": \"abc"`, "tool_calls", "[1]"),
			[]string{`"{"input": "abc"`},
			[]string{`"{"input": "abc"`},
		},
	} {
		for i, a := range apis {
			r := newSessionRig(t, proxy.Config{}, trialed{newEngine(t), func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(c.answer)) }})
			key := r.begin(t)
			custom := api{path: a.path, body: strings.Replace(a.body, `"type":"function","name":"add","parameters":{}`, `"type":"custom","name":"add"`, 1)}
			if c.what == "arguments that are an object" {
				custom = a
			}
			for _, stream := range []bool{false, true} {
				status, text := custom.post(t, r, key, "single", stream)
				plain := strings.ReplaceAll(text, `\`, "")
				for _, want := range [][]string{c.responses, c.said}[i] {
					if status != http.StatusOK || !strings.Contains(plain, want) {
						t.Errorf("%s, %s, stream %v: %d %s\nwant %s", c.what, a.name, stream, status, text, want)
					}
				}
			}
		}
	}
}

// TestErrorForms checks that an error of any path of an API has the form of the API.
func TestErrorForms(t *testing.T) {
	t.Parallel()
	r, _, key := guardedRig(t)
	const (
		messages  = `{"type":"error","error":{"type":"%s","message":"rollout tap: `
		responses = `{"error":{"message":"rollout tap: `
	)
	for _, c := range []struct {
		method, path string
		status       int
		kind         string
	}{
		{"POST", "/r/" + key + "/v1/messages/batches", 404, "not_found_error"},
		{"POST", "/r/" + key + "/v1/messages/batches/count_tokens", 404, "not_found_error"},
		{"POST", "/r/" + key + "/v1/messages/count_tokens", 404, "not_found_error"},
		{"GET", "/r/" + key + "/v1/messages/batches", 404, "not_found_error"},
		{"POST", "/v1/messages", 401, "authentication_error"},
		{"POST", "/v1/messages/count_tokens", 401, "authentication_error"},
		{"POST", "/v1/messages?key=" + key, 401, "authentication_error"},
		{"POST", "/r/" + key[:9] + "/v1/messages/batches", 401, "authentication_error"},
		{"POST", "/r/" + key + "/v1/responses/count_tokens", 404, ""},
		{"POST", "/r/" + key + "/v1/responses/x", 404, ""},
		{"POST", "/v1/responses", 401, ""},
	} {
		status, text := r.do(t, c.method, c.path, "{}")
		want, kind := fmt.Sprintf(messages, c.kind), c.kind
		if kind == "" {
			want, kind = responses, `"type":"invalid_request_error","param":null`
		}
		if status != c.status || !strings.HasPrefix(text, want) || !strings.Contains(text, kind) || strings.Contains(text, "--render") != (c.path == "/r/"+key+"/v1/messages/count_tokens") {
			t.Errorf("%s %s: %d %s, want %d %s", c.method, c.path, status, text, c.status, want)
		}
	}
}

// TestTranslatedHeader checks that an error in the form of an API does not have the type and the coding
// of the engine's error.
func TestTranslatedHeader(t *testing.T) {
	t.Parallel()
	for _, a := range apis {
		r := newSessionRig(t, proxy.Config{}, trialed{newEngine(t), func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.Header().Set("Content-Encoding", "br")
			w.WriteHeader(http.StatusBadGateway)
			_, _ = w.Write([]byte("<html>"))
		}})
		res := r.send(t.Context(), t, "/r/"+string(r.begin(t))+a.path, fmt.Sprintf(a.body, false, "single"))
		text, err := io.ReadAll(res.Body)
		if got := res.Header.Get("Content-Type"); err != nil || res.StatusCode != http.StatusBadGateway || got != "application/json" || res.Header.Get("Content-Encoding") != "" || !json.Valid(text) {
			t.Errorf("%s: %v, %v, %s, %v", a.name, res.Status, res.Header, text, err)
		}
	}
}
