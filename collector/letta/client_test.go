package letta_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize"
)

// serve starts a server with one handler and returns a client for it.
func serve(tb testing.TB, h http.HandlerFunc, change ...func(*letta.ClientConfig)) *letta.Client {
	tb.Helper()
	s := httptest.NewServer(h)
	tb.Cleanup(s.Close)
	cfg := letta.ClientConfig{BaseURL: s.URL, Version: "test"}
	for _, f := range change {
		f(&cfg)
	}
	c, err := letta.NewClient(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.CloseIdle)
	return c
}

func hello() *letta.LettaRequest {
	return &letta.LettaRequest{Messages: letta.InputMessages{letta.UserText("hi")}}
}

func TestErrorShapes(t *testing.T) {
	t.Parallel()
	recorded := func(name string, exchange int) string {
		return string(readRecording(t, name).Exchanges[exchange].Response.Body)
	}
	for _, test := range []struct {
		name   string
		status int
		header [2]string
		body   string
		class  error
		code   string
		detail string // a part of it
		delay  time.Duration
	}{
		{name: "text", status: 404, body: recorded("unknown-agent", 0), class: collector.ErrRejected, detail: "Agent with ID agent-00000000"},
		{name: "object", status: 409, body: recorded("approval-pending", 1), class: collector.ErrRejected, code: "PENDING_APPROVAL", detail: "CONFLICT: Cannot send a new message"},
		{name: "python repr", status: 422, body: recorded("bad-body", 0), class: collector.ErrRejected, detail: "literal_error"},
		{name: "unknown error", status: 500, body: recorded("http-500", 0), class: collector.ErrServer, detail: "An unknown error occurred"},
		{name: "list", status: 422, body: `{"detail":[{"loc":["body","x"],"msg":"Field required","type":"missing"}]}`, class: collector.ErrRejected, detail: `["body","x"]: Field required`},
		{name: "examples", status: 422, body: `{"trace_id":"","detail":"[{'type': 'string_pattern_mismatch'}]","examples":["agent-1"]}`, class: collector.ErrRejected, detail: "string_pattern_mismatch"},
		{name: "llm timeout", status: 504, body: `{"error":{"type":"llm_timeout","message":"The LLM request timed out.","detail":"after 300 s"}}`, class: collector.ErrTimeout, code: "llm_timeout", detail: "timed out.: after 300 s"},
		{name: "llm rate limit", status: 429, body: `{"error":{"type":"llm_rate_limit","message":"slow down","detail":""}}`, header: [2]string{"Retry-After", "7"}, class: collector.ErrBusy, code: "llm_rate_limit", detail: "slow down", delay: 7 * time.Second},
		{name: "llm authentication is not ours", status: 401, body: `{"error":{"type":"llm_authentication","message":"bad key","detail":""}}`, class: collector.ErrUnusable, code: "llm_authentication"},
		{name: "llm credits", status: 402, body: `{"error":{"type":"llm_insufficient_credits","message":"broke"}}`, class: collector.ErrUnusable, code: "llm_insufficient_credits"},
		{name: "unauthorized", status: 401, body: `{"detail":"Unauthorized"}`, class: collector.ErrAuth, detail: "Unauthorized"},
		{name: "deadlock", status: 409, body: `{"detail":"deadlock detected"}`, header: [2]string{"Retry-After", "1"}, class: collector.ErrBusy, delay: time.Second},
		{name: "conflict with run", status: 409, body: `{"detail":"CONFLICT: busy","run_id":"run-1"}`, class: collector.ErrRejected, detail: "CONFLICT: busy"},
		{name: "concurrent update", status: 409, body: `{"detail":"agent was updated by another transaction"}`, class: collector.ErrBusy, detail: "another transaction"},
		{name: "payment of a proxy", status: 402, body: "", class: collector.ErrRejected},
		{name: "service", status: 503, body: `{"detail":"database down"}`, class: collector.ErrUnavailable, detail: "database down"},
		{name: "proxy page", status: 502, body: "<html><head><title>502 Bad Gateway</title></head>\n<body>nginx</body></html>", class: collector.ErrUnavailable, detail: "502 Bad Gateway nginx"},
		{name: "empty", status: 500, body: "", class: collector.ErrServer},
		{name: "not an object", status: 500, body: `[1,2]`, class: collector.ErrServer, detail: "[1,2]"},
		{name: "numbers", status: 400, body: `{"detail":17}`, class: collector.ErrRejected, detail: "17"},
		{name: "redirect", status: 307, header: [2]string{"Location", "https://elsewhere/v1/agents/"}, class: collector.ErrUnusable, detail: "https://elsewhere/"},
		{name: "date", status: 429, header: [2]string{"Retry-After", "Mon, 02 Jan 2006 15:04:05 GMT"}, body: "{}", class: collector.ErrBusy, detail: "{}"},
		{name: "absurd delay", status: 429, header: [2]string{"Retry-After", "1e9"}, body: "{}", class: collector.ErrBusy, delay: 10 * time.Minute},
		{name: "long", status: 400, body: `{"detail":"` + strings.Repeat("é\\n", 4000) + `"}`, class: collector.ErrRejected, detail: "é é"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if test.header[0] != "" {
					w.Header().Set(test.header[0], test.header[1])
				}
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			})
			_, err := c.Send(t.Context(), "agent-1", hello(), "key/1", new(tokenize.Reply))
			var e *letta.APIError
			if !errors.As(err, &e) {
				t.Fatalf("Send = %v, want an APIError", err)
			}
			if e.Status != test.status || e.Code != test.code || !errors.Is(err, test.class) || e.RetryDelay() != test.delay {
				t.Errorf("status %d code %q class %v delay %v, want %d %q %v %v", e.Status, e.Code, e.Err, e.RetryAfter, test.status, test.code, test.class, test.delay)
			}
			if !strings.Contains(e.Detail, test.detail) || len(e.Detail) > 300 || strings.ContainsAny(e.Detail, "\n\r\t") {
				t.Errorf("detail = %q, want one line of at most 300 bytes with %q", e.Detail, test.detail)
			}
			if e.Op != "send" || e.Method != http.MethodPost || e.Path != "/v1/agents/agent-1/messages" || e.RequestID != "key/1" {
				t.Errorf("names %q %q %q %q", e.Op, e.Method, e.Path, e.RequestID)
			}
			if strings.Contains(err.Error(), "collector:") || strings.Contains(err.Error(), "\n") {
				t.Errorf("text %q", err)
			}
		})
	}
}

