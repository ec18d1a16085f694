package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/tokenize"
)

type faulty struct {
	sglang
	inRequest, inAnswer bool
}

func (f faulty) request(s *tokenize.Scanner, q *request) error {
	err := f.sglang.request(s, q)
	if f.inRequest {
		panic("a fault")
	}
	return err
}

func (f faulty) answer(s *tokenize.Scanner, a *answer) error {
	if f.inAnswer {
		panic("a fault")
	}
	return f.sglang.answer(s, a)
}

// TestPanickingDialect proves that a panic in a dialect harms no call. The request and its answer
// pass unchanged, the call is kept without what was not parsed, and no memory stays held.
func TestPanickingDialect(t *testing.T) {
	t.Parallel()
	const ask = `{"input_ids":[1,2,3],"sampling_params":{}}`
	for _, c := range []struct {
		name, kind, text string
		dialect          faulty
	}{
		{"in a request", "application/json", `{"output_ids":[7],"meta_info":{}}`, faulty{inRequest: true}},
		{"in an answer", "application/json", `{"output_ids":[7],"meta_info":{}}`, faulty{inAnswer: true}},
		{"in a stream", "text/event-stream", "data: {}\n\ndata: [DONE]\n\n", faulty{inAnswer: true}},
	} {
		p, _ := newTrialRig(t, func(w http.ResponseWriter, r *http.Request) {
			if body, _ := io.ReadAll(r.Body); string(body) != ask && !strings.Contains(string(body), "stream") {
				t.Errorf("%s: the engine got %s", c.name, body)
			}
			w.Header().Set("Content-Type", c.kind)
			_, _ = io.WriteString(w, c.text)
		})
		var kept []tap.Call
		p.cfg.Keep = func(c *tap.Call) bool { kept = append(kept, *c); return true }
		body := ask
		if c.kind == "text/event-stream" {
			body = strings.Replace(ask, "{", `{"stream":true,`, 1)
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/generate", strings.NewReader(body))
		x := &exchange{p: p}
		if !x.begin(c.dialect, r) {
			t.Fatal("not begun")
		}
		w := httptest.NewRecorder()
		p.forward.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)))
		x.end()
		if w.Code != http.StatusOK || w.Body.String() != c.text {
			t.Errorf("%s: the client got %d %s", c.name, w.Code, w.Body)
		}
		if s := p.Stats(); s.Panics != 1 || s.Unread["panic"] != 1 || s.BodyBytes != 0 || s.Engines[0].Busy != 0 {
			t.Errorf("%s: %+v", c.name, s)
		}
		if len(kept) != 1 || kept[0].Output != nil || kept[0].Status != http.StatusOK {
			t.Errorf("%s: kept %+v", c.name, kept)
		}
	}
}

// TestAnswerBeforeTheRequest proves that an engine that answers before it has read the request
// still reads the right bytes afterwards, even if other requests came meanwhile.
func TestAnswerBeforeTheRequest(t *testing.T) {
	t.Parallel()
	head, others := make(chan struct{}), make(chan struct{})
	got := make(chan string, 1)
	slow := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		_, _ = io.WriteString(w, "{")
		_ = http.NewResponseController(w).Flush()
		close(head)
		<-others
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got <- string(body)
		_, _ = io.WriteString(w, "}")
	}))
	slow.Listener = narrow{slow.Listener}
	slow.Start()
	defer slow.Close()
	quick := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer quick.Close()
	// The first request goes to the first engine, and the others to the less busy second one.
	var urls []*url.URL
	for _, text := range []string{slow.URL, quick.URL} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		urls = append(urls, u)
	}
	p, err := New(Config{Engines: urls})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	dial := p.transport.DialContext
	p.transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if w, ok := c.(wire); ok {
			_ = w.Conn.(*net.TCPConn).SetWriteBuffer(16 << 10)
		}
		return c, err
	}
	body := func(name string) string {
		return `{"messages":[{"role":"user","content":"` + strings.Repeat(name, 900_000) + `"}]}`
	}
	call := func(body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, chatPath, strings.NewReader(body)))
		return w
	}
	first := body("a")
	var all sync.WaitGroup
	all.Go(func() {
		if w := call(first); w.Code != http.StatusOK || w.Body.String() != "{}" {
			t.Errorf("the client got %d %s", w.Code, w.Body)
		}
	})
	<-head
	for range 16 {
		call(body("b"))
	}
	close(others)
	if text := <-got; text != first {
		t.Errorf("the engine got %d bytes, %d of them another request's", len(text), strings.Count(text, "b"))
	}
	all.Wait()
}

type narrow struct{ net.Listener }

func (l narrow) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(64 << 10)
	}
	return c, err
}
