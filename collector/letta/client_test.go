package letta_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettatest"
	"github.com/rollout-rl/rollout/tokenize"
)

func hello() *letta.LettaRequest {
	return &letta.LettaRequest{Messages: letta.InputMessages{letta.UserText("hi")}}
}

// must returns the value of a call that must not fail: must(os.ReadFile(path))(t).
func must[T any](value T, err error) func(tb testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return value
	}
}

func newClient(t *testing.T, cfg letta.ClientConfig) *letta.Client {
	t.Helper()
	c := must(letta.NewClient(cfg))(t)
	t.Cleanup(c.CloseIdle)
	return c
}

// A countingServer counts all requests, including those that it never answers.
type countingServer struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string       // method and path, in order
	onConn   map[string]int // requests by connection
	// answer is the number of requests answered per connection before the server closes it.
	answer atomic.Int32
}

func newCountingServer(t *testing.T, answer int) *countingServer {
	t.Helper()
	s := &countingServer{onConn: make(map[string]int)}
	s.Server = httptest.NewServer(s)
	s.answer.Store(int32(answer))
	t.Cleanup(s.Close)
	return s
}

func (s *countingServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.Path)
	n := s.onConn[r.RemoteAddr]
	s.onConn[r.RemoteAddr]++
	s.mu.Unlock()
	if n >= int(s.answer.Load()) {
		panic(http.ErrAbortHandler) // closes the connection
	}
	_, _ = io.WriteString(w, `{"messages":[],"stop_reason":{"stop_reason":"end_turn"},"usage":{},"turns":[]}`)
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

// TestSendIsNeverRepeated checks that a send dropped on a reused connection is not repeated, as
// net/http would do.
func TestSendIsNeverRepeated(t *testing.T) {
	t.Parallel()
	for _, answered := range []int{0, 1} {
		t.Run(fmt.Sprintf("after %d on the connection", answered), func(t *testing.T) {
			t.Parallel()
			s := newCountingServer(t, answered)
			c := newClient(t, letta.ClientConfig{BaseURL: s.URL})
			var err error
			for i := range answered + 1 {
				_, err = c.Send(t.Context(), "agent-1", hello(), "", new(tokenize.Reply))
				if i < answered && err != nil {
					t.Fatal(err)
				}
			}
			if !errors.Is(err, letta.ErrConnection) {
				t.Errorf("Send = %v, want a connection error", err)
			}
			if got, want := s.count("POST"), answered+1; got != want {
				t.Errorf("server saw %d sends, want %d", got, want)
			}
			// A create request is not repeated either.
			s.answer.Store(0)
			if _, err := c.CreateAgent(t.Context(), json.RawMessage(`{}`)); !errors.Is(err, letta.ErrConnection) || s.count("POST") != answered+2 {
				t.Errorf("CreateAgent = %v after %d requests, want a connection error after one", err, s.count("POST")-answered-1)
			}
			// A GET is repeated a bounded number of times.
			if _, err := c.Health(t.Context()); !errors.Is(err, letta.ErrConnection) {
				t.Errorf("Health = %v, want a connection error", err)
			}
			if got := s.count("GET"); got < 3 || got > 6 {
				t.Errorf("server saw %d GETs, want 3, or 6 with net/http's own", got)
			}
		})
	}
}

// A writesConn counts its writes, and fails those beyond most.
type writesConn struct {
	net.Conn
	writes *atomic.Int32
	most   int32
}

func (c writesConn) Write(b []byte) (int, error) {
	if c.writes.Add(1) > c.most {
		return 0, errors.New("the connection is gone")
	}
	return c.Conn.Write(b)
}

// TestSendIsOneWrite checks that a send is one write and is not retried if that write fails.
func TestSendIsOneWrite(t *testing.T) {
	t.Parallel()
	s := newCountingServer(t, 1000)
	var writes, dials atomic.Int32
	c := newClient(t, letta.ClientConfig{
		BaseURL: s.URL,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			dials.Add(1)
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			return writesConn{conn, &writes, 2}, err
		},
	})
	for range 2 {
		must(c.Send(t.Context(), "agent-1", hello(), "", new(tokenize.Reply)))(t)
	}
	if got := writes.Load(); got != 2 {
		t.Errorf("two sends took %d writes, want 2", got)
	}
	if _, err := c.Send(t.Context(), "agent-1", hello(), "", new(tokenize.Reply)); !errors.Is(err, letta.ErrConnection) {
		t.Errorf("Send = %v, want a connection error", err)
	}
	if got := writes.Load(); got != 3 || dials.Load() != 1 {
		t.Errorf("%d writes on %d connections, want 3 on 1: a send was repeated", got, dials.Load())
	}
}