// TestTransportErrors: what is no answer at all.
func TestTransportErrors(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := "http://" + closed.Addr().String()
	_ = closed.Close()
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(secure.Close)
	abrupt := func(before string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = io.WriteString(conn, before)
				_ = conn.Close()
			}
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	for _, test := range []struct {
		name, url string
		class     error
	}{
		{"refused", refused, collector.ErrConnection},
		{"no such host", "http://rollout-test.invalid", collector.ErrConnection},
		{"dropped before the answer", abrupt(""), collector.ErrConnection},
		{"dropped in mid-body", abrupt("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"messages\":[],\"turns\":[{\"role\":\"assi"), collector.ErrConnection},
		{"dropped in mid-chunk", abrupt("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n{\"messages\":["), collector.ErrConnection},
		{"garbage", abrupt("SSH-2.0-OpenSSH_9.6\r\n\r\n"), collector.ErrConnection},
		{"unknown authority", secure.URL, collector.ErrUnusable},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c, err := letta.NewClient(letta.ClientConfig{BaseURL: test.url})
			if err != nil {
				t.Fatal(err)
			}
			defer c.CloseIdle()
			_, err = c.Send(t.Context(), "agent-1", hello(), "", new(tokenize.Reply))
			var e *letta.APIError
			if !errors.As(err, &e) || e.Status != 0 || !errors.Is(err, test.class) {
				t.Errorf("Send = %v, want an APIError of class %v", err, test.class)
			}
		})
	}
	t.Run("own authority", func(t *testing.T) {
		t.Parallel()
		tlsConfig := secure.Client().Transport.(*http.Transport).TLSClientConfig
		c, err := letta.NewClient(letta.ClientConfig{BaseURL: secure.URL, TLS: tlsConfig})
		if err != nil {
			t.Fatal(err)
		}
		defer c.CloseIdle()
		if _, err := c.Health(t.Context()); !letta.IsNotFound(err) {
			t.Errorf("Health = %v, want the handler's 404", err)
		}
	})
}

