package view_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/view"
)

// serve serves a run until the test ends, and returns the URL of the page.
func serve(tb testing.TB, dir string, follow bool) string {
	tb.Helper()
	url, _ := start(tb, dir, follow)
	return url
}

// start is like serve, but also returns a function that ends the server.
func start(tb testing.TB, dir string, follow bool) (url string, stop func()) {
	tb.Helper()
	return startView(tb, open(tb, dir), follow)
}

func startView(tb testing.TB, v *view.View, follow bool) (url string, stop func()) {
	tb.Helper()
	s := &view.Server{View: v, Follow: follow}
	listener := must(s.Listen(tb.Context()))(tb)
	ctx, cancel := context.WithCancel(tb.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Error(err)
		}
	})
	tb.Cleanup(stop)
	return s.URL(), stop
}

// get returns the answer to a request, and its body.
func get(tb testing.TB, method, url, host string) (*http.Response, []byte) {
	tb.Helper()
	r := must(http.NewRequestWithContext(tb.Context(), method, url, http.NoBody))(tb)
	if host != "" {
		r.Host = host
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	reply := must(client.Do(r))(tb)
	defer reply.Body.Close()
	return reply, must(io.ReadAll(reply.Body))(tb)
}

func fetch[T any](tb testing.TB, url string) (v T) {
	tb.Helper()
	reply, body := get(tb, http.MethodGet, url, "")
	if reply.StatusCode != http.StatusOK {
		tb.Fatalf("%s: %s: %s", url, reply.Status, body)
	}
	if err := json.Unmarshal(body, &v); err != nil {
		tb.Fatal(err)
	}
	return v
}

// TestGuard checks that only requests with the token and for the server's own address get an answer.
func TestGuard(t *testing.T) {
	t.Parallel()
	url := serve(t, manyRun(t, 8), false)
	base, token, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	token = strings.TrimSuffix(token, "/")
	_, port, _ := strings.Cut(base, ":")
	for _, c := range []struct {
		name, method, path, host string
		want                     int
	}{
		{"the page", "GET", "/" + token + "/", "", 200},
		{"localhost", "GET", "/" + token + "/api/samples", "localhost:" + port, 200},
		{"no token", "GET", "/", "", 403},
		{"another token", "GET", "/" + strings.Repeat("A", len(token)) + "/api/samples", "", 403},
		{"a prefix of the token", "GET", "/" + token[:10] + "/api/samples", "", 403},
		{"the token later in the path", "GET", "/x/" + token + "/api/samples", "", 403},
		{"the token as a parameter", "GET", "/api/samples?token=" + token, "", 403},
		{"DNS rebinding", "GET", "/" + token + "/api/samples", "evil.example:" + port, 421},
		{"another port", "GET", "/" + token + "/api/samples", "127.0.0.1:1", 421},
		{"no port", "GET", "/" + token + "/api/samples", "127.0.0.1", 421},
		{"a method that changes", "POST", "/" + token + "/api/samples", "", 405},
		{"outside of the page", "GET", "/etc/passwd", "", 403},
		{"no such sample", "GET", "/" + token + "/api/sample/8", "", 404},
		{"not a number", "GET", "/" + token + "/api/sample/%3Cscript%3E", "", 404},
	} {
		reply, body := get(t, c.method, "http://"+base+c.path, c.host)
		if reply.StatusCode != c.want {
			t.Errorf("%s: %s, want %d: %.80s", c.name, reply.Status, c.want, body)
		}
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"} {
			if got := reply.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", c.name, name, got, want)
			}
		}
		if policy := reply.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'; script-src 'sha256-") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: policy %q", c.name, policy)
		}
		if reply.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: another site can read the answer", c.name)
		}
	}
}
