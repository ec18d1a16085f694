package proxy_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A kept collects the calls that a proxy keeps.
type kept struct {
	mu    sync.Mutex
	calls []*tap.Call
}

func (k *kept) keep(c *tap.Call) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls = append(k.calls, cloned(c))
	return true
}

// cloned returns a copy of a call with its own ids.
func cloned(c *tap.Call) *tap.Call {
	own := *c
	own.Prompt, own.Asked, own.Output, own.Logprobs = slices.Clone(c.Prompt), slices.Clone(c.Asked), slices.Clone(c.Output), slices.Clone(c.Logprobs)
	return &own
}

func (k *kept) all() []*tap.Call {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.calls)
}

func (k *kept) one(tb testing.TB) *tap.Call {
	tb.Helper()
	calls := k.all()
	if len(calls) != 1 {
		tb.Fatalf("%d calls were kept, want 1", len(calls))
	}
	return calls[0]
}

// A rig is a proxy over HTTP in front of engines.
type rig struct {
	proxy  *proxy.Proxy
	url    string
	kept   kept
	client *http.Client
}

func parse(tb testing.TB, text string) *url.URL {
	tb.Helper()
	u, err := url.Parse(text)
	if err != nil {
		tb.Fatal(err)
	}
	return u
}

func newRig(tb testing.TB, cfg proxy.Config, engines ...http.Handler) *rig {
	tb.Helper()
	for _, h := range engines {
		e := httptest.NewServer(h)
		tb.Cleanup(e.Close)
		cfg.Engines = append(cfg.Engines, parse(tb, e.URL))
	}
	r := &rig{client: &http.Client{Transport: &http.Transport{DisableCompression: true}}}
	if cfg.Keep == nil {
		cfg.Keep = r.kept.keep
	}
	p, err := proxy.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	r.proxy = p
	front := httptest.NewServer(p)
	r.url = front.URL
	tb.Cleanup(func() {
		r.client.CloseIdleConnections()
		front.Close()
		p.Close()
	})
	return r
}

// send returns an answer whose body is not read.
func (r *rig) send(ctx context.Context, tb testing.TB, path, body string) *http.Response {
	tb.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+path, strings.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := r.client.Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	return res
}

// drain waits until all calls have ended.
func (r *rig) drain(tb testing.TB) {
	tb.Helper()
	r.proxy.Drain()
	if err := r.proxy.Wait(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

func (r *rig) post(tb testing.TB, path, body string) (int, string) {
	tb.Helper()
	res := r.send(tb.Context(), tb, path, body)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// An answers is an engine that sends a fixed answer, and records the bodies that it got.
type answers struct {
	text, kind string
	status     int
	mu         sync.Mutex
	bodies     []string
}

func (e *answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	e.mu.Lock()
	e.bodies = append(e.bodies, string(body))
	e.mu.Unlock()
	kind := e.kind
	if kind == "" {
		kind = "application/json"
	}
	w.Header().Set("Content-Type", kind)
	if e.status != 0 {
		w.WriteHeader(e.status)
	}
	_, _ = io.WriteString(w, e.text)
}

func (e *answers) got() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.bodies)
}

// asked returns a body in the format of a Letta server.
func asked(ids []int32) string {
	return `{"input_ids":` + list(ids) + `,"sampling_params":{"temperature":1.0,"max_new_tokens":4096,"top_p":0.9},"return_logprob":true}`
}

func list(ids []int32) string {
	var b bytes.Buffer
	b.WriteByte('[')
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, id)
	}
	b.WriteByte(']')
	return b.String()
}

// answered returns SGLang's answer to a prompt of n ids.
func answered(n int, output []int32) string {
	var b strings.Builder
	for i, id := range output {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "[-0.%d68340634554624%d, %d, null]", i%10, i%10, id)
	}
	return fmt.Sprintf(`{"text": "Grüße \"x\"", "output_ids": %s, "meta_info": {"id": "a9", "finish_reason": {"type": "stop", "matched": 151645}, `+
		`"prompt_tokens": %d, "weight_version": "7", "total_retractions": 0, "input_token_logprobs": [], "output_token_logprobs": [%s], `+
		`"completion_tokens": %d, "cached_tokens": 3, "e2e_latency": 0.00044}}`, list(output), n, b.String(), len(output))
}