// A countingServer speaks just enough HTTP to count what is sent to it, also what
// it never answers.
type countingServer struct {
	listener net.Listener
	mu       sync.Mutex
	requests []string // method and path, in order
	conns    int
	// answer says how many requests of a connection are answered before one is
	// read and the connection closed on it.
	answer atomic.Int32
}

func newCountingServer(t *testing.T, answer int) *countingServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &countingServer{listener: l}
	s.answer.Store(int32(answer))
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns++
			s.mu.Unlock()
			go s.serve(conn)
		}
	}()
	return s
}

func (s *countingServer) serve(conn net.Conn) {
	defer conn.Close()
	br := bufio.NewReader(conn)
	for n := 0; ; n++ {
		r, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		s.mu.Lock()
		s.requests = append(s.requests, r.Method+" "+r.URL.Path)
		s.mu.Unlock()
		if n >= int(s.answer.Load()) {
			return
		}
		const body = `{"messages":[],"stop_reason":{"stop_reason":"end_turn"},"usage":{},"turns":[]}`
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
}

func (s *countingServer) count(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.requests {
		if strings.HasPrefix(r, method) {
			n++
		}
	}
	return n
}

// TestSendIsNeverRepeated: the server reads a send on a connection that was used
// before, and drops it. That is where net/http repeats requests that it may; and
// where it did, the agent would run twice.
func TestSendIsNeverRepeated(t *testing.T) {
	t.Parallel()
	for _, answered := range []int{0, 1} {
		t.Run(fmt.Sprintf("after %d on the connection", answered), func(t *testing.T) {
			t.Parallel()
			s := newCountingServer(t, answered)
			c, err := letta.NewClient(letta.ClientConfig{BaseURL: "http://" + s.listener.Addr().String()})
			if err != nil {
				t.Fatal(err)
			}
			defer c.CloseIdle()
			for i := range answered + 1 {
				_, err = c.Send(t.Context(), "agent-1", hello(), "", new(tokenize.Reply))
				if i < answered && err != nil {
					t.Fatal(err)
				}
			}
			if !errors.Is(err, collector.ErrConnection) {
				t.Errorf("Send = %v, want a connection error", err)
			}
			if got, want := s.count("POST"), answered+1; got != want {
				t.Errorf("server saw %d sends, want %d", got, want)
			}
			// What makes something on the server is not repeated either.
			s.answer.Store(0)
			if _, err := c.CreateAgent(t.Context(), json.RawMessage(`{}`)); !errors.Is(err, collector.ErrConnection) || s.count("POST") != answered+2 {
				t.Errorf("CreateAgent = %v after %d requests, want a connection error after one", err, s.count("POST")-answered-1)
			}
			// A GET may be repeated, and is, a bounded number of times.
			if _, err := c.Health(t.Context()); !errors.Is(err, collector.ErrConnection) {
				t.Errorf("Health = %v, want a connection error", err)
			}
			if got := s.count("GET"); got < 3 || got > 6 {
				t.Errorf("server saw %d GETs, want 3, or 6 with net/http's own", got)
			}
		})
	}
}

// TestNoRedirect: following one would repeat a send, or turn it into a GET, and
// carry the password elsewhere.
func TestNoRedirect(t *testing.T) {
	t.Parallel()
	for _, status := range []int{301, 302, 303, 307, 308} {
		var seen atomic.Int32
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			seen.Add(1)
			if strings.HasSuffix(r.URL.Path, "/there") {
				_, _ = io.WriteString(w, "{}")
				return
			}
			http.Redirect(w, r, "/there", status)
		})
		_, err := c.Send(t.Context(), "agent-1", hello(), "", new(tokenize.Reply))
		if !errors.Is(err, collector.ErrUnusable) || seen.Load() != 1 {
			t.Errorf("%d: Send = %v after %d requests, want a refusal after 1", status, err, seen.Load())
		}
		if _, err := c.Health(t.Context()); !errors.Is(err, collector.ErrUnusable) || seen.Load() != 2 {
			t.Errorf("%d: Health = %v after %d requests, want a refusal after 1", status, err, seen.Load()-1)
		}
	}
}

