package proxy_test

import (
	"fmt"
	"net/http/httptest"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

// A realistic call of a session: 20 messages and tools, 64 KB, and a stream of 200 events with two
// tokens each.
func sessionLoad(size int) (body, stream string) {
	text := strings.Repeat("The quick brown fox jumps over the lazy dog. \\n", size/20/46)
	var b strings.Builder
	b.WriteString(`{"model":"policy","stream":true,"stream_options":{"include_usage":true},"max_tokens":32000,"messages":[{"role":"system","content":"` + text + `"}`)
	for i := range 19 {
		fmt.Fprintf(&b, `,{"role":"%s","content":"%s %d"}`, []string{"user", "assistant"}[i%2], text, i)
	}
	b.WriteString(`],"tools":[{"type":"function","function":{"name":"add","parameters":{}}}]}`)
	body = b.String()
	b.Reset()
	const head = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"qwen3","choices":[{"index":0,"delta":{%s},"logprobs":%s,"finish_reason":%s,"token_ids":%s}]%s}` + "\n\n"
	fmt.Fprintf(&b, head, `"role":"assistant","content":""`, "null", "null", "[]", `,"prompt_token_ids":`+list(ids(1, size/4)))
	for i := range 200 {
		finish := "null"
		if i == 199 {
			finish = `"stop"`
		}
		fmt.Fprintf(&b, head, `"content":" word word"`, `{"content":[{"token":" word","logprob":-0.25,"bytes":[32,119],"top_logprobs":[]},{"token":" word","logprob":-0.125,"bytes":[32,119],"top_logprobs":[]}]}`, finish, list(ids(uint64(i), 2)), "")
	}
	fmt.Fprintf(&b, `data: {"id":"chatcmpl-1","choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":400}}`+"\n\ndata: [DONE]\n\n", size/4)
	return body, b.String()
}

// BenchmarkSessionCall measures a streamed call of a session through the tap, and the same call to
// the engine directly. The difference in CPU time is the tap's.
func BenchmarkSessionCall(b *testing.B) {
	for _, size := range []int{16 << 10, 64 << 10, 256 << 10} {
		body, stream := sessionLoad(size)
		engine := &fixed{stream, true}
		e := httptest.NewServer(engine)
		defer e.Close()
		r := newSessionRig(b, proxy.Config{}, trialed{newEngine(b), engine.ServeHTTP})
		r.proxy.Limits().Calls = 1 << 30
		key := r.begin(b)
		for _, c := range []struct{ name, url string }{{"no", e.URL + "/v1/chat/completions"}, {"yes", r.url + "/r/" + string(key) + "/v1/chat/completions"}} {
			b.Run(fmt.Sprintf("body=%dKB/stream=%dKB/tap=%s", len(body)>>10, len(stream)>>10, c.name), func(b *testing.B) {
				benchmarkCalls(b, r.client, c.url, body)
			})
		}
	}
}

// TestGateSessionAllocations bounds the allocations and bytes for a call of a session. A call of 64
// KB has one copy of the body. The number of allocations does not depend on the number of events,
// except for their parsing.
func TestGateSessionAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	body, stream := sessionLoad(64 << 10)
	engine := &fixed{stream, true}
	e := httptest.NewServer(engine)
	defer e.Close()
	r := newSessionRig(t, proxy.Config{}, trialed{newEngine(t), engine.ServeHTTP})
	key := r.begin(t)
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection empties the pools
	const mostAllocs, mostBytes = 300, 520 << 10     // a quarter of the bytes is for the store
	checkAllocations(t, r.client, e.URL+"/v1/chat/completions", r.url+"/r/"+string(key)+"/v1/chat/completions", body, mostAllocs, mostBytes)
}
