package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

func (r *sessionRig) do(tb testing.TB, method, path, body string, header ...string) (int, string) {
	tb.Helper()
	req, err := http.NewRequestWithContext(tb.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := r.client.Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(text)
}

// TestSessionPaths proves which paths and keys reach a session, and that only the token opens the
// other paths.
func TestSessionPaths(t *testing.T) {
	t.Parallel()
	pages := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "pages") })
	const token = "s3cret"
	var mu sync.Mutex
	seen := ""
	e := newEngine(t)
	r := newSessionRig(t, proxy.Config{Token: token, Pages: pages}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen += fmt.Sprint(r.URL, r.Header)
		mu.Unlock()
		e.ServeHTTP(w, r)
	}))
	status, text := r.do(t, "POST", "/r", "", "Authorization", "Bearer "+token)
	if status != http.StatusCreated {
		t.Fatalf("%d %s", status, text)
	}
	_, key, _ := strings.Cut(text, `"key":"`)
	key = key[:32]
	base, chat, unknown := "/r/"+key, chatBody("single", false, ""), string(session.NewKey())
	for _, c := range []struct {
		method, path, body string
		header             []string
		status             int
		text               string
	}{
		{"POST", base + "/v1/chat/completions", chat, nil, 200, "Hello"},
		{"POST", base + "/v1/v1/chat/completions", chat, nil, 200, "Hello"},
		{"POST", base + "/chat/completions/", chat, nil, 200, "Hello"},
		{"POST", base + "/v1/chat/completions", chat, []string{"Authorization", "Bearer " + key}, 200, "Hello"},
		{"POST", "/v1/chat/completions", chat, []string{"Authorization", "Bearer " + key}, 200, "Hello"},
		{"POST", "/v1/v1/chat/completions", chat, []string{"X-Api-Key", key}, 200, "Hello"},
		{"GET", "/v1/models", "", []string{"Authorization", "bearer " + key}, 200, `"id":"policy"`},
		{"GET", base + "/v1/models", "", nil, 200, `"max_model_len":4096`},
		{"GET", base + "/v1/models/policy", "", nil, 200, `"id":"policy"`},
		{"GET", base + "/api/v0/models", "", nil, 200, `"loaded_context_length":4096`},
		{"GET", base + "/props", "", nil, 200, `"n_ctx":4096`},
		{"HEAD", base + "/v1/models", "", nil, 200, ""},
		{"GET", base + "/flush_cache", "", nil, 404, "not_found"},
		{"POST", base + "/v1/responses", "{}", nil, 404, "Chat Completions"},
		{"POST", base + "/v1/messages", "{}", nil, 404, "Chat Completions"},
		{"DELETE", base, "", nil, 404, "not_found"},
		{"POST", "/r/" + unknown + "/v1/chat/completions", chat, nil, 401, "unknown_key"},
		{"POST", "/r/" + unknown + "/v1/chat/completions", chat, []string{"Authorization", "Bearer " + token}, 401, "unknown_key"},
		{"POST", "/r//v1/chat/completions", chat, nil, 401, "unknown_key"},
		{"POST", "/r/" + key[:31] + "/v1/chat/completions", chat, nil, 401, "unknown_key"},
		{"POST", "/v1/chat/completions", chat, []string{"Authorization", "Bearer " + unknown}, 401, "token"},
		{"POST", "/v1/chat/completions", chat, nil, 401, "token"},
		{"POST", "/generate", "{}", []string{"Authorization", "Bearer s3cre"}, 401, "token"},
		{"GET", "/tap/segments", "", nil, 401, "token"},
		{"GET", "/tap/segments", "", []string{"Authorization", "Bearer " + key}, 404, "not_found"},
		{"GET", "/tap/segments", "", []string{"Authorization", "Bearer " + token}, 200, "pages"},
		{"GET", "/tap/segments", "", []string{"X-Api-Key", token}, 200, "pages"},
		{"GET", "/metrics", "", nil, 401, "token"},
		{"POST", "/r", "", nil, 401, "token"},
		{"POST", "/r", "", []string{"Authorization", "Bearer " + key}, 404, "not_found"},
		{"GET", "/r", "", []string{"Authorization", "Bearer " + token}, 405, "POST /r"},
		{"POST", "/r/", `{"task":{"id":"x"}}`, []string{"Authorization", "Bearer " + token}, 201, "path"},
		{"POST", "/r", `{"tusk":1}`, []string{"Authorization", "Bearer " + token}, 400, "tusk"},
		{"POST", "/r", `{"task":{"metadata":[]}}`, []string{"Authorization", "Bearer " + token}, 400, "metadata"},
		{"POST", "/v1/chat/completions", chat, []string{"Authorization", "Bearer " + token}, 200, "Hello"},
		{"POST", "/v1/chat/completions", chat, []string{"Authorization", "Bearer " + token, "Cookie", "a=" + token}, 200, "Hello"},
		{"GET", "/healthz", "", nil, 200, "ok"},
		{"POST", base + "/v1/chat/completions", "{", nil, 400, "bad_request"},
		{"POST", base + "/v1/chat/completions", `{"model":"x"}`, nil, 400, "messages"},
		{"POST", base + "/v1/chat/completions", `{"messages":[],"messages":[]}`, nil, 400, "duplicate"},
		{"POST", base + "/end?wait=soon", "", nil, 400, "true or false"},
		{"POST", base + "/end", `{"reward":"high"}`, nil, 400, "bad_request"},
		{"POST", base + "/end", `{"reward":1,"final_text":"x"}`, nil, 200, `"calls":6`},
		{"POST", base + "/end", `{"reward":1.0,"final_text":"x"}`, nil, 200, `"calls":6`},
		{"POST", base + "/end", `{"reward":2}`, nil, 409, "conflict"},
		{"POST", base + "/v1/chat/completions", chat, nil, 410, "after_seal"},
		{"POST", "/v1/chat/completions", chat, []string{"X-Api-Key", key}, 410, "after_seal"},
	} {
		status, text := r.do(t, c.method, c.path, c.body, c.header...)
		if status != c.status || !strings.Contains(text, c.text) {
			t.Errorf("%s %s %v: %d %s, want %d %s", c.method, strings.ReplaceAll(c.path, key, "KEY"), c.header != nil, status, text, c.status, c.text)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if strings.Contains(seen, key) || strings.Contains(seen, token) {
		t.Errorf("the engine received a secret: %s", seen)
	}
}

// TestSessionOpenPaths proves that without a token, all paths except /r are forwarded as
// they are without sessions.
func TestSessionOpenPaths(t *testing.T) {
	t.Parallel()
	engine := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Method+" "+r.URL.String()+" "+r.Header.Get("Authorization"))
	})
	r := newSessionRig(t, proxy.Config{}, engine)
	for _, path := range []string{"/v1/chat/completions", "/r2/x", "/flush_cache?x=1", "/rr"} {
		unknown := "Bearer " + string(session.NewKey())
		if status, text := r.do(t, "POST", path, "{}", "Authorization", unknown); status != 200 || text != "POST "+path+" "+unknown {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	if status, _ := r.do(t, "GET", "/r/x/y", ""); status != 401 {
		t.Errorf("%d", status)
	}
}

// TestSessionLimits proves that floods and huge bodies get a clear error.
func TestSessionLimits(t *testing.T) {
	t.Parallel()
	gone, e := make(chan struct{}), newEngine(t)
	hang := hanging(gone)
	r := newSessionRig(t, proxy.Config{MaxSessions: 2, MaxCalls: 3, MaxOpenCalls: 1, BodyBytes: 1 << 12}, trialed{e, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Hang") != "" {
			hang(w, r)
			return
		}
		e.ServeHTTP(w, r)
	}})
	key, other := r.begin(t), r.begin(t)
	if status, text := r.post(t, "/r", ""); status != http.StatusServiceUnavailable || !strings.Contains(text, "2 sessions are open") {
		t.Errorf("%d %s", status, text)
	}
	path := "/r/" + string(key) + "/v1/chat/completions"
	large := chatBody(strings.Repeat("x", 1<<12), false, "")
	if status, text := r.do(t, "POST", path, large); status != http.StatusRequestEntityTooLarge || !strings.Contains(text, "4096 bytes") {
		t.Errorf("%d %s", status, text)
	}
	req := httptest.NewRequest(http.MethodPost, path, io.NopCloser(strings.NewReader(large))) // without a length
	req.ContentLength = -1
	w := httptest.NewRecorder()
	if r.proxy.ServeHTTP(w, req); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	var all sync.WaitGroup
	all.Go(func() { r.do(t, "POST", path, chatBody("single", false, ""), "X-Hang", "1") })
	wait(t, func() bool { return r.proxy.Stats().Sessions.Calls == 1 })
	if status, text := r.call(t, key, chatBody("single", false, "")); status != http.StatusTooManyRequests || !strings.Contains(text, "too_many_calls") {
		t.Errorf("%d %s", status, text)
	}
	for i := range 4 {
		status, text := r.call(t, other, chatBody("single", false, ""))
		if want := map[bool]int{true: 200, false: 403}[i < 3]; status != want {
			t.Errorf("call %d: %d %s, want %d", i, status, text, want)
		}
	}
	if got := len(r.record(t, other).Calls); got != 3 {
		t.Errorf("%d calls were recorded", got)
	}
	r.record(t, key) // cancels the call
	all.Wait()
	if s := r.proxy.Stats(); s.BodyBytes != 0 || s.Sessions.Begun != 2 || s.Sessions.Ended != 2 {
		t.Errorf("%+v", s)
	}
}

// TestSessionMemory proves that calls are refused while the bodies of other calls fill the memory.
func TestSessionMemory(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	r := newSessionRig(t, proxy.Config{MemoryBytes: 1}, trialed{newEngine(t), hanging(gone)})
	key := r.begin(t)
	var all sync.WaitGroup
	all.Go(func() { r.call(t, key, chatBody("single", false, "")) })
	wait(t, func() bool { return r.proxy.Stats().Sessions.Calls == 1 })
	if status, text := r.call(t, key, chatBody("single", false, "")); status != http.StatusServiceUnavailable || !strings.Contains(text, "busy") {
		t.Errorf("%d %s", status, text)
	}
	r.record(t, key)
	all.Wait()
}