func TestConnectionIsReused(t *testing.T) {
	t.Parallel()
	var conns atomic.Int32
	body := string(readRecording(t, "large").Exchanges[0].Response.Body)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost && strings.Contains(r.URL.Path, "bad"):
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, strings.Repeat("x", 100_000))
		case r.Method == http.MethodPost && strings.Contains(r.URL.Path, "chunked"):
			_, _ = io.WriteString(w, body[:len(body)/2])
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, body[len(body)/2:])
		case r.Method == http.MethodPost:
			w.Header().Set("Content-Length", fmt.Sprint(len(body)))
			_, _ = io.WriteString(w, body)
		default:
			_, _ = io.WriteString(w, `{"version":"0.16.7","status":"ok"}`)
		}
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	c, err := letta.NewClient(letta.ClientConfig{BaseURL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdle()
	reply := new(tokenize.Reply)
	for range 3 {
		for _, agent := range []string{"agent-1", "agent-chunked"} {
			answer, err := c.Send(t.Context(), agent, hello(), "", reply)
			if err != nil {
				t.Fatal(err)
			}
			if len(reply.Turns) != 3 || answer.StopReason.StopReason != letta.StopMaxTokensExceeded || answer.Usage.StepCount != 2 || len(answer.Messages) == 0 {
				t.Fatalf("reply has %d turns, stop reason %q, %d steps, %d messages", len(reply.Turns), answer.StopReason.StopReason, answer.Usage.StepCount, len(answer.Messages))
			}
		}
		if _, err := c.Send(t.Context(), "agent-bad", hello(), "", reply); !errors.Is(err, collector.ErrServer) {
			t.Fatal(err)
		}
		if _, err := c.Health(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := conns.Load(); got != 1 {
		t.Errorf("12 requests, one after the other, took %d connections, want 1", got)
	}
}

// TestReplyTooLarge: 200 MB are refused before they are read.
func TestReplyTooLarge(t *testing.T) {
	t.Parallel()
	for _, chunked := range []bool{false, true} {
		t.Run(fmt.Sprintf("chunked=%v", chunked), func(t *testing.T) {
			t.Parallel()
			const size = 200 << 20
			var written atomic.Int64
			done := make(chan struct{})
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				defer close(done)
				if !chunked {
					w.Header().Set("Content-Length", fmt.Sprint(size))
				}
				_, _ = io.WriteString(w, `{"messages":[],"logprobs":[`)
				chunk := []byte(strings.Repeat("1,", 32<<10))
				for written.Load() < size {
					n, err := w.Write(chunk)
					written.Add(int64(n))
					if err != nil {
						return
					}
				}
			}, func(cfg *letta.ClientConfig) { cfg.MaxReplyBytes = 1 << 20 })
			_, err := c.Send(t.Context(), "agent-1", hello(), "", new(tokenize.Reply))
			bad, ok := errors.AsType[*tokenize.DecodeError](err)
			if !ok || !errors.Is(err, tokenize.ErrTooLarge) || !chunked && bad.Offset != 0 {
				t.Errorf("Send = %v, want ErrTooLarge, and nothing read where the length was told", err)
			}
			<-done
			if got := written.Load(); got > 32<<20 {
				t.Errorf("server wrote %d MB before it was stopped", got>>20)
			}
		})
	}
}

// A pipeListener is a listener without sockets, which a synctest bubble knows to
// be blocked.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { close(l.done); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// inBubble runs f in fake time against a real server and transport.
func inBubble(t *testing.T, h http.HandlerFunc, cfg letta.ClientConfig, f func(t *testing.T, c *letta.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := newPipeListener()
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // only then does the server notice that the client left
			h(w, r)
		})}
		served := make(chan struct{})
		go func() { defer close(served); _ = s.Serve(l) }()
		cfg.BaseURL, cfg.Dial = "http://letta.test", l.dial
		cfg.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
		c, err := letta.NewClient(cfg)
		if err != nil {
			t.Fatal(err)
		}
		f(t, c)
		c.CloseIdle()
		_ = s.Close()
		<-served
	})
}

