package store_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/session/store"
)

const token = "t0ken"

// guarded serves the store to clients with the token, as the tap does.
func guarded(s *store.Store) http.Handler {
	h := s.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func serve(tb testing.TB, h http.Handler) string {
	tb.Helper()
	server := httptest.NewServer(h)
	tb.Cleanup(server.Close)
	return server.URL
}

func remote(tb testing.TB, url string) *store.Remote {
	tb.Helper()
	r, err := store.OpenRemote(tb.Context(), url, token)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(r.Close)
	return r
}

// TestSources proves that a Remote and a Folder see the same sessions as the store, and that they
// wait for new ones.
func TestSources(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, store.Config{Dir: dir})
	url := serve(t, guarded(s))
	for _, where := range []string{url, dir} {
		src, err := store.OpenSource(t.Context(), where, token)
		if err != nil {
			t.Fatal(err)
		}
		after := ""
		if entries, err := src.Sealed(t.Context(), ""); err != nil {
			t.Fatal(err)
		} else if len(entries) > 0 {
			after = entries[len(entries)-1].Name
		}
		for n := range 3 {
			waited := make(chan error, 1) // buffered: it is read below
			go func() { waited <- src.Wait(t.Context(), after) }()
			_, x := begin(t, s)
			add(t, x, conversation(1, n))
			if rec, err := src.Read(t.Context(), x.ID()); !errors.Is(err, store.ErrUnknown) {
				t.Errorf("an open session is served: %+v, %v", rec, err)
			}
			end(t, x, session.End{Reward: new(float64(n))})
			if err := <-waited; err != nil {
				t.Fatal(err)
			}
			got, err := src.Sealed(t.Context(), after)
			want, wantErr := s.Sealed(after)
			if err != nil || wantErr != nil || len(got) != 1 || !reflect.DeepEqual(got, want) {
				t.Fatalf("%s: %v, %v; the store has %v, %v", where, got, err, want, wantErr)
			}
			rec, err := src.Read(t.Context(), got[0].ID)
			if err != nil || !reflect.DeepEqual(rec, read(t, s, x.ID())) {
				t.Errorf("%s: %+v, %v", where, rec, err)
			}
			after = got[0].Name
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := src.Wait(ctx, after); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: Wait returns %v", where, err)
		}
		cancel()
		for _, id := range []string{"x", "../lock", strings.Repeat("0", 32)} {
			if _, err := src.Read(t.Context(), id); !errors.Is(err, store.ErrUnknown) {
				t.Errorf("%s: session %q: %v", where, id, err)
			}
		}
		src.Close()
	}
	for _, where := range []string{t.TempDir(), "", "ftp://x", "http://", url + "/x"} {
		if src, err := store.OpenSource(t.Context(), where, token); err == nil {
			t.Errorf("%q was opened: %v", where, src)
		}
	}
}

// TestRemoteRetries proves that a Remote retries transient errors, a connection that is cut off in
// the middle of a session, and a tap that is restarted.
func TestRemoteRetries(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, store.Config{Dir: dir})
	_, x := begin(t, s)
	add(t, x, conversation(1, 0))
	end(t, x, session.End{})
	var requests atomic.Int64
	var failing atomic.Bool
	h := guarded(s)
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := requests.Add(1)
		if !failing.Load() || n%4 == 0 {
			h.ServeHTTP(w, r)
			return
		}
		switch n % 4 {
		case 1:
			w.WriteHeader([]int{429, 500, 502, 503, 504}[n%5])
		case 2:
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			w.Header().Set("Content-Length", strconv.Itoa(rec.Body.Len()))
			_, _ = w.Write(rec.Body.Bytes()[:rec.Body.Len()/2])
		case 3:
			c, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				c.Close()
			}
		}
	}))
	r := remote(t, url)
	failing.Store(true)
	for range 3 {
		requests.Store(0)
		entries, err := r.Sealed(t.Context(), "")
		if err != nil || len(entries) != 1 {
			t.Fatalf("%v, %v", entries, err)
		}
		rec, err := r.Read(t.Context(), entries[0].ID)
		if err != nil || !reflect.DeepEqual(rec, read(t, s, x.ID())) {
			t.Fatalf("%+v, %v", rec, err)
		}
		if n := requests.Load(); n != 8 {
			t.Errorf("%d requests", n)
		}
	}
}

