package proxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
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
	p, key := newTrialRig(t, func(w http.ResponseWriter, r *http.Request) { running.Load().ServeHTTP(w, r) })
	sessions := p.cfg.Sessions
	trial := &p.balance.engines[0].trial
	call := func(stream bool) (status int, text string, last session.Call) {
		body := `{"model":"policy","messages":[{"role":"user","content":"Go. [script:single]"}]}`
		if stream {
			body = strings.Replace(body, "{", `{"stream":true,`, 1)
		}
		w := chat(t, p, key, body)
		rec, err := sessions.Read(key.ID())
		if err != nil {
			t.Fatal(err)
		}
		return w.Code, w.Body.String(), rec.Calls[len(rec.Calls)-1]
	}
	later := func() { // the last trial was some time ago
		if a := trial.able.Load(); a != nil {
			old := *a
			old.found = time.Now().Add(-p.limits.TrustTime)
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
	restart(enginesim.Config{Model: "qwen6"})
	later()
	if status, text, last := call(true); status != http.StatusOK || last.Unread != "" || trial.able.Load().mode != modeBody {
		t.Errorf("another kind of engine: %d %s, recorded %+v", status, text, last)
	}
}

// TestTrialSeldom proves that a client whose requests the engine refuses does not cause many trials, and
// that a trial that proves nothing changes nothing, except that the next one is later.
func TestTrialSeldom(t *testing.T) {
	t.Parallel()
	var trials atomic.Int64
	words := "no"
	p, key := newTrialRig(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			trials.Add(1)
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, words)
	})
	p.limits.TrustTime = maxTrust / 4
	able := &p.balance.engines[0].trial.able
	able.Store(&ability{models: []string{"m"}, mode: modeHeader})
	for _, c := range []struct {
		words string
		age   time.Duration // of the last trial
		want  int64         // trials
	}{
		{`{"error":{"message":"This model's maximum context length is 4096 tokens."}}`, time.Hour, 0},
		{"no", p.limits.TrustTime, 1},
		{"no", p.limits.TrustTime, 0},
		{"no", 2 * p.limits.TrustTime, 1},
		{"no", 2 * p.limits.TrustTime, 0},
		{"no", maxTrust, 1},
		{"no", maxTrust, 1},
	} {
		words = c.words
		old := *able.Load()
		old.found = time.Now().Add(-c.age)
		able.Store(&old)
		before := trials.Load()
		for range 20 {
			if w := chat(t, p, key, `{"messages":[]}`); w.Code != http.StatusBadRequest || w.Body.String() != words {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		}
		if n := trials.Load() - before; n != c.want {
			t.Errorf("%q, %v after a trial: %d trials, want %d", c.words, c.age, n, c.want)
		}
		if a := able.Load(); a == nil || a.mode != modeHeader {
			t.Errorf("the ability is %+v", a)
		}
	}
}

// TestTrialAlone proves that only the calls that the engine refused wait while a doubt is checked, and
// that all of them are sent again in the new way.
func TestTrialAlone(t *testing.T) {
	t.Parallel()
	checked, release := make(chan struct{}, 1), make(chan struct{})
	old, err := enginesim.New(enginesim.Config{StrictModel: true, Model: "qwen3"})
	if err != nil {
		t.Fatal(err)
	}
	next, err := enginesim.New(enginesim.Config{StrictModel: true, Model: "qwen4"})
	if err != nil {
		t.Fatal(err)
	}
	var refused atomic.Int64
	p, key := newTrialRig(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		switch {
		case r.Method == http.MethodGet:
			checked <- struct{}{}
			<-release
			next.ServeHTTP(w, r)
		case strings.Contains(string(body), "qwen4"):
			next.ServeHTTP(w, r)
		case strings.Contains(string(body), "refuse"):
			refused.Add(1)
			w.WriteHeader(http.StatusNotFound)
		default:
			old.ServeHTTP(w, r)
		}
	})
	p.limits.TrustTime = time.Hour
	trial := &p.balance.engines[0].trial
	trial.able.Store(&ability{models: []string{"qwen3"}})
	const body = `{"model":"policy","messages":[{"role":"user","content":"Go. [script:single]"}]}`
	refuse := strings.Replace(body, "Go.", "refuse", 1)
	var waiting sync.WaitGroup
	for range 4 {
		waiting.Go(func() {
			if w := chat(t, p, key, refuse); w.Code != http.StatusOK {
				t.Errorf("a refused call: %d %s", w.Code, w.Body)
			}
		})
	}
	<-checked
	for range 2 {
		if w := chat(t, p, key, body); w.Code != http.StatusOK {
			t.Errorf("another call: %d %s", w.Code, w.Body)
		}
		trial.doubted.Store(trial.able.Load()) // a whole answer without ids
	}
	for refused.Load() < 4 {
		time.Sleep(time.Millisecond)
	}
	close(release)
	waiting.Wait()
	if len(checked) > 0 {
		t.Error("there was another trial")
	}
}

// newTrialRig returns a proxy with one engine, and the key of a session.
func newTrialRig(t *testing.T, engine http.HandlerFunc) (*Proxy, session.Key) {
	t.Helper()
	server := httptest.NewServer(engine)
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	sessions, err := store.Open(store.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sessions.Close(); err != nil {
			t.Error(err)
		}
	})
	p, err := New(Config{Engines: []*url.URL{at}, Sessions: sessions})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	key, err := sessions.Begin(session.Head{})
	if err != nil {
		t.Fatal(err)
	}
	return p, key
}

// chat makes a call of the session.
func chat(t *testing.T, p *Proxy, key session.Key, body string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/r/"+string(key)+"/v1/chat/completions", strings.NewReader(body)))
	return w
}

// TestDowngradeAfterRead proves that a stream without ids changes the mode also if the list of models was
// read while the stream was open, and not if there was another trial.
func TestDowngradeAfterRead(t *testing.T) {
	t.Parallel()
	p, _ := newTrialRig(t, http.NotFound)
	began := &ability{models: []string{"m"}, mode: modeBody, found: time.Now()}
	for want, found := range map[mode]time.Time{modeWhole: began.found, modeBody: began.found.Add(1)} {
		c := &chatCall{p: p, able: began}
		c.x.engine = p.balance.engines[0]
		c.x.engine.trial.able.Store(&ability{models: []string{"m", "a"}, mode: modeBody, found: found})
		c.downgrade()
		if a := c.x.engine.trial.able.Load(); a.mode != want || len(a.models) != 2 {
			t.Errorf("the ability is %+v, want %v", a, want)
		}
	}
}