func TestTimeouts(t *testing.T) {
	t.Parallel()
	const head = `{"messages":[],"turns":[`
	for _, test := range []struct {
		name    string
		handler http.HandlerFunc
		class   error
		after   time.Duration
	}{
		{"no answer", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, collector.ErrTimeout, time.Hour},
		{"stalled body", func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(10 * time.Minute) // the model thinks
			_, _ = io.WriteString(w, head)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, collector.ErrIdle, 11 * time.Minute},
		{"trickling body", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, head)
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, " ")
				_ = http.NewResponseController(w).Flush()
				select {
				case <-time.After(30 * time.Second):
				case <-r.Context().Done():
				}
			}
		}, collector.ErrTimeout, time.Hour},
		{"stalled refusal", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, collector.ErrServer, time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, test.handler, letta.ClientConfig{}, func(t *testing.T, c *letta.Client) {
				t.Helper()
				start := time.Now()
				_, err := c.Send(t.Context(), "agent-1", hello(), "", new(tokenize.Reply))
				if !errors.Is(err, test.class) {
					t.Errorf("Send = %v, want %v", err, test.class)
				}
				if took := time.Since(start); took < test.after || took > test.after+31*time.Second {
					t.Errorf("took %v, want %v", took, test.after)
				}
			})
		})
	}
}

// TestCallersContext: what the caller ends is the caller's, not the server's.
func TestCallersContext(t *testing.T) {
	t.Parallel()
	stopping := errors.New("the run is stopping")
	inBubble(t, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, letta.ClientConfig{}, func(t *testing.T, c *letta.Client) {
		t.Helper()
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(stopping) })
		_, err := c.Send(ctx, "agent-1", hello(), "", new(tokenize.Reply))
		if !errors.Is(err, context.Canceled) || !errors.Is(err, stopping) || collector.Classify(err) != collector.ClassCancelled {
			t.Errorf("Send = %v, class %v, want cancelled with its cause", err, collector.Classify(err))
		}
		ctx, done := context.WithTimeout(t.Context(), time.Second)
		defer done()
		_, err = c.Send(ctx, "agent-1", hello(), "", new(tokenize.Reply))
		if collector.Classify(err) != collector.ClassTimeoutTotal {
			t.Errorf("Send = %v, class %v, want timeout_total", err, collector.Classify(err))
		}
	})
}