// TestNoRedirect checks that redirects, which could repeat a send or leak the password, fail.
func TestNoRedirect(t *testing.T) {
	t.Parallel()
	for _, status := range []int{301, 302, 303, 307, 308} {
		var seen atomic.Int32
		c := lettatest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
			seen.Add(1)
			if strings.HasSuffix(r.URL.Path, "/there") {
				_, _ = io.WriteString(w, "{}")
				return
			}
			http.Redirect(w, r, "/there", status)
		})
		_, err := c.Send(t.Context(), "agent-1", hello(), "", new(tokenize.Reply))
		if !errors.Is(err, letta.ErrUnusable) || seen.Load() != 1 {
			t.Errorf("%d: Send = %v after %d requests, want a refusal after 1", status, err, seen.Load())
		}
		if _, err := c.Health(t.Context()); !errors.Is(err, letta.ErrUnusable) || seen.Load() != 2 {
			t.Errorf("%d: Health = %v after %d requests, want a refusal after 1", status, err, seen.Load()-1)
		}
	}
}

func TestConnectionIsReused(t *testing.T) {
	t.Parallel()
	var conns atomic.Int32
	body := string(lettatest.Read(t, "large").Exchanges[0].Response.Body)
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
	c := newClient(t, letta.ClientConfig{BaseURL: s.URL})
	reply := new(tokenize.Reply)
	for range 3 {
		for _, agent := range []string{"agent-1", "agent-chunked"} {
			answer := must(c.Send(t.Context(), agent, hello(), "", reply))(t)
			if len(reply.Turns) != 3 || answer.StopReason != letta.StopMaxTokensExceeded || answer.Usage.StepCount != 2 || len(answer.Messages) == 0 {
				t.Fatalf("reply has %d turns, stop reason %q, %d steps, %d messages", len(reply.Turns), answer.StopReason, answer.Usage.StepCount, len(answer.Messages))
			}
		}
		if _, err := c.Send(t.Context(), "agent-bad", hello(), "", reply); !errors.Is(err, letta.ErrServer) {
			t.Fatal(err)
		}
		must(c.Health(t.Context()))(t)
	}
	if got := conns.Load(); got != 1 {
		t.Errorf("12 requests, one after the other, took %d connections, want 1", got)
	}
}

// TestReplyTooLarge checks that a reply of 200 MB is refused before it is read.
func TestReplyTooLarge(t *testing.T) {
	t.Parallel()
	for _, chunked := range []bool{false, true} {
		t.Run(fmt.Sprintf("chunked=%v", chunked), func(t *testing.T) {
			t.Parallel()
			const size = 200 << 20
			var written atomic.Int64
			done := make(chan struct{})
			c := lettatest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
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
				t.Errorf("Send = %v, want ErrTooLarge, and nothing read if the length is known", err)
			}
			<-done
			if got := written.Load(); got > 32<<20 {
				t.Errorf("server wrote %d MB before it was stopped", got>>20)
			}
		})
	}
}

// TestHeaders checks the headers that every request has and those that it must not have.
func TestHeaders(t *testing.T) {
	t.Parallel()
	var got http.Header
	var path string
	c := lettatest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
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

func TestConfigComplaints(t *testing.T) {
	t.Parallel()
	err := letta.ClientConfig{
		BaseURL: "localhost:8283", SendTimeout: -1, IdleConns: -1, Password: "a\nb",
		Headers: http.Header{"idempotency-key": {"x"}, "Authorization": {"x"}},
	}.Validate()
	for _, want := range []string{"must begin with http", "send timeout", "idle connections -1", "password", "repeat sends", "Authorization"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Validate = %v, want a complaint with %q", err, want)
		}
	}
}
