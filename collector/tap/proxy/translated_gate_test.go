package proxy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

// translatedPaths contains the paths of the APIs, with chat completions for comparison, and the limits of
// TestGateTranslatedAllocations.
var translatedPaths = []struct {
	api, path             string
	mostAllocs, mostBytes uint64
}{
	{"chat", "/v1/chat/completions", 240, 400 << 10},
	{"responses", "/v1/responses", 420, 490 << 10},
	{"messages", "/v1/messages", 360, 380 << 10},
}

// translatedLoad returns a request of about size bytes: a conversation of 20 messages with tool calls, and
// eight tools. The answer of the engine is a whole answer with 400 tokens, reasoning and two tool calls.
func translatedLoad(api string, size int, stream bool) (body, answer string) {
	text := strings.Repeat("The quick brown fox jumps over the lazy dog. \n", size/21/46)
	schema := map[string]any{"type": "object", "properties": map[string]any{"path": map[string]any{"type": "string", "description": "The path."}}}
	request := map[string]any{"model": "policy", "stream": stream}
	var messages, tools []any
	add := func(list ...any) { messages = append(messages, list...) }
	type object = map[string]any
	for i := range 8 {
		name := fmt.Sprintf("tool_%d", i)
		tools = append(tools, map[string]any{
			"chat":      object{"type": "function", "function": object{"name": name, "description": "A tool.", "parameters": schema}},
			"responses": object{"type": "function", "name": name, "description": "A tool.", "parameters": schema, "strict": false},
			"messages":  object{"name": name, "description": "A tool.", "input_schema": schema},
		}[api])
	}
	for i := range 9 {
		id, arguments := fmt.Sprintf("call_%d", i), object{"path": "/src/main.go", "line": i}
		switch api {
		case "chat":
			call := object{"id": id, "type": "function", "function": object{"name": "tool_1", "arguments": asJSON(arguments)}}
			add(object{"role": "assistant", "content": text, "tool_calls": []any{call}}, object{"role": "tool", "tool_call_id": id, "content": text})
		case "responses":
			add(object{"type": "message", "role": "assistant", "id": fmt.Sprintf("msg_a_%d_0", i), "status": "completed", "content": []any{object{"type": "output_text", "text": text, "annotations": []any{}}}},
				object{"type": "function_call", "id": fmt.Sprintf("fc_a_%d_1", i), "call_id": id, "name": "tool_1", "arguments": asJSON(arguments), "status": "completed"},
				object{"type": "function_call_output", "call_id": id, "output": text})
		case "messages":
			add(object{"role": "assistant", "content": []any{object{"type": "text", "text": text}, object{"type": "tool_use", "id": id, "name": "tool_1", "input": arguments}}},
				object{"role": "user", "content": []any{object{"type": "tool_result", "tool_use_id": id, "content": text}}})
		}
	}
	user := object{"role": "user", "content": text}
	switch messages = append([]any{user}, messages...); api {
	case "chat":
		request["messages"] = append([]any{object{"role": "system", "content": text}}, messages...)
	case "responses":
		request["instructions"], request["input"] = text, messages
	case "messages":
		request["system"], request["messages"], request["max_tokens"] = text, messages, 32000
	}
	request["tools"] = tools
	var logprobs []string
	for range 400 {
		logprobs = append(logprobs, `{"token":" word","logprob":-0.25,"bytes":[32,119],"top_logprobs":[]}`)
	}
	call := `{"id":"call_%s","type":"function","function":{"name":"tool_1","arguments":"{\"path\": \"/src/main.go\", \"text\": \"` + strings.Repeat("word ", 50) + `\"}"}}`
	answer = `{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"qwen3","choices":[{"index":0,"message":{"role":"assistant","content":"` +
		strings.Repeat("word ", 100) + `","reasoning_content":"` + strings.Repeat("word ", 200) + `","tool_calls":[` + fmt.Sprintf(call, "a") + `,` + fmt.Sprintf(call, "b") +
		`]},"logprobs":{"content":[` + strings.Join(logprobs, ",") + `]},"finish_reason":"tool_calls","token_ids":` + list(ids(1, 400)) + `}],"usage":{"prompt_tokens":` +
		fmt.Sprint(size/4) + `,"completion_tokens":400},"prompt_token_ids":` + list(ids(1, size/4)) + `}`
	text2, _ := json.Marshal(request)
	return string(text2), answer
}

// A quick engine sends a whole answer at once, with its length, as vLLM and SGLang do. It passes small
// requests, which are the tap's trials, to a scripted engine.
type quick struct {
	trials http.Handler
	answer string
}

func (e quick) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength < 4<<10 {
		e.trials.ServeHTTP(w, r)
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(e.answer)))
	_, _ = io.WriteString(w, e.answer)
}

// BenchmarkTranslatedCall measures a call of 40 KB through the tap in each API. The case tap=no is the same
// chat completion directly to the engine. The difference is the CPU time of the tap.
func BenchmarkTranslatedCall(b *testing.B) {
	for _, stream := range []bool{false, true} {
		for _, p := range translatedPaths {
			body, answer := translatedLoad(p.api, 40<<10, stream)
			engine := quick{newEngine(b), answer}
			r := newSessionRig(b, proxy.Config{}, engine)
			r.proxy.Limits().Calls = 1 << 30
			key := r.begin(b)
			if p.api == "chat" {
				e := httptest.NewServer(engine)
				defer e.Close()
				b.Run(fmt.Sprintf("api=%s/stream=%v/tap=no", p.api, stream), func(b *testing.B) { benchmarkCalls(b, r.client, e.URL+p.path, body) })
				if stream { // the engine would send a stream
					continue
				}
			}
			b.Run(fmt.Sprintf("api=%s/stream=%v/tap=yes", p.api, stream), func(b *testing.B) {
				benchmarkCalls(b, r.client, r.url+"/r/"+string(key)+p.path, body)
			})
		}
	}
}

// TestGateTranslatedAllocations limits the allocations and bytes of a call of 40 KB with a whole answer
// of 104 KB from the engine. The same call without the tap is subtracted, and the store is included. For
// a chat completion, the proxy copies the answer without the ids, and this copy needs more memory than
// the translation.
func TestGateTranslatedAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection empties the pools
	for _, p := range translatedPaths {
		for _, stream := range []bool{false, true} {
			if p.api == "chat" && stream {
				continue // TestGateSessionAllocations
			}
			t.Run(fmt.Sprintf("%s/stream=%v", p.api, stream), func(t *testing.T) {
				body, answer := translatedLoad(p.api, 40<<10, stream)
				engine := quick{newEngine(t), answer}
				e := httptest.NewServer(engine)
				defer e.Close()
				r := newSessionRig(t, proxy.Config{}, engine)
				checkAllocations(t, r.client, e.URL+p.path, r.url+"/r/"+string(r.begin(t))+p.path, body, p.mostAllocs, p.mostBytes)
			})
		}
	}
}
