package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
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

// A streams engine sends a fixed stream.
type streams struct{ text string }

func (e *streams) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, e.text)
}

// BenchmarkSessionCall measures a streamed call of a session through the tap, and the same call to
// the engine directly. The difference in CPU time is the tap's.
func BenchmarkSessionCall(b *testing.B) {
	for _, size := range []int{16 << 10, 64 << 10, 256 << 10} {
		body, stream := sessionLoad(size)
		engine := &streams{stream}
		e := httptest.NewServer(engine)
		defer e.Close()
		r := newSessionRig(b, proxy.Config{}, trialed{newEngine(b), engine.ServeHTTP})
		r.proxy.Limits().Calls = 1 << 30
		key := r.begin(b)
		for _, c := range []struct{ name, url string }{{"no", e.URL + "/v1/chat/completions"}, {"yes", r.url + "/r/" + string(key) + "/v1/chat/completions"}} {
			b.Run(fmt.Sprintf("body=%dKB/stream=%dKB/tap=%s", len(body)>>10, len(stream)>>10, c.name), func(b *testing.B) {
				b.ReportAllocs()
				began := cpu()
				for b.Loop() {
					res, err := r.client.Post(c.url, "application/json", strings.NewReader(body))
					if err != nil {
						b.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
				}
				b.ReportMetric(float64((cpu()-began).Microseconds())/float64(b.N), "cpu-µs/op")
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
	const runs, mostAllocs, mostBytes = 100, 300, 520 << 10 // a quarter of the bytes is for the store
	body, stream := sessionLoad(64 << 10)
	engine := &streams{stream}
	e := httptest.NewServer(engine)
	defer e.Close()
	r := newSessionRig(t, proxy.Config{}, trialed{newEngine(t), engine.ServeHTTP})
	key := r.begin(t)
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection empties the pools
	measure := func(url string) (allocs, bytes uint64) {
		call := func() {
			res, err := r.client.Post(url, "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			n, _ := io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			if res.StatusCode != http.StatusOK || n < 20<<10 {
				t.Fatalf("the answer has status %d and %d bytes", res.StatusCode, n)
			}
		}
		for range 20 {
			call()
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range runs {
			call()
		}
		runtime.ReadMemStats(&after)
		return (after.Mallocs - before.Mallocs) / runs, (after.TotalAlloc - before.TotalAlloc) / runs
	}
	allocs, bytes := measure(e.URL + "/v1/chat/completions")
	tappedAllocs, tappedBytes := measure(r.url + "/r/" + string(key) + "/v1/chat/completions")
	allocs, bytes = tappedAllocs-allocs, tappedBytes-bytes
	t.Logf("%d allocations and %d KB for each call", allocs, bytes>>10)
	if allocs > mostAllocs || bytes > mostBytes {
		t.Errorf("a call takes %d allocations and %d bytes, want ≤ %d and %d", allocs, bytes, mostAllocs, mostBytes)
	}
}
