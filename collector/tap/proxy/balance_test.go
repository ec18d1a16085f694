package proxy_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

// A worker is an engine that identifies itself, and that can be made unhealthy.
type worker struct {
	calls atomic.Int64
	ill   atomic.Bool
	holds atomic.Pointer[chan struct{}]
}

func (e *worker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/health" {
		if e.ill.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	e.calls.Add(1)
	if hold := e.holds.Load(); hold != nil {
		<-*hold
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"output_ids":[900,901],"meta_info":{}}`)
}

// grown returns a prompt of n ids. A longer prompt of the same chain begins with a shorter one.
func grown(chain, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(chain*1000 + i)
	}
	return ids
}

// TestChains proves that a chain stays at one engine, and that new chains are balanced.
func TestChains(t *testing.T) {
	t.Parallel()
	var engines [3]worker
	r := newRig(t, proxy.Config{}, &engines[0], &engines[1], &engines[2])
	home := map[int]string{}
	order := []int{0, 1, 2, 3, 4, 5, 6, 7, 8}
	for step := range 4 {
		slices.Reverse(order[step:]) // so that round-robin would send chains elsewhere
		for _, chain := range order {
			r.post(t, "/generate", asked(grown(chain, 100+80*step)))
			calls := r.kept.all()
			at := calls[len(calls)-1].Engine
			if step > 0 && home[chain] != at {
				t.Errorf("step %d of chain %d went to %s, the chain was at %s", step, chain, at, home[chain])
			}
			home[chain] = at
		}
	}
	for i := range engines {
		if n := engines[i].calls.Load(); n != 12 {
			t.Errorf("engine %d had %d calls, want 12", i, n)
		}
	}
}

// TestChatChains proves that a chat without ids is a chain by its text.
func TestChatChains(t *testing.T) {
	t.Parallel()
	var engines [2]worker
	r := newRig(t, proxy.Config{}, &engines[0], &engines[1])
	body := func(chat, turns int) string {
		messages := strings.Repeat(fmt.Sprintf(`{"role":"user","content":"chat %d has a long text, and this is it: %s"},`, chat, strings.Repeat("x", 200)), turns)
		return `{"model":"m","messages":[` + strings.TrimSuffix(messages, ",") + `]}`
	}
	home := map[int]string{}
	for turns := 1; turns < 4; turns++ {
		for chat := range 4 {
			if turns == 2 {
				chat = 3 - chat // so that round-robin would send it elsewhere
			}
			r.post(t, "/v1/chat/completions", body(chat, turns))
			calls := r.kept.all()
			at := calls[len(calls)-1].Engine
			if turns > 1 && home[chat] != at {
				t.Errorf("turn %d of chat %d went to another engine", turns, chat)
			}
			home[chat] = at
		}
	}
	if a, b := engines[0].calls.Load(), engines[1].calls.Load(); a != b {
		t.Errorf("the engines had %d and %d calls", a, b)
	}
}

// TestLeastBusy proves that requests go to the least busy engine, even a chain of a crowded one.
func TestLeastBusy(t *testing.T) {
	t.Parallel()
	var engines [2]worker
	hold := make(chan struct{})
	r := newRig(t, proxy.Config{}, &engines[0], &engines[1])
	r.post(t, "/generate", asked(grown(0, 100))) // one engine has the chain
	for i := range engines {
		engines[i].holds.Store(&hold)
	}
	var all sync.WaitGroup
	for n := range 12 {
		all.Go(func() { r.post(t, "/generate", asked(grown(0, 140))) })
		wait(t, func() bool { return engines[0].calls.Load()+engines[1].calls.Load() == int64(n)+2 })
	}
	busy := [2]int64{}
	for i, e := range r.proxy.Stats().Engines {
		busy[i] = e.Busy
	}
	if min(busy[0], busy[1]) < 2 || busy[0]+busy[1] != 12 || max(busy[0], busy[1]) < 6 {
		t.Errorf("of 12 requests of a chain the engines have %v: want most at one, and not all", busy)
	}
	close(hold)
	all.Wait()
}

func wait(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain")
		}
	}
}

// TestDownAndBack proves that the requests of an unreachable engine go to the next engine at once,
// and that the engine is up again after a successful check.
func TestDownAndBack(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	var up, late worker
	r := newRig(t, proxy.Config{Engines: urls(t, "http://"+address), HealthEvery: 10 * time.Millisecond}, &up)
	for i := range 5 {
		if status, _ := r.post(t, "/generate", asked(grown(i, 40))); status != http.StatusOK {
			t.Fatalf("call %d: %d", i, status)
		}
	}
	if s := r.proxy.Stats(); s.Engines[0].Up || s.Engines[0].Errors != 1 || !s.Engines[1].Up {
		t.Errorf("%+v", s.Engines)
	}
	if res, err := r.client.Get(r.url + "/v1/models"); err != nil || res.Body.Close() != nil || res.StatusCode != http.StatusOK {
		t.Errorf("a request without a body: %v %v", res, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var checks sync.WaitGroup
	checks.Go(func() { r.proxy.Run(ctx) })
	defer checks.Wait()
	defer cancel()
	if l, err = new(net.ListenConfig).Listen(t.Context(), "tcp", address); err != nil {
		t.Skipf("the port is taken: %v", err)
	}
	e := &httptest.Server{Listener: l, Config: &http.Server{Handler: &late}}
	e.Start()
	defer e.Close()
	wait(t, func() bool { return r.proxy.Stats().Engines[0].Up })
	r.post(t, "/generate", asked(grown(9, 40)))
	if late.calls.Load() != 1 {
		t.Error("the engine that came back got nothing")
	}
}

func urls(t *testing.T, texts ...string) (out []*url.URL) {
	t.Helper()
	for _, text := range texts {
		out = append(out, parse(t, text))
	}
	return out
}

// TestIll proves that an engine is down after several 503s, and that healthz reports it.
func TestIll(t *testing.T) {
	t.Parallel()
	var engines [2]worker
	r := newRig(t, proxy.Config{HealthEvery: 5 * time.Millisecond}, &engines[0], &engines[1])
	ctx, cancel := context.WithCancel(t.Context())
	var checks sync.WaitGroup
	checks.Go(func() { r.proxy.Run(ctx) })
	defer checks.Wait()
	defer cancel()
	health := func() int {
		res, err := r.client.Get(r.url + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	engines[1].ill.Store(true)
	wait(t, func() bool { return !r.proxy.Stats().Engines[1].Up })
	for i := range 4 {
		r.post(t, "/generate", asked(grown(i, 40)))
	}
	if n := engines[1].calls.Load(); n != 0 || health() != http.StatusOK {
		t.Errorf("the ill engine got %d calls", n)
	}
	engines[0].ill.Store(true)
	wait(t, func() bool { return health() == http.StatusServiceUnavailable })
	if status, _ := r.post(t, "/generate", asked(grown(5, 40))); status != http.StatusOK {
		t.Errorf("with all engines ill a call is answered with %d: one should be tried", status)
	}
	engines[0].ill.Store(false)
	wait(t, func() bool { return health() == http.StatusOK })
}

// TestStaleConnection proves that an engine that closes an idle connection costs no request.
func TestStaleConnection(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var engine sync.WaitGroup
	defer engine.Wait()
	engine.Go(func() { // answers the first request of each connection, and drops the second
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			engine.Go(func() {
				defer c.Close()
				buf := make([]byte, 64<<10)
				if n, _ := c.Read(buf); n == 0 {
					return
				}
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
				_, _ = c.Read(buf)
			})
		}
	})
	r := newRig(t, proxy.Config{Engines: urls(t, "http://"+l.Addr().String())})
	for i := range 6 {
		if status, text := r.post(t, "/generate", asked([]int32{1})); status != http.StatusOK {
			t.Fatalf("call %d: %d %s", i, status, text)
		}
	}
	if s := r.proxy.Stats(); s.Stale == 0 {
		t.Error("no connection was stale: this test shows nothing")
	}
	r.proxy.Close()
	_ = l.Close()
}
