package letta_test

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettatest"
	"github.com/rollout-rl/rollout/tokenize"
)

// TestErrorShapes checks the class of every form of error answer of servers and proxies.
func TestErrorShapes(t *testing.T) {
	t.Parallel()
	recorded := func(name string, exchange int) string {
		return string(lettatest.Read(t, name).Exchanges[exchange].Response.Body)
	}
	for _, test := range []struct {
		name   string
		status int
		header [2]string
		body   string
		class  error
		code   string
		detail string // substring
		delay  time.Duration
	}{
		{name: "text", status: 404, body: recorded("unknown-agent", 0), class: letta.ErrRejected, detail: "Agent with ID agent-00000000"},
		{name: "object", status: 409, body: recorded("approval-pending", 1), class: letta.ErrRejected, code: "PENDING_APPROVAL", detail: "CONFLICT: Cannot send a new message"},
		{name: "python repr", status: 422, body: recorded("bad-body", 0), class: letta.ErrRejected, detail: "literal_error"},
		{name: "unknown error", status: 500, body: recorded("http-500", 0), class: letta.ErrServer, detail: "An unknown error occurred"},
		{name: "accepted", status: 202, class: letta.ErrRejected},
		{name: "no content", status: 204, class: letta.ErrRejected},
		{name: "list", status: 422, body: `{"detail":[{"loc":["body","x"],"msg":"Field required","type":"missing"}]}`, class: letta.ErrRejected, detail: `["body","x"]: Field required`},
		{name: "examples", status: 422, body: `{"trace_id":"","detail":"[{'type': 'string_pattern_mismatch'}]","examples":["agent-1"]}`, class: letta.ErrRejected, detail: "string_pattern_mismatch"},
		{name: "llm timeout", status: 504, body: `{"error":{"type":"llm_timeout","message":"The LLM request timed out.","detail":"after 300 s"}}`, class: letta.ErrTimeout, code: "llm_timeout", detail: "timed out.: after 300 s"},
		{name: "llm rate limit", status: 429, body: `{"error":{"type":"llm_rate_limit","message":"slow down","detail":""}}`, header: [2]string{"Retry-After", "7"}, class: letta.ErrBusy, code: "llm_rate_limit", detail: "slow down", delay: 7 * time.Second},
		{name: "llm authentication is not ours", status: 401, body: `{"error":{"type":"llm_authentication","message":"bad key","detail":""}}`, class: letta.ErrUnusable, code: "llm_authentication"},
		{name: "llm credits", status: 402, body: `{"error":{"type":"llm_insufficient_credits","message":"broke"}}`, class: letta.ErrUnusable, code: "llm_insufficient_credits"},
		{name: "unauthorized", status: 401, body: `{"detail":"Unauthorized"}`, class: letta.ErrAuth, detail: "Unauthorized"},
		{name: "deadlock", status: 409, body: `{"detail":"deadlock detected"}`, header: [2]string{"Retry-After", "1"}, class: letta.ErrBusy, delay: time.Second},
		{name: "conflict with run", status: 409, body: `{"detail":"CONFLICT: busy","run_id":"run-1"}`, class: letta.ErrRejected, detail: "CONFLICT: busy"},
		{name: "concurrent update", status: 409, body: `{"detail":"agent was updated by another transaction"}`, class: letta.ErrBusy, detail: "another transaction"},
		{name: "payment of a proxy", status: 402, body: "", class: letta.ErrRejected},
		{name: "service", status: 503, body: `{"detail":"database down"}`, class: letta.ErrUnavailable, detail: "database down"},
		{name: "proxy page", status: 502, body: "<html><head><title>502 Bad Gateway</title></head>\n<body>nginx</body></html>", class: letta.ErrUnavailable, detail: "502 Bad Gateway nginx"},
		{name: "empty", status: 500, body: "", class: letta.ErrServer},
		{name: "not an object", status: 500, body: `[1,2]`, class: letta.ErrServer, detail: "[1,2]"},
		{name: "the server lost its own step", status: 404, body: `{"detail":"Step with id step-1 does not exist"}`, class: letta.ErrServer, detail: "Step with id step-1"},
		{name: "the server lost its models", status: 404, body: `{"detail":"NOT_FOUND: Handle sglang//m not found, must be one of []"}`, class: letta.ErrServer, detail: "must be one of []"},
		{name: "unknown model", status: 404, body: `{"detail":"NOT_FOUND: Handle sglang//m not found, must be one of ['sglang//n']"}`, class: letta.ErrRejected, detail: "sglang//n"},
		{name: "import deadlocked", status: 400, body: `{"detail":"Import failed: (sqlalchemy.dialects.postgresql.asyncpg.Error) <class 'asyncpg.exceptions.DeadlockDetectedError'>: deadlock detected"}`, class: letta.ErrServer, detail: "deadlock detected"},
		{name: "import of a bad file", status: 400, body: `{"detail":"Import failed: no agents"}`, class: letta.ErrRejected, detail: "no agents"},
		{name: "numbers", status: 400, body: `{"detail":17}`, class: letta.ErrRejected, detail: "17"},
		{name: "redirect", status: 307, header: [2]string{"Location", "https://elsewhere/v1/agents/"}, class: letta.ErrUnusable, detail: "https://elsewhere/"},
		{name: "date", status: 429, header: [2]string{"Retry-After", "Mon, 02 Jan 2006 15:04:05 GMT"}, body: "{}", class: letta.ErrBusy, detail: "{}"},
		{name: "absurd delay", status: 429, header: [2]string{"Retry-After", "1e9"}, body: "{}", class: letta.ErrBusy, delay: 10 * time.Minute},
		{name: "long", status: 400, body: `{"detail":"` + strings.Repeat("é\\n", 4000) + `"}`, class: letta.ErrRejected, detail: "é é"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := lettatest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
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
			if strings.Contains(err.Error(), "letta:") || strings.Contains(err.Error(), "\n") {
				t.Errorf("text %q", err)
			}
		})
	}
}

// TestTransportErrors checks the class of failures without an answer.
func TestTransportErrors(t *testing.T) {
	t.Parallel()
	closed := must(net.Listen("tcp", "127.0.0.1:0"))(t)
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
		{"refused", refused, letta.ErrConnection},
		{"dropped before the answer", abrupt(""), letta.ErrConnection},
		{"dropped in mid-body", abrupt("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"messages\":[],\"turns\":[{\"role\":\"assi"), letta.ErrConnection},
		{"dropped in mid-chunk", abrupt("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n{\"messages\":["), letta.ErrConnection},
		{"garbage", abrupt("SSH-2.0-OpenSSH_9.6\r\n\r\n"), letta.ErrConnection},
		{"unknown authority", secure.URL, letta.ErrUnusable},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newClient(t, letta.ClientConfig{BaseURL: test.url})
			_, err := c.Send(t.Context(), "agent-1", hello(), "", new(tokenize.Reply))
			var e *letta.APIError
			if !errors.As(err, &e) || e.Status != 0 || !errors.Is(err, test.class) {
				t.Errorf("Send = %v, want an APIError of class %v", err, test.class)
			}
		})
	}
	t.Run("own authority", func(t *testing.T) {
		t.Parallel()
		tlsConfig := secure.Client().Transport.(*http.Transport).TLSClientConfig
		c := newClient(t, letta.ClientConfig{BaseURL: secure.URL, TLS: tlsConfig})
		if _, err := c.Health(t.Context()); !letta.IsNotFound(err) {
			t.Errorf("Health = %v, want the handler's 404", err)
		}
	})
}
