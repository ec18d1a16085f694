package tap_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/tap"
)

func serve(tb testing.TB, s *tap.Spool) string {
	tb.Helper()
	server := httptest.NewServer(s.Handler())
	tb.Cleanup(server.Close)
	tb.Cleanup(func() { _ = s.Close() }) // runs first: it ends pending requests
	return server.URL
}

// TestHTTP proves that a Reader over HTTP gets the same calls as a Reader of the folder.
func TestHTTP(t *testing.T) {
	t.Parallel()
	s := open(t, tap.SpoolConfig{Dir: t.TempDir(), SegmentBytes: 64 << 10})
	url := serve(t, s)
	const calls = 1000
	for n := range calls / 2 {
		s.Add(call(n))
	}
	r := reader(t, url)
	got := take(t, r, calls/2)
	for n := calls / 2; n < calls; n++ {
		s.Add(call(n))
	}
	got = append(got, take(t, r, calls/2)...)
	if !slices.Equal(got, numbers(0, calls)) {
		t.Errorf("%d calls, %+v", len(got), r.Stats())
	}
	if st := r.Stats(); st.Segments < 2 || st.Errors+st.Lost+st.Damaged+st.Removed+st.Torn > 0 {
		t.Errorf("%+v", st)
	}
}

// TestHTTPRestart proves that a Reader continues after its tap was away.
func TestHTTPRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	address := "127.0.0.1:0"
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	var r *tap.Reader
	for i := range 3 {
		if l == nil {
			if l, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", strings.TrimPrefix(address, "http://")); err != nil {
				t.Fatal(err)
			}
		}
		address = "http://" + l.Addr().String()
		s := open(t, tap.SpoolConfig{Dir: dir})
		server := &http.Server{Handler: s.Handler()}
		served := make(chan struct{})
		go func() {
			defer close(served)
			_ = server.Serve(l)
		}()
		for n := range 10 {
			s.Add(call(10*i + n))
		}
		if r == nil {
			r = reader(t, address)
		}
		if got := take(t, r, 10); !slices.Equal(got, numbers(10*i, 10*i+10)) {
			t.Errorf("process %d: %v", i, got)
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-served
		shut(t, s)
		l = nil
	}
}

// TestHTTPRefuses proves that OpenReader refuses other servers and newer taps.
func TestHTTPRefuses(t *testing.T) {
	t.Parallel()
	answers := map[string]http.HandlerFunc{
		"is not a tap (GET /tap/segments: 404 Not Found)":                                    http.NotFound,
		"is not a tap (its answer is not a list of segments)":                                func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`<html>`)) },
		"the tap writes version 2, but this program reads versions up to 1; upgrade rollout": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"version":2}`)) },
		"500 Internal Server Error":                                                          func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"401 Unauthorized: pass the tap's token":                                             func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) },
		"unexpected EOF": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte(`{"version":1,`))
		},
	}
	for want, answer := range answers {
		server := httptest.NewServer(answer)
		url := strings.Replace(server.URL, "http://", "http://someone:secret@", 1)
		if _, err := tap.OpenReader(url, ""); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v, want %q", err, want)
		}
		server.Close()
		if _, err := tap.OpenReader(url, ""); err == nil || !strings.Contains(err.Error(), "connection refused") || strings.Contains(err.Error(), "secret") {
			t.Errorf("a tap that is away: %v", err)
		}
	}
	if _, err := tap.OpenReader("http://a b:secret@x/", ""); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("no URL: %v", err)
	}
}

// TestHandlerRefuses proves that the handler refuses invalid requests.
func TestHandlerRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, tap.SpoolConfig{Dir: dir})
	s.Add(call(1))
	take(t, reader(t, dir), 1)
	h := s.Handler()
	for _, c := range []struct {
		method, path, ranges string
		status               int
	}{
		{"GET", "/tap/segments", "", 200},
		{"GET", "/tap/segments?wait=0.01&after=1", "", 200},
		{"GET", "/tap/segments?wait=NaN", "", 400},
		{"GET", "/tap/segments?wait=-1", "", 400},
		{"GET", "/tap/segments?after=x", "", 400},
		{"POST", "/tap/segments", "", 405},
		{"DELETE", "/tap/segments/1", "", 405},
		{"GET", "/tap/", "", 404},
		{"GET", "/tap/segments/1", "", 404},
		{"GET", "/tap/segments/..%2flock", "", 400},
		{"GET", "/tap/segments/-1", "", 400},
		{"GET", "/tap/segments/1", "bytes=1-2", 400},
		{"GET", "/tap/segments/1", "bytes=-5", 400},
	} {
		req := httptest.NewRequest(c.method, c.path, nil)
		if c.ranges != "" {
			req.Header.Set("Range", c.ranges)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		if w.Code != c.status {
			t.Errorf("%s %s %s: %d, want %d", c.method, c.path, c.ranges, w.Code, c.status)
		}
	}
}

// TestIndexWaitsForTheTap proves that Join finds a call although the tap is away when Join begins.
func TestIndexWaitsForTheTap(t *testing.T) {
	t.Parallel()
	s := open(t, tap.SpoolConfig{Dir: t.TempDir()})
	server := httptest.NewServer(s.Handler())
	r := reader(t, server.URL)
	x := tap.NewIndex(tap.IndexConfig{Patience: time.Minute}, r)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1) // buffered: it is read last
	go func() { ran <- x.Run(ctx) }()
	address := server.Listener.Addr().String()
	server.CloseClientConnections()
	server.Close()
	c := call(1)
	c.Began, c.Ended = time.Now(), time.Now()
	if !s.Add(c) {
		t.Fatal("the call was not kept")
	}
	away := func(tries int64) {
		for n := r.Stats().Errors; r.Stats().Errors < n+tries; {
			time.Sleep(time.Millisecond)
		}
	}
	away(1)
	found := make(chan []tap.Match, 1) // buffered: it is read below
	go func() {
		found <- x.Join(ctx, &tap.Rollout{ID: "a", Sends: []tap.Send{{From: c.Began, To: time.Now(), PromptTokens: -1, Calls: []tap.Sampled{{Output: c.Output, Logprobs: c.Logprobs}}}}})
	}()
	away(2) // Join has begun
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	again := &httptest.Server{Listener: l, Config: &http.Server{Handler: s.Handler()}}
	again.Start()
	defer again.Close()
	if m := <-found; m[0].Refusal != tap.RefusedNone || !slices.Equal(m[0].Call.Prompt, c.Prompt) {
		t.Errorf("got %+v", m[0])
	}
	cancel()
	if err := <-ran; err != nil {
		t.Error(err)
	}
}