// TestReadSlots: of eight answers that are there, two are being read.
func TestReadSlots(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	var read, most atomic.Int32
	handler := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"messages":[],"stop_reason":{"stop_reason":"end_turn"},"usage":{},"turns":[]`)
		_ = http.NewResponseController(w).Flush()
		_, _ = io.WriteString(w, strings.Repeat(" ", 256<<10))
		_ = http.NewResponseController(w).Flush()
		// All of that has been taken off the pipe, so somebody is reading.
		most.Store(max(most.Load(), read.Add(1)))
		<-gate
		read.Add(-1)
		_, _ = io.WriteString(w, `}`)
	}
	synctest.Test(t, func(t *testing.T) {
		gate = make(chan struct{})
		l := newPipeListener()
		s := &http.Server{Handler: http.HandlerFunc(handler)}
		served := make(chan struct{})
		go func() { defer close(served); _ = s.Serve(l) }()
		c, err := letta.NewClient(letta.ClientConfig{BaseURL: "http://letta.test", Dial: l.dial, ReadSlots: 2, Proxy: func(*http.Request) (*url.URL, error) { return nil, nil }})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if _, err := c.Send(t.Context(), "agent-1", hello(), "", new(tokenize.Reply)); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if got := read.Load(); got != 2 {
			t.Errorf("%d answers are being read at once, want 2", got)
		}
		close(gate)
		wg.Wait()
		if got := most.Load(); got != 2 {
			t.Errorf("at most %d answers were read at once, want 2", got)
		}
		c.CloseIdle()
		_ = s.Close()
		<-served
	})
}

// TestHeaders: what every request carries, and what none does.
func TestHeaders(t *testing.T) {
	t.Parallel()
	var got http.Header
	var path string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got, path = r.Header.Clone(), r.URL.EscapedPath()
		w.WriteHeader(http.StatusNotFound)
	}, func(cfg *letta.ClientConfig) {
		cfg.BaseURL += "/some/prefix/v1/"
		cfg.Password = "s3cret"
		cfg.Headers = http.Header{"X-Team": {"a", "b"}}
	})
	_, _ = c.Send(t.Context(), "agent-1/../x", hello(), "key/1", new(tokenize.Reply))
	want := map[string]string{
		"User-Agent": "rollout/test", "Authorization": "Bearer s3cret", "X-Api-Request-Log-Id": "key/1",
		"Content-Type": "application/json", "Accept-Encoding": "", "X-Stainless-Package-Version": "", "Idempotency-Key": "",
	}
	for k, v := range want {
		if got.Get(k) != v {
			t.Errorf("%s: %q, want %q", k, got.Get(k), v)
		}
	}
	if len(got.Values("X-Team")) != 2 {
		t.Errorf("X-Team: %q, want both values", got.Values("X-Team"))
	}
	if path != "/some/prefix/v1/agents/agent-1%2F..%2Fx/messages" {
		t.Errorf("path %s", path)
	}
}

// TestCanary: the password shows up nowhere, even where a server repeats it.
func TestCanary(t *testing.T) {
	t.Parallel()
	const canary = "canary-7f3a"
	var notices []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "http://elsewhere/?"+canary)
		status := 400
		if strings.Contains(r.URL.Path, "moved") {
			status = 302
		}
		if strings.Contains(r.URL.Path, "fine") {
			status = 200
		}
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"detail":"Argument order: you sent %s"}`, r.Header.Get("Authorization"))
	}, func(cfg *letta.ClientConfig) {
		cfg.Password = canary
		cfg.Notice = func(text string) { notices = append(notices, text) }
	})
	var all []string
	for _, id := range []string{"agent-1", "moved", "fine"} {
		_, err := c.Send(t.Context(), id, hello(), "", new(tokenize.Reply))
		all = append(all, fmt.Sprintf("%v %+v %#v", err, err, err))
	}
	_, err := c.Steps(t.Context(), letta.StepsQuery{})
	all = append(append(all, err.Error()), notices...)
	cfg := letta.ClientConfig{BaseURL: "http://x", Password: canary}
	all = append(all, fmt.Sprintf("%v %+v %#v %s %q", cfg, cfg, cfg, cfg.Password, cfg.Password))
	if b, err := json.Marshal(map[string]letta.Secret{"password": canary}); err == nil {
		all = append(all, string(b))
	}
	var log strings.Builder
	entry := slog.NewRecord(time.Time{}, slog.LevelInfo, "config", 0)
	entry.AddAttrs(slog.Any("password", cfg.Password), slog.Any("config", cfg))
	if err := slog.NewTextHandler(&log, nil).Handle(t.Context(), entry); err != nil {
		t.Fatal(err)
	}
	all = append(all, log.String())
	_, err = letta.NewClient(letta.ClientConfig{BaseURL: "http://user:" + canary + "@host"})
	all = append(all, err.Error())
	for _, text := range all {
		if strings.Contains(text, canary) {
			t.Errorf("the password is in %q", text)
		}
	}
	if len(notices) != 1 {
		t.Errorf("%d notices, want the one about steps", len(notices))
	}
}

func TestConfigComplaints(t *testing.T) {
	t.Parallel()
	err := letta.ClientConfig{
		BaseURL: "localhost:8283", SendTimeout: -1, InFlight: -1, Password: "a\nb",
		Headers: http.Header{"idempotency-key": {"x"}, "Authorization": {"x"}},
	}.Validate()
	for _, want := range []string{"must begin with http", "send timeout", "in flight -1", "password", "repeat a send", "Authorization"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Validate = %v, want a complaint with %q", err, want)
		}
	}
}
