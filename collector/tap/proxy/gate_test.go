package proxy_test

import (
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

// A realistic call: 4,096 ids, 28 KB of JSON, and 400 sampled tokens.
const (
	promptTokens = 4096
	outputTokens = 400
)

func ids(seed uint64, n int) []int32 {
	r := rand.New(rand.NewPCG(seed, 0))
	out := make([]int32, n)
	for i := range out {
		out[i] = r.Int32N(151_936)
	}
	return out
}

// canOpen reports whether the limit of open files is at least n.
func canOpen(t *testing.T, n uint64) bool {
	t.Helper()
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		t.Fatal(err)
	}
	return l.Cur >= n
}

// TestGateOpenCalls proves that a waiting call with a prompt of 8,192 ids takes at most 160 KB of
// the tap's memory. It measures the heap and stacks of a thousand calls through the tap, minus
// the same of a thousand direct calls. Streams of which some tokens have passed are measured too.
func TestGateOpenCalls(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector takes memory")
	}
	if !canOpen(t, 6000) {
		t.Skip("the limit of open files is too low for a thousand calls")
	}
	const calls, most, prompt = 1000, 160 << 10, 8192 // measured: 62 to 121 KB, more on a busy machine
	ask := asked(ids(1, prompt))
	measure := func(tapped, streamed bool, tokens int) uint64 {
		text := answered(prompt, ids(2, tokens))
		body, kind := ask, "application/json"
		if streamed {
			body, kind = strings.Replace(ask, "{", `{"stream":true,`, 1), "text/event-stream"
		}
		var open atomic.Int64
		release := make(chan struct{})
		engine := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", kind)
			if streamed {
				_, _ = io.WriteString(w, "data: "+text+"\n\n")
				_ = http.NewResponseController(w).Flush()
			}
			if !streamed {
				open.Add(1)
			}
			<-release
		})
		url := ""
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		if tapped {
			url = newRig(t, proxy.Config{}, engine).url
		} else {
			e := httptest.NewServer(engine)
			defer e.Close()
			url = e.URL
		}
		before := memory()
		var all sync.WaitGroup
		for range calls {
			all.Go(func() {
				res, err := client.Post(url+"/generate", "application/json", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				if streamed { // the event has passed the tap
					_, _ = io.CopyN(io.Discard, res.Body, int64(len("data: "+text+"\n\n")))
					open.Add(1)
				}
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
			})
		}
		wait(t, func() bool { return open.Load() == calls })
		used := memory() - before
		close(release)
		all.Wait()
		return used
	}
	for _, shape := range []struct {
		streamed bool
		tokens   int
	}{{false, 400}, {true, 400}, {true, 4000}} {
		direct, tapped := measure(false, shape.streamed, shape.tokens), measure(true, shape.streamed, shape.tokens)
		each := (tapped - direct) / calls
		t.Logf("streamed %v, %d tokens: %d KB for each open call", shape.streamed, shape.tokens, each>>10)
		if tapped < direct || each > most {
			t.Errorf("streamed %v, %d tokens: an open call takes %d bytes, want ≤ %d", shape.streamed, shape.tokens, each, most)
		}
	}
}

// memory returns the bytes in use by the heap and the stacks.
func memory() uint64 {
	runtime.GC()
	runtime.GC() // frees what finalizers released
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// TestGateAllocations bounds the tap's allocations and bytes for a call.
func TestGateAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	engine := &fixed{text: answered(promptTokens, ids(2, outputTokens))}
	e := httptest.NewServer(engine)
	defer e.Close()
	r := newRig(t, proxy.Config{}, engine)
	checkAllocations(t, r.client, e.URL+"/generate", r.url+"/generate", asked(ids(1, promptTokens)), 260, 100<<10)
}

// checkAllocations bounds the allocations and bytes for a call through the tap. It subtracts the
// allocations and bytes for the same call to the engine directly.
func checkAllocations(t *testing.T, client *http.Client, direct, tapped, body string, mostAllocs, mostBytes uint64) {
	t.Helper()
	const runs = 200
	measure := func(url string) (allocs, bytes uint64) {
		for range 20 {
			roundTrip(t, client, url, body)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range runs {
			roundTrip(t, client, url, body)
		}
		runtime.ReadMemStats(&after)
		return (after.Mallocs - before.Mallocs) / runs, (after.TotalAlloc - before.TotalAlloc) / runs
	}
	allocs, bytes := measure(direct)
	tappedAllocs, tappedBytes := measure(tapped)
	allocs, bytes = tappedAllocs-allocs, tappedBytes-bytes
	t.Logf("%d allocations and %d KB for each call", allocs, bytes>>10)
	if allocs > mostAllocs || bytes > mostBytes {
		t.Errorf("a call takes %d allocations and %d bytes, want ≤ %d and %d", allocs, bytes, mostAllocs, mostBytes)
	}
}

// roundTrip makes a call whose answer must be complete and longer than 1 KiB.
func roundTrip(tb testing.TB, client *http.Client, url, body string) {
	tb.Helper()
	res, err := client.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	n, err := io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	if err != nil || res.StatusCode != http.StatusOK || n < 1<<10 {
		tb.Fatalf("the answer has status %d and %d bytes, %v", res.StatusCode, n, err)
	}
}

// A fixed is an engine that answers at once, with little work.
type fixed struct {
	text   string
	stream bool
}

func (e *fixed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	kind := "application/json"
	if e.stream {
		kind = "text/event-stream"
	}
	w.Header().Set("Content-Type", kind)
	_, _ = io.WriteString(w, e.text)
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkCall measures a call from a client to an engine in this process, through the tap and
// directly. The difference in CPU time is the tap's.
func BenchmarkCall(b *testing.B) {
	engine := &fixed{text: answered(promptTokens, ids(2, outputTokens))}
	e := httptest.NewServer(engine)
	defer e.Close()
	set, err := proxy.ParseSet([]string{"top_p=1.0"})
	if err != nil {
		b.Fatal(err)
	}
	r := newRig(b, proxy.Config{Set: set}, engine)
	body := asked(ids(1, promptTokens))
	for name, url := range map[string]string{"tap=no": e.URL, "tap=yes": r.url} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body) + len(engine.text)))
			benchmarkCalls(b, r.client, url+"/generate", body)
		})
	}
}

func benchmarkCalls(b *testing.B, client *http.Client, url, body string) {
	b.Helper()
	b.ReportAllocs()
	began := cpu()
	for b.Loop() {
		roundTrip(b, client, url, body)
	}
	b.ReportMetric(float64((cpu()-began).Microseconds())/float64(b.N), "cpu-µs/op")
}
