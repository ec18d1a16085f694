package proxy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

// withMark returns an answer as it comes with continuity.
func withMark(answer string, spliced int) string {
	mark := fmt.Sprintf(`"rollout":{"continuity":true,"spliced":%d}`, spliced)
	if at := strings.LastIndex(answer, "}}"); at >= 0 {
		return answer[:at] + "," + mark + answer[at:]
	}
	return answer
}

// With a Continuer each answer has a mark. Without one it passes unchanged.
func TestMarked(t *testing.T) {
	t.Parallel()
	native := answered(4, []int32{7})
	const chat = `{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}]}`
	mark := func(n int) string { return fmt.Sprintf(`"rollout":{"continuity":true,"spliced":%d}`, n) }
	for _, c := range []struct {
		name, path, ask string
		text, kind      string
		status          int
		cfg             proxy.Config
		want            string
	}{
		{name: "spliced", ask: asked([]int32{1, 2}), text: native, cfg: proxy.Config{Continuer: &continuer{sent: []int32{9, 8, 7, 6}, spliced: 3}}, want: withMark(native, 3)},
		{name: "left as it was", ask: asked([]int32{1, 2}), text: native, cfg: proxy.Config{Continuer: bystander{}}, want: withMark(native, 0)},
		{name: "what is the same", ask: asked([]int32{1, 2}), text: native, cfg: proxy.Config{Continuer: &continuer{sent: []int32{1, 2}, spliced: 3}}, want: withMark(native, 0)},
		{name: "a fault", ask: asked([]int32{1, 2}), text: native, cfg: proxy.Config{Continuer: &continuer{panics: true}}, want: withMark(native, 0)},
		{name: "too large to be read", ask: asked([]int32{1, 2}), text: native, cfg: proxy.Config{Continuer: &continuer{sent: []int32{9}}, BodyBytes: 20}, want: withMark(native, 0)},
		{name: "not understood", ask: "x", text: native, cfg: proxy.Config{Continuer: &continuer{sent: []int32{9}}}, want: withMark(native, 0)},
		{name: "nothing is kept", ask: asked([]int32{1, 2}), text: native, cfg: proxy.Config{Continuer: bystander{}, Keep: func(*tap.Call) bool { return false }}, want: withMark(native, 0)},
		{
			name: "a stream", ask: `{"stream":true,"input_ids":[1,2]}`, kind: "text/event-stream", text: "data: " + native + "\n\ndata: " + native + "\n\ndata: [DONE]\n\n",
			cfg:  proxy.Config{Continuer: &continuer{sent: []int32{9, 8, 7, 6}, spliced: 3}},
			want: "data: " + withMark(native, 3) + "\n\ndata: " + withMark(native, 3) + "\n\ndata: [DONE]\n\n",
		},
		{
			name: "chat", path: "/v1/chat/completions", ask: `{"messages":[]}`, text: chat,
			cfg:  proxy.Config{Continuer: &continuer{sent: []int32{9}}},
			want: strings.TrimSuffix(chat, "}") + `,"meta_info":{` + mark(0) + `}}`,
		},
		{name: "completions", path: "/v1/completions", ask: `{"prompt":[1,2]}`, text: chat, cfg: proxy.Config{Continuer: &continuer{sent: []int32{9}, spliced: 1}}, want: strings.TrimSuffix(chat, "}") + `,"meta_info":{` + mark(1) + `}}`},
		{name: "an error", ask: asked([]int32{1, 2}), text: native, status: 500, cfg: proxy.Config{Continuer: bystander{}}, want: native},
		{name: "not a generation", path: "/flush_cache", ask: "{}", text: native, cfg: proxy.Config{Continuer: bystander{}}, want: native},
		{name: "not JSON", ask: asked([]int32{1, 2}), text: "no } [ \"JSON", cfg: proxy.Config{Continuer: bystander{}}, want: "no } [ \"JSON"},
		{name: "no continuity", ask: asked([]int32{1, 2}), text: native, want: native},
	} {
		engine := &answers{text: c.text, kind: c.kind, status: c.status}
		r := newRig(t, c.cfg, engine)
		path := c.path
		if path == "" {
			path = "/generate"
		}
		if _, got := r.post(t, path, c.ask); got != c.want {
			t.Errorf("%s: the client got %s, want %s", c.name, got, c.want)
		}
	}
}

// A long answer in many pieces is marked, whatever the room of the client.
func TestMarkedPieces(t *testing.T) {
	t.Parallel()
	text := answered(4, make([]int32, 20_000))
	r := newRig(t, proxy.Config{Continuer: &continuer{sent: []int32{9, 8, 7, 6}, spliced: 1}}, &answers{text: text})
	if _, got := r.post(t, "/generate", asked([]int32{1, 2})); got != withMark(text, 1) {
		t.Errorf("the client got %d bytes, want %d", len(got), len(withMark(text, 1)))
	}
	if c := r.kept.one(t); len(c.Output) != 20_000 || len(c.Asked) != 2 {
		t.Errorf("kept %d ids", len(c.Output))
	}
}

// An engine is asked not to compress. If it does so nevertheless, its answer passes unmarked, and
// no prompt is changed from then on.
func TestUnmarkable(t *testing.T) {
	t.Parallel()
	var accepts atomic.Value
	r := newRig(t, proxy.Config{Continuer: &continuer{sent: []int32{9}, spliced: 1}}, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		accepts.Store(req.Header.Get("Accept-Encoding"))
		body, _ := io.ReadAll(req.Body)
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("X-Got", string(body))
		_, _ = w.Write([]byte("compressed"))
	}))
	ask := func() (got, body string) {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/generate", strings.NewReader(`{"input_ids":[1,2]}`))
		req.Header.Set("Accept-Encoding", "gzip, deflate")
		res, err := r.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		return res.Header.Get("X-Got"), string(text)
	}
	for i, want := range []string{`{"input_ids":[9]}`, `{"input_ids":[1,2]}`} {
		if got, body := ask(); got != want || body != "compressed" || accepts.Load() != "identity" {
			t.Errorf("call %d: the engine got %s and accepts %v, the client %s", i, got, accepts.Load(), body)
		}
	}
}

// Two proxies with continuity, one behind the other: the server sees the turns of both.
func TestMarkedTwice(t *testing.T) {
	t.Parallel()
	engine := &answers{text: answered(4, []int32{7})}
	inner := newRig(t, proxy.Config{Continuer: &continuer{sent: []int32{9, 8, 7, 6}, spliced: 2}}, engine)
	outer := newRig(t, proxy.Config{Continuer: bystander{}}, inner.proxy)
	_, got := outer.post(t, "/generate", asked([]int32{1, 2}))
	var answer struct {
		Meta struct {
			Rollout struct {
				Continuity bool
				Spliced    int
			}
		} `json:"meta_info"`
	}
	if err := json.Unmarshal([]byte(got), &answer); err != nil || !answer.Meta.Rollout.Continuity || answer.Meta.Rollout.Spliced != 2 {
		t.Errorf("%v: %s", err, got)
	}
}
