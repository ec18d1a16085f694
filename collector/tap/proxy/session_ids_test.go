package proxy_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

// TestSessionUnusable proves that a complete answer is usable only if the engine counted as many tokens
// as it returned ids, in streams and in whole answers.
func TestSessionUnusable(t *testing.T) {
	t.Parallel()
	const (
		calls  = `"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]`
		counts = `"usage":{"prompt_tokens":2,"completion_tokens":3}`
		prompt = `"prompt_token_ids":[7,8]`
	)
	events := func(all ...string) string { return "data: " + strings.Join(all, "\n\ndata: ") + "\n\ndata: [DONE]\n\n" }
	delta := func(delta, more string) string { return `{"choices":[{"index":0,"delta":{` + delta + `}` + more + `}]` }
	done := func(more string) string { return delta("", `,"finish_reason":"stop"`+more) + "}" }
	usage := func(text string) string { return `{"choices":[],` + text + `}` }
	whole := func(choice, more string) string {
		return `{"choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"` + choice + `}]` + more + `}`
	}
	first := delta(`"content":"a"`, `,"token_ids":[1,2]`) + "," + prompt + "}"
	for _, c := range []struct{ name, request, answer, want string }{
		{"whole", "", whole(`,"token_ids":[1,2,3]`, ","+prompt+","+counts), ""},
		{"whole, too few", "", whole(`,"token_ids":[1,2]`, ","+prompt+","+counts), "no_ids"},
		{"whole, too many", "", whole(`,"token_ids":[1,2,3,4]`, ","+prompt+","+counts), "no_ids"},
		{"whole, none", "", whole(`,"token_ids":null`, ","+prompt+","+counts), "no_ids"},
		{"whole, empty", "", whole(`,"token_ids":[]`, ","+prompt+","+counts), "no_ids"},
		{"whole, no prompt", "", whole(`,"token_ids":[1,2,3]`, ","+counts), "no_ids"},
		{"whole, another prompt", "", whole(`,"token_ids":[1,2,3],"prompt_token_ids":[7]`, ","+counts), "prompt_tokens"},
		{"whole, empty prompt", "", whole(`,"token_ids":[1,2,3]`, `,"usage":{"prompt_tokens":0,"completion_tokens":3}`), "no_ids"},
		{"whole, no usage", "", whole(`,"token_ids":[1,2,3]`, ","+prompt), "no_ids"},
		{"whole, usage null", "", whole(`,"token_ids":[1,2,3]`, ","+prompt+`,"usage":null`), "no_ids"},
		{"whole, count is not a number", "", whole(`,"token_ids":[1,2,3]`, ","+prompt+`,"usage":{"prompt_tokens":2,"completion_tokens":"3"}`), "no_ids"},
		{"whole, count is a fraction", "", whole(`,"token_ids":[1,2,3]`, ","+prompt+`,"usage":{"prompt_tokens":2,"completion_tokens":3.0}`), "no_ids"},
		{"whole, negative id", "", whole(`,"token_ids":[1,-2,3]`, ","+prompt+","+counts), "malformed"},
		{"whole, ids twice", "", whole(`,"token_ids":[1,2,3],"token_ids":[1,2,3]`, ","+prompt+","+counts), "malformed"},
		{"whole, ids under two names", "", whole(`,"token_ids":[1,2,3],"response_token_ids":[1,2]`, ","+prompt+","+counts), "no_ids"},
		{"whole, stop string", `,"stop":["b"]`, whole(`,"token_ids":[1,2,3],"stop_reason":"b"`, ","+prompt+","+counts), ""},
		{"whole, two asked", `,"n":2`, whole(`,"token_ids":[1,2,3]`, ","+prompt+","+counts), "several"},
		{"whole, two answered", "", `{"choices":[{"index":0,"message":{},"token_ids":[1,2,3]},{"index":1,"message":{},"token_ids":[1]}],` + prompt + "," + counts + `}`, "several"},
		{"whole, SGLang, too few", "", whole(`,"response_token_ids":[1,2],"prompt_token_ids":[7,8],"meta_info":{"completion_tokens":3,"prompt_tokens":2}`, ""), "no_ids"},

		{"stream", "s", events(first, delta(`"content":"b"`, `,"token_ids":[3]`)+"}", done(""), usage(counts)), ""},
		{"stream, too few", "s", events(first, delta(`"content":"b"`, "")+"}", done(""), usage(counts)), "no_ids"},
		{"stream, too many", "s", events(first, delta(`"content":"b"`, `,"token_ids":[3,4]`)+"}", done(""), usage(counts)), "no_ids"},
		{"stream, lost with tool calls", "s", events(first, delta(calls, "")+"}", done(""), usage(counts)), "no_ids"},
		{"stream, with tool calls", "s", events(first, delta(calls, `,"token_ids":[3]`)+"}", done(""), usage(counts)), ""},
		{"stream, negative id", "s", events(delta(`"content":"a"`, `,"token_ids":[-1]`)+"}", delta(`"content":"b"`, `,"token_ids":[3]`)+"}", done(""), usage(counts)), "malformed"},
		{"stream, negative id after a tool call", "s", events(first, delta(calls, `,"token_ids":[-1]`)+"}", done(""), usage(counts)), "malformed"},
		{"stream, ids twice", "s", events(first, delta(`"content":"b"`, `,"token_ids":[3],"token_ids":[3]`)+"}", done(""), usage(counts)), "malformed"},
		{"stream, no usage", "s", events(first, delta(`"content":"b"`, `,"token_ids":[3]`)+"}", done("")), "no_ids"},
		{"stream, usage null", "s", events(first, done(`,"token_ids":[3]`), usage(`"usage":null`)), "no_ids"},
		{"stream, usage in each event", "s", events(strings.TrimSuffix(first, "}")+`,"usage":{"prompt_tokens":2,"completion_tokens":2}}`, strings.TrimSuffix(done(`,"token_ids":[3]`), "}")+","+counts+"}"), ""},
		{"stream, old usage", "s", events(strings.TrimSuffix(first, "}")+`,"usage":{"prompt_tokens":2,"completion_tokens":2}}`, done(`,"token_ids":[3]`)), "no_ids"},
		{"stream, no prompt", "s", events(delta(`"content":"a"`, `,"token_ids":[1,2,3]`)+"}", done(""), usage(counts)), "no_ids"},
		{"stream, two asked", `s,"n":2`, events(first, done(`,"token_ids":[3]`), usage(counts)), "several"},
		{"stream, two answered", "s", events(first, `{"choices":[{"index":1,"delta":{},"token_ids":[3]}]}`, done(""), usage(counts)), "several"},
		{"stream, unfinished", "s", events(first, delta("", `,"token_ids":[3]`)+"}", usage(counts)), "unfinished"},
		{"stream, error", "s", events(first, `{"error":{"message":"x"}}`), "error"},
		{"stream, ids at once", "s", events(delta(`"content":"a"`, "")+"}", done(""), usage(`"sglext":{"input_ids":[7,8],"output_ids":[[1,2,3]]}`), usage(counts)), ""},
		{"stream, ids at once, too few", "s", events(delta(`"content":"a"`, "")+"}", done(""), usage(`"sglext":{"input_ids":[7,8],"output_ids":[[1,2]]}`), usage(counts)), "no_ids"},
		{"stream, ids at once, two", "s", events(delta(`"content":"a"`, "")+"}", done(""), usage(`"sglext":{"input_ids":[7,8],"output_ids":[[1,2,3],[1]]}`), usage(counts)), "several"},
		{"stream, ids at once, lost", "s", events(delta(`"content":"a"`, "")+"}", done(""), usage(counts)), "no_ids"},
	} {
		r := newSessionRig(t, proxy.Config{}, trialed{newEngine(t), func(w http.ResponseWriter, _ *http.Request) {
			if strings.HasPrefix(c.answer, "data:") {
				w.Header().Set("Content-Type", "text/event-stream")
			}
			_, _ = io.WriteString(w, c.answer)
		}})
		key := r.begin(t)
		more, streamed := strings.CutPrefix(c.request, "s")
		status, text := r.call(t, key, chatBody("single", streamed, more))
		if status != http.StatusOK || strings.Contains(text, "token_ids") {
			t.Errorf("%s: %d %s", c.name, status, text)
		}
		got := r.record(t, key).Calls[0]
		if got.Unread != c.want || !got.Delivered || got.Cut {
			t.Errorf("%s: unread %q, want %q; recorded %+v", c.name, got.Unread, c.want, got)
		}
		if seen := heard(t, text); c.want == "malformed" {
			var answer struct {
				Content string
				Calls   []struct{ Function struct{ Arguments string } } `json:"tool_calls"`
			}
			err := json.Unmarshal(got.Answer, &answer)
			if err != nil || answer.Content != seen.Content || len(answer.Calls) != len(seen.Arguments) || len(answer.Calls) > 0 && answer.Calls[0].Function.Arguments != seen.Arguments[0] {
				t.Errorf("%s: recorded %s, the client saw %+v", c.name, got.Answer, seen)
			}
		}
		if usable := len(got.Prompt) == 2 && len(got.Output) == 3 && int(got.OutputTokens) == 3; c.want == "" && !usable {
			t.Errorf("%s: recorded %+v", c.name, got)
		}
	}
}

// TestSessionCutSeveral proves that no ids are kept of a stream that breaks off if the client asked for
// several answers.
func TestSessionCutSeveral(t *testing.T) {
	t.Parallel()
	r := newSessionRig(t, proxy.Config{}, trialed{newEngine(t), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, firstEvent)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}})
	key := r.begin(t)
	res := r.send(t.Context(), t, "/r/"+string(key)+"/v1/chat/completions", chatBody("single", true, `,"n":2`))
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	r.drain(t)
	if c := r.record(t, key).Calls[0]; !c.Cut || c.Output != nil || c.Unread != "several" {
		t.Errorf("recorded %+v", c)
	}
}