// TestRemoteRestart proves that Wait continues after the tap was away.
func TestRemoteRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, store.Config{Dir: dir})
	server := httptest.NewServer(guarded(s))
	r := remote(t, server.URL)
	waited := make(chan error, 1) // buffered: it is read last
	go func() { waited <- r.Wait(t.Context(), "") }()
	address := server.Listener.Addr().String()
	shut(t, s)
	server.CloseClientConnections()
	server.Close()
	s = open(t, store.Config{Dir: dir})
	_, x := begin(t, s)
	end(t, x, session.End{})
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	again := &httptest.Server{Listener: l, Config: &http.Server{Handler: guarded(s)}}
	again.Start()
	defer again.Close()
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	if entries, err := r.Sealed(t.Context(), ""); err != nil || len(entries) != 1 || entries[0].ID != x.ID() {
		t.Errorf("%v, %v", entries, err)
	}
}

// TestRemoteRefuses proves that a Remote gives up at once on errors that a retry does not change,
// after its patience on others, and that no error contains a secret.
func TestRemoteRefuses(t *testing.T) {
	t.Parallel()
	status := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			fmt.Fprint(w, body)
		}
	}
	name := strings.Repeat("1", 19) + "-" + strings.Repeat("a", 32)
	entry := `{"name":"` + name + `","id":"` + strings.Repeat("a", 32) + `","bytes":1}`
	for _, c := range []struct {
		handler http.HandlerFunc
		want    string
	}{
		{status(404, ""), "is not a tap with sessions (GET /tap/sessions: 404 Not Found)"},
		{status(200, "<html>"), "its answer is not a list of sessions"},
		{status(200, `{"version":2}`), "the tap writes version 2, but this program reads versions up to 1; upgrade rollout"},
		{status(200, `{"version":1,"sessions":[`+entry+","+entry+`]}`), "not in order"},
		{status(200, `{"version":1,"sessions":[{"name":"../x","id":"x"}]}`), "not in order"},
		{status(401, ""), "401 Unauthorized: pass the tap's token"},
		{status(503, ""), "503 Service Unavailable"},
		{status(302, ""), "302 Found"},
	} {
		server := httptest.NewServer(c.handler)
		url := strings.Replace(server.URL, "http://", "http://someone:secret@", 1)
		_, err := store.OpenRemote(t.Context(), url, token)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), token) {
			t.Errorf("got %v, want %q", err, c.want)
		}
		server.Close()
		if _, err := store.OpenRemote(t.Context(), url, ""); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("a tap that is away: %v", err)
		}
	}
	// After the first request, other answers.
	var handler atomic.Value
	handler.Store(status(200, `{"version":1,"sessions":[`+entry+`]}`))
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.Load().(http.HandlerFunc)(w, r)
	}))
	r := remote(t, url)
	r.SetPatience(300 * time.Millisecond)
	if rec, err := r.Read(t.Context(), strings.Repeat("a", 32)); !errors.Is(err, store.ErrDamaged) || rec != nil {
		t.Errorf("another file: %+v, %v", rec, err)
	}
	handler.Store(status(503, ""))
	if _, err := r.Sealed(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "503 Service Unavailable (retried for 300ms)") {
		t.Errorf("got %v", err)
	}
	if err := r.Wait(canceled(t.Context()), ""); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestHandlerRefuses proves that the handler refuses invalid requests.
func TestHandlerRefuses(t *testing.T) {
	t.Parallel()
	s := open(t, store.Config{Dir: t.TempDir()})
	_, x := begin(t, s)
	h := s.Handler()
	zeros := strings.Repeat("0", 32)
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/tap/sessions", 200},
		{"GET", "/tap/sessions?wait=0.01", 200},
		{"GET", "/tap/sessions?after=" + strings.Repeat("1", 19) + "-" + zeros, 200},
		{"GET", "/tap/sessions?wait=NaN", 400},
		{"GET", "/tap/sessions?wait=-1", 400},
		{"GET", "/tap/sessions?after=x", 400},
		{"POST", "/tap/sessions", 405},
		{"DELETE", "/tap/sessions/" + zeros, 405},
		{"GET", "/tap/", 404},
		{"GET", "/tap/sessions/" + zeros, 404},
		{"GET", "/tap/sessions/" + x.ID(), 404}, // it is open
		{"GET", "/tap/sessions/..%2flock", 400},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if w.Code != c.status {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, w.Code, c.status)
		}
	}
}
