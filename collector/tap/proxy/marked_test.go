package proxy_test

import (
	"cmp"
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

// withMark returns an answer as marked by a proxy with continuity.
func withMark(answer string, spliced int) string {
	mark := fmt.Sprintf(`"rollout":{"continuity":true,"spliced":%d}`, spliced)
	if at := strings.LastIndex(answer, "}}"); at >= 0 {
		return answer[:at] + "," + mark + answer[at:]
	}
	return answer
}

// TestMarked proves that each answer gets a mark if, and only if, there is a Continuer.
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
		body            int64 // the limit of a body; 0 means the default
		want            string
	}{
		{name: "spliced", ask: asked([]int32{1, 2}), text: native, cfg: proxy.Config{Continuer: &continuer{sent: []int32{9, 8, 7, 6}, spliced: 3}}, want: withMark(native, 3)},
		{name: "left as it was", ask: asked([]int32{1, 2}), text: native, cfg: proxy.Config{Continuer: bystander{}}, want: withMark(native, 0)},
		{name: "what is the same", ask: asked([]int32{1, 2}), text: native, cfg: proxy.Config{Continuer: &continuer{sent: []int32{1, 2}, spliced: 3}}, want: withMark(native, 0)},
		{name: "a fault", ask: asked([]int32{1, 2}), text: native, cfg: proxy.Config{Continuer: &continuer{panics: true}}, want: withMark(native, 0)},
		{name: "too large to be read", ask: asked([]int32{1, 2}), text: native, cfg: proxy.Config{Continuer: &continuer{sent: []int32{9}}}, body: 20, want: withMark(native, 0)},
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
		r.proxy.Limits().BodyBytes = cmp.Or(c.body, r.proxy.Limits().BodyBytes)
		if _, got := r.post(t, cmp.Or(c.path, "/generate"), c.ask); got != c.want {
			t.Errorf("%s: the client got %s, want %s", c.name, got, c.want)
		}
	}
}

// TestMarkedPieces proves that a long answer is marked, for any read size of the client.
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

// TestUnmarkable proves that if an engine compresses although asked not to, a call with a spliced
// prompt fails, no prompt is changed afterwards, and other calls pass.
func TestUnmarkable(t *testing.T) {
	t.Parallel()
	const own, spliced = `{"input_ids":[1,2]}`, `{"input_ids":[9]}`
	for _, kind := range []string{"application/json", "text/event-stream"} {
		for _, first := range []proxy.Continuer{&continuer{sent: []int32{9}, spliced: 1}, bystander{}} {
			var accepts, got atomic.Value
			r := newRig(t, proxy.Config{Continuer: first}, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				body, _ := io.ReadAll(req.Body)
				accepts.Store(req.Header.Get("Accept-Encoding"))
				got.Store(string(body))
				w.Header().Set("Content-Encoding", "gzip")
				w.Header().Set("Content-Type", kind)
				_, _ = io.WriteString(w, "compressed")
			}))
			asks, status, says := own, http.StatusOK, "compressed"
			if _, ok := first.(*continuer); ok {
				asks, status, says = spliced, http.StatusBadGateway, "rollout tap: the tap withheld the answer, because the answer cannot record that --continuity changed the prompt ("+
					"the engine compressed the answer although the tap asked for no compression). --continuity is now off; retry the call\n"
			}
			for i := range 2 {
				code, body := r.post(t, "/generate", own)
				if code != status || body != says || got.Load() != asks || accepts.Load() != "identity" {
					t.Errorf("%s, call %d: the client got %d %q, the engine %v, and accepts %v", kind, i, code, body, got.Load(), accepts.Load())
				}
				asks, status, says = own, http.StatusOK, "compressed"
			}
			if s := r.proxy.Stats(); s.Unreachable != 0 {
				t.Errorf("%d engines did not answer", s.Unreachable)
			}
		}
	}
}

// TestUnmarkableAtEnd proves that an answer without a place for the mark passes, but is cut off at
// the end if the prompt was spliced. This holds for all 2xx statuses.
func TestUnmarkableAtEnd(t *testing.T) {
	t.Parallel()
	native := answered(4, []int32{7})
	for _, c := range []struct {
		name, kind, text string
		status           int
		want             string // empty: the answer is cut off
	}{
		{name: "not JSON", text: "no JSON"},
		{name: "nothing", text: ""},
		{name: "a text in UTF-16", text: "\xff\xfe{\x00}\x00"},
		{name: "a list of lists", text: "[[" + native + "]]"},
		{name: "a stream without an event", kind: "text/event-stream", text: "data: [DONE]\n\n"},
		{name: "another status", status: http.StatusNonAuthoritativeInfo, text: native, want: withMark(native, 1)},
		{name: "another status, not JSON", status: http.StatusNonAuthoritativeInfo, text: "no JSON"},
		{name: "an error", status: http.StatusInternalServerError, text: "no JSON", want: "no JSON"},
	} {
		r := newRig(t, proxy.Config{Continuer: &continuer{sent: []int32{9}, spliced: 1}}, &answers{text: c.text, kind: c.kind, status: c.status})
		res, err := r.client.Post(r.url+"/generate", "application/json", strings.NewReader(asked([]int32{1, 2})))
		var body []byte
		if err == nil {
			body, err = io.ReadAll(res.Body)
			_ = res.Body.Close()
		}
		if broken := err != nil; broken != (c.want == "") || !broken && string(body) != c.want {
			t.Errorf("%s: the client got %q, %v", c.name, body, err)
		}
		r.drain(t)
		if call := r.kept.one(t); call.Cut != (c.want == "") {
			t.Errorf("%s: kept as cut: %v", c.name, call.Cut)
		}
	}
}

// TestMarkedTwice proves that with two proxies in a row, the mark counts the turns of both.
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
