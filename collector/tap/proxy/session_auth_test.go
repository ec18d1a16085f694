package proxy_test

import (
	"encoding/json"
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

// A watched engine records the URLs and headers that it receives.
type watched struct {
	http.Handler
	mu   sync.Mutex
	text string
}

func (e *watched) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	e.text += fmt.Sprint(r.URL, r.Header)
	e.mu.Unlock()
	e.Handler.ServeHTTP(w, r)
}

const token = "a-token-of-the-tap"

// guardedRig returns a tap with a token, its engine, and the key of a session.
func guardedRig(t *testing.T) (*sessionRig, *watched, string) {
	t.Helper()
	e := &watched{Handler: newEngine(t)}
	pages := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "pages") })
	r := newSessionRig(t, proxy.Config{Token: token, Pages: pages}, e)
	status, text := r.do(t, "POST", "/r", "", "Authorization", "Bearer "+token)
	key := session.KeyPattern.FindString(text)
	if status != http.StatusCreated || key == "" {
		t.Fatalf("%d %s", status, text)
	}
	return r, e, key
}

// isError checks that an answer is an error in the form of OpenAI's API.
func isError(t *testing.T, what, text, code string) {
	t.Helper()
	var body struct {
		Error struct{ Message, Type, Code string }
	}
	if err := json.Unmarshal([]byte(text), &body); err != nil || body.Error.Message == "" || body.Error.Type != code || body.Error.Code != code {
		t.Errorf("%s: %s, want an error with code %s", what, text, code)
	}
}

