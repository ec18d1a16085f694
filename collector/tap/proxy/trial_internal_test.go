package proxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/session/store"
)

// TestTrialAgain restarts an engine with other versions and models, so fast that no health check sees
// it. The proxy must notice this by the answers.
func TestTrialAgain(t *testing.T) {
	t.Parallel()
	var running atomic.Pointer[enginesim.Engine]
	restart := func(cfg enginesim.Config) *enginesim.Engine {
		cfg.StrictModel = true
		e, err := enginesim.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		running.Store(e)
		return e
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { running.Load().ServeHTTP(w, r) }))
	defer server.Close()
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	sessions, err := store.Open(store.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sessions.Close() }()
	p, err := New(Config{Engines: []*url.URL{at}, Sessions: sessions})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	key, err := sessions.Begin(session.Head{})
	if err != nil {
		t.Fatal(err)
	}
	trial := &p.balance.engines[0].trial
	call := func(stream bool) (status int, text string, last session.Call) {
		body := `{"model":"policy","messages":[{"role":"user","content":"Go. [script:single]"}]}`
		if stream {
			body = strings.Replace(body, "{", `{"stream":true,`, 1)
		}
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/r/"+string(key)+"/v1/chat/completions", strings.NewReader(body)))
		rec, err := sessions.Read(key.ID())
		if err != nil {
			t.Fatal(err)
		}
		return w.Code, w.Body.String(), rec.Calls[len(rec.Calls)-1]
	}
	later := func() { // the last trial was some time ago
		if a := trial.able.Load(); a != nil {
			old := *a
			old.found = time.Now().Add(-doubtAfter)
			trial.able.Store(&old)
		}
		trial.until = time.Time{}
	}
	for _, c := range []struct {
		name   string
		cfg    enginesim.Config
		stream bool
		mode   mode
	}{
		{"first", enginesim.Config{}, true, modeBody},
		{"a version that refuses ids in streams", enginesim.Config{Dialect: enginesim.DialectSGLangPlain}, true, modeWhole},
		{"another model", enginesim.Config{Dialect: enginesim.DialectSGLangPlain, Model: "qwen4"}, false, modeWhole},
		{"another model, streamed", enginesim.Config{Model: "qwen5"}, true, modeWhole},
	} {
		e := restart(c.cfg)
		later()
		status, text, last := call(c.stream)
		truth := e.Calls()
		want := truth[len(truth)-1]
		if status != http.StatusOK || last.Unread != "" || !slices.Equal(last.Output, want.OutputIDs) || !slices.Equal(last.Prompt, want.InputIDs) {
			t.Errorf("%s: %d %s, recorded %+v", c.name, status, text, last)
		}
		if got := trial.able.Load().mode; got != c.mode {
			t.Errorf("%s: the ids come by %s, want %s", c.name, got, c.mode)
		}
	}
	restart(enginesim.Config{Dialect: enginesim.DialectNone, Model: "qwen5"})
	later()
	if status, _, last := call(true); status != http.StatusOK || last.Unread != "no_ids" {
		t.Errorf("without ids: %d, recorded %+v", status, last)
	}
	for range 2 {
		if status, text, last := call(true); status != http.StatusBadGateway || !strings.Contains(text, ErrNoIDs.Error()) || last.Status != 0 {
			t.Errorf("without ids: %d %s", status, text)
		}
	}
	restart(enginesim.Config{Dialect: enginesim.DialectSGLang})
	later()
	if status, text, last := call(true); status != http.StatusOK || last.Unread != "" || trial.able.Load().mode != modeHeader {
		t.Errorf("with ids again: %d %s, recorded %+v", status, text, last)
	}
}

// TestTrialSeldom proves that a client whose requests the engine refuses does not cause many trials, and
// that a trial that proves nothing changes nothing.
func TestTrialSeldom(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), `"content":"Hi"`) || r.Method == http.MethodGet {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer server.Close()
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	sessions, err := store.Open(store.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sessions.Close() }()
	p, err := New(Config{Engines: []*url.URL{at}, Sessions: sessions})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	p.balance.engines[0].trial.able.Store(&ability{models: []string{"m"}, mode: modeHeader, found: time.Now().Add(-doubtAfter)})
	key, err := sessions.Begin(session.Head{})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/r/"+string(key)+"/chat/completions", strings.NewReader(`{"messages":[]}`)))
		if w.Code != http.StatusBadRequest {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	if n := requests.Load(); n != 21 { // one of them is the trial
		t.Errorf("the engine got %d requests", n)
	}
	if a := p.balance.engines[0].trial.able.Load(); a == nil || a.mode != modeHeader {
		t.Errorf("the ability is %+v", a)
	}
}