// TestSessionPaths proves which paths and keys reach a session.
func TestSessionPaths(t *testing.T) {
	t.Parallel()
	r, e, key := guardedRig(t)
	base, unknown := "/r/"+key, string(session.NewKey())
	const post, get, end = "/v1/chat/completions", "GET ", "POST /r/KEY/end"
	bearer := func(key string) []string { return []string{"Authorization", "Bearer " + key} }
	for _, c := range []struct {
		request string // without a method: POST with the body of a call
		header  []string
		status  int
		text    string // of the answer; the code if it is an error
	}{
		{base + post, nil, 200, "Hello"},
		{base + "/v1/v1/chat/completions", nil, 200, "Hello"},
		{base + "/chat/completions", nil, 200, "Hello"},
		{base + "/api/v2/openai/chat/completions?api-version=1", nil, 200, "Hello"},
		{base + "/v1/chat/completions/", nil, 200, "Hello"},
		{base + "//v1//chat/completions//", nil, 200, "Hello"},
		{"//r//" + key + post, nil, 200, "Hello"},
		{"/r/%72" + key[1:] + "%2Fv1/chat%2fcompletions", nil, 200, "Hello"},
		{base + "/v1/chat/completions#x", nil, 200, "Hello"},
		{base + post, bearer(key), 200, "Hello"},
		{base + post, bearer(unknown), 200, "Hello"},
		{post, bearer(key), 200, "Hello"},
		{"/v1" + post, []string{"X-Api-Key", key}, 200, "Hello"},
		{post, []string{"X-Api-Key", key, "Authorization", "Bearer " + unknown}, 200, "Hello"},
		{post, []string{"Authorization", "bEARER  " + key + " "}, 200, "Hello"},
		{get + "/v1/models", bearer(key), 200, `"id":"policy"`},
		{get + base + "/v1/models", nil, 200, `"max_model_len":4096`},
		{get + base + "/v1/models/", nil, 200, `"max_model_len":4096`},
		{get + base + "/v1/models/policy", nil, 200, `"id":"policy"`},
		{get + base + "/api/v0/models", nil, 200, `"loaded_context_length":4096`},
		{get + base + "/props", nil, 200, `"n_ctx":4096`},
		{"HEAD " + base + "/v1/models", nil, 200, ""},
		{"HEAD " + base + post, nil, 404, ""},
		{"OPTIONS " + base + post, nil, 404, "not_found"},
		{get + base + post, nil, 404, "not_found"},
		{get + base + "/flush_cache", nil, 404, "not_found"},
		{base, nil, 404, "not_found"},
		{base + "/v1/xchat/completions", nil, 404, "not_found"},
		{base + "/v1/chat/completions/x", nil, 404, "not_found"},
		{base + "/v1/completions", nil, 404, "not_found"},
		{"DELETE " + base, nil, 404, "not_found"},
		{"POST /end", bearer(key), 404, "not_found"},
		{"POST /r", bearer(key), 404, "not_found"},
		{get + "/tap/segments", bearer(key), 404, "not_found"},
		{"/r/" + unknown + post, nil, 401, "unknown_key"},
		{"/r/" + unknown + post, bearer(token), 401, "unknown_key"},
		{"/r/" + unknown + post, bearer(key), 401, "unknown_key"},
		{"/r/" + key[:len(key)-1] + post, nil, 401, "unknown_key"},
		{"/r/" + strings.ToLower(key) + post, nil, 401, "unknown_key"},
		{"/r//v1/chat/completions", nil, 401, "unknown_key"},
		{"/r/../r/" + key + post, nil, 401, "unknown_key"},
		{post, bearer(unknown), 401, "unknown_key"},
		{post, bearer(key[:len(key)-1]), 401, "unknown_key"},
		{post, bearer(key + "x"), 401, "unknown_key"},
		{post, []string{"X-Api-Key", unknown, "Authorization", "Bearer " + token}, 401, "unknown_key"},
		{post + "?key=" + key, nil, 401, "misplaced_key"},
		{post + "?key=" + key, bearer(token), 401, "misplaced_key"},
		{"/x" + base + post, bearer(token), 401, "misplaced_key"},
		{"/R/" + key + post, bearer(token), 401, "misplaced_key"},
		{post, []string{"Authorization", "Basic " + key}, 401, "unauthorized"},
		{post, bearer(token), 200, "Hello"},
		{post, []string{"X-Api-Key", token, "Cookie", "a=" + token, "X-Other", "a " + unknown + " b"}, 200, "Hello"},
		{end + "?wait=soon", nil, 400, "bad_request"},
		{end + "/", nil, 200, `"calls":15`},
		{end, nil, 200, `"calls":15`},
		{"PATCH /r/KEY/end", nil, 404, "not_found"},
		{"POST //r/KEY//end", nil, 409, "conflict"},
		{base + post, nil, 410, "after_seal"},
		{post, []string{"X-Api-Key", key}, 410, "after_seal"},
	} {
		method, path, ok := strings.Cut(strings.ReplaceAll(c.request, "KEY", key), " ")
		body := ""
		if c.status == http.StatusConflict {
			body = `{"reward":2}`
		}
		if !ok {
			method, path, body = "POST", c.request, chatBody("single", false, "")
		}
		status, text := r.do(t, method, path, body, c.header...)
		if status != c.status || status < 400 && !strings.Contains(text, c.text) {
			t.Errorf("%s %v: %d %s, want %d %s", c.request, c.header, status, text, c.status, c.text)
		}
		if status >= 400 && method != "HEAD" {
			isError(t, c.request, text, c.text)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if session.KeyPattern.MatchString(e.text) || strings.Contains(e.text, token) {
		t.Errorf("the engine received a secret: %s", e.text)
	}
}

// TestSessionBodies proves that a body that is not valid gets an error, and changes nothing.
func TestSessionBodies(t *testing.T) {
	t.Parallel()
	r := newSessionRig(t, proxy.Config{}, newEngine(t))
	key := r.begin(t)
	for _, c := range []struct{ path, body, text string }{
		{"/r", `{"tusk":1}`, "tusk"},
		{"/r", `{"task":{"metadata":[]}}`, "metadata"},
		{"/r", `{"task":{"id":"a","id":"b"}}`, "duplicate"},
		{"/r", `[]`, "array"},
		{"/r/KEY/chat/completions", ``, "not a chat completion"},
		{"/r/KEY/chat/completions", `{`, "not a chat completion"},
		{"/r/KEY/chat/completions", `{"model":"x"}`, "messages"},
		{"/r/KEY/chat/completions", `{"messages":[],"messages":[]}`, "duplicate"},
		{"/r/KEY/end", `{"reward":"high"}`, "reward cannot be a JSON string"},
		{"/r/KEY/end", `[1]`, "it cannot be a JSON array"},
		{"/r/KEY/end", `{"reward":1e999}`, "reward"},
		{"/r/KEY/end", `{"reward":1,"reward":2}`, "duplicate"},
		{"/r/KEY/end", `{"reward":1}}`, "not valid"},
		{"/r/KEY/end", `{"reward":1}{}`, "not valid"},
		{"/r/KEY/end", `{"reward":1,"rewards":2}`, "rewards"},
		{"/r/KEY/end", `{"metadata":"x"}`, "metadata"},
		{"/r/KEY/end", "{\"final_text\":\"\xff\"}", "UTF-8"},
	} {
		status, text := r.post(t, strings.ReplaceAll(c.path, "KEY", string(key)), c.body)
		if status != http.StatusBadRequest || !strings.Contains(text, c.text) {
			t.Errorf("%s %q: %d %s, want 400 %s", c.path, c.body, status, text, c.text)
		}
		isError(t, c.path, text, "bad_request")
	}
	if status, text := r.call(t, key, chatBody("single", false, "")); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	if status, text := r.post(t, "/r/"+string(key)+"/end", ` {"reward": 1.5, "metadata": null, "final_text": "half \ud83d"} `); status != http.StatusOK || !strings.Contains(text, `"reward":1.5`) {
		t.Errorf("%d %s", status, text)
	}
}

// TestToken proves that the token is needed for every path that does not belong to a session, and
// only for these.
func TestToken(t *testing.T) {
	t.Parallel()
	r, _, key := guardedRig(t)
	given := map[string][]string{
		"nothing":                nil,
		"another":                {"Authorization", "Bearer a-token-of-the-taq"},
		"a part":                 {"Authorization", "Bearer " + token[:len(token)-1]},
		"more":                   {"X-Api-Key", token + "x"},
		"no scheme":              {"Authorization", token},
		"another place":          {"Cookie", token},
		"an empty one":           {"Authorization", "Bearer "},
		"the token":              {"Authorization", "Bearer " + token},
		"the token as X-Api-Key": {"X-Api-Key", token},
	}
	const open = "open "
	for _, request := range []string{
		"POST /r", "POST /r/", "POST //r", "GET /r", "PUT /r", "GET /", "GET /tap/", "GET /tap/metrics", "HEAD /tap/metrics",
		"GET /tap/segments", "GET /tap/sessions", "GET //tap/sessions", "GET /%74ap/sessions", "GET /metrics", "GET /debug/pprof/", "GET /healthz/",
		"GET //healthz", "GET /v1/models", "POST /v1/chat/completions", "POST /generate", "OPTIONS /v1/chat/completions", "CONNECT /v1/models",
		open + "GET /healthz", open + "GET /r/KEY/v1/models", open + "POST /r/KEY/v1/chat/completions",
	} {
		request, open := strings.CutPrefix(request, open)
		method, path, _ := strings.Cut(strings.ReplaceAll(request, "KEY", key), " ")
		for name, header := range given {
			status, text := r.do(t, method, path, "{}", header...)
			if want := !open && !strings.HasPrefix(name, "the token"); want != (status == http.StatusUnauthorized) {
				t.Errorf("%s with %s: %d %s", request, name, status, text)
			}
			if status == http.StatusUnauthorized && method != "HEAD" {
				isError(t, request, text, "unauthorized")
			}
		}
	}
}

// TestSessionOpenPaths proves that without a token, all paths except /r are forwarded as they are
// without sessions. A key is never forwarded.
func TestSessionOpenPaths(t *testing.T) {
	t.Parallel()
	engine := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Method+" "+r.URL.String()+" "+r.Header.Get("Authorization"))
	})
	r := newSessionRig(t, proxy.Config{}, engine)
	for _, path := range []string{"/v1/chat/completions", "/r2/x", "/flush_cache?x=1", "/rr"} {
		const own = "Bearer sk-of-the-engine"
		if status, text := r.do(t, "POST", path, "{}", "Authorization", own); status != 200 || text != "POST "+path+" "+own {
			t.Errorf("%s: %d %s", path, status, text)
		}
		unknown := "Bearer " + string(session.NewKey())
		status, text := r.do(t, "POST", path, "{}", "Authorization", unknown)
		if isError(t, path, text, "unknown_key"); status != 401 {
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
	r := newSessionRig(t, proxy.Config{}, trialed{e, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Hang") != "" {
			hang(w, r)
			return
		}
		e.ServeHTTP(w, r)
	}})
	l := r.proxy.Limits()
	l.Sessions, l.Calls, l.OpenCalls, l.BodyBytes, l.PageBytes = 2, 3, 1, 1<<12, 1<<12
	key, other := r.begin(t), r.begin(t)
	if status, text := r.post(t, "/r", ""); status != http.StatusServiceUnavailable || !strings.Contains(text, "2 sessions are open") {
		t.Errorf("%d %s", status, text)
	}
	path := "/r/" + string(key) + "/v1/chat/completions"
	large := chatBody(strings.Repeat("x", 1<<12), false, "")
	for _, path := range []string{path, "/r", "/r/" + string(key) + "/end"} {
		if status, text := r.do(t, "POST", path, large); status != http.StatusRequestEntityTooLarge || !strings.Contains(text, "4096 bytes") {
			t.Errorf("%d %s", status, text)
		}
		req := httptest.NewRequest(http.MethodPost, path, io.NopCloser(strings.NewReader(large))) // without a length
		req.ContentLength = -1
		w := httptest.NewRecorder()
		if r.proxy.ServeHTTP(w, req); w.Code != http.StatusRequestEntityTooLarge {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	var all sync.WaitGroup
	all.Go(func() { r.do(t, "POST", path, chatBody("single", false, ""), "X-Hang", "1") })
	wait(t, func() bool { return r.proxy.Stats().Calls == 1 })
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
	r := newSessionRig(t, proxy.Config{}, trialed{newEngine(t), hanging(gone)})
	body := chatBody("single", false, "")
	r.proxy.Limits().MemoryBytes = int64(len(body))
	key := r.begin(t)
	var all sync.WaitGroup
	all.Go(func() { r.call(t, key, chatBody("single", false, "")) })
	wait(t, func() bool { return r.proxy.Stats().Calls == 1 })
	if status, text := r.call(t, key, chatBody("single", false, "")); status != http.StatusServiceUnavailable || !strings.Contains(text, "busy") {
		t.Errorf("%d %s", status, text)
	}
	r.record(t, key)
	all.Wait()
}
