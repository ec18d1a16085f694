package prompt_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/tokenize"
)

// aRecord matches the path of a request for a record.
var aRecord = regexp.MustCompile(`^/v1/(runs/[^/]+/(steps|messages)|steps/[^/]+/trace)$`)

func isSend(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/messages")
}

// waiting handles the second send only once ready is closed.
func waiting(ready <-chan struct{}, next http.HandlerFunc) http.HandlerFunc {
	var sends atomic.Int32
	return func(w http.ResponseWriter, r *http.Request) {
		if isSend(r) && sends.Add(1) == 2 {
			select {
			case <-ready:
			case <-time.After(time.Minute):
			}
		}
		next(w, r)
	}
}

// While the server works on a send, the records of the previous one are fetched: its steps and
// messages, and a trace if the server is known to keep traces. Steps and messages are not fetched
// if the answer contains them. Nothing is fetched twice.
func TestPrefetch(t *testing.T) {
	t.Parallel()
	prefetches(t, true, [2]int{0, 1}, 1)
	prefetches(t, false, [2]int{2, 3}, 3)
}

// prefetches collects two samples and checks the number of their prefetches and requests.
func prefetches(t *testing.T, answers bool, wanted [2]int, each int) {
	t.Helper()
	model := qwen3(t)
	sim := simulate(t, lettasim.Config{}, "multi")
	p := newPrompter(t, prompt.Config{Model: model})
	if !answers {
		p.WithoutAnswers()
	}
	task, cfg := recordingOf(t, "multi").asTask(t)
	cfg.Prompter = p
	for n, want := range wanted {
		var mu sync.Mutex
		var asked []string
		ready := make(chan struct{}) // closed at the want-th request for a record
		if want == 0 {
			close(ready)
		}
		server := waiting(ready, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			if aRecord.MatchString(r.URL.Path) {
				if asked = append(asked, r.URL.Path); len(asked) == want {
					close(ready)
				}
			}
			mu.Unlock()
			sim.ServeHTTP(w, r)
		})
		backend := newBackend(t, dial(t, server, letta.ClientConfig{}), cfg)
		g := must(backend.Open(t.Context(), collector.Attempt{Task: task, Key: "key", GroupSize: 1, N: n + 1, RunID: "run"}))(t)
		reply := must(g.Run(t.Context()))(t)
		mu.Lock()
		ahead := len(asked)
		mu.Unlock()
		if ahead < want { // plus the requests of the second send, if the first ones arrived in time
			t.Errorf("attempt %d: %d records were fetched ahead, want at least %d: %q", n+1, ahead, want, asked)
		}
		calls := must(g.Prompts(t.Context(), reply))(t)
		checkProven(t, fmt.Sprint("attempt ", n+1), calls)
		slices.Sort(asked)
		if once := slices.Compact(slices.Clone(asked)); len(once) != len(asked) || len(once) != each*len(reply.Sends) {
			t.Errorf("attempt %d: requested %q", n+1, asked)
		}
		if err := g.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}
}

// If the prefetched steps are incomplete, they are fetched again.
func TestPrefetchTooSoon(t *testing.T) {
	t.Parallel()
	answered := make(chan struct{})
	var steps atomic.Int32
	backend, attempt := recordsOnly(t, answered, func(sim http.Handler, w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/steps") && steps.Add(1) == 1 {
			_, _ = w.Write([]byte("[]"))
			close(answered)
			return
		}
		sim.ServeHTTP(w, r)
	})
	checkProven(t, "multi", played(t, backend, attempt))
}

// recordsOnly returns a backend that plays the recording multi without its answers, and its attempt.
// serve handles each request before the simulated server, the second send once ready is closed.
func recordsOnly(t *testing.T, ready <-chan struct{}, serve func(sim http.Handler, w http.ResponseWriter, r *http.Request)) (*agent.Backend, collector.Attempt) {
	t.Helper()
	task, cfg := recordingOf(t, "multi").asTask(t)
	sim := simulate(t, lettasim.Config{}, "multi")
	server := waiting(ready, func(w http.ResponseWriter, r *http.Request) { serve(sim, w, r) })
	client := dial(t, server, letta.ClientConfig{ReadRetries: -1})
	cfg.Prompter = newPrompter(t, prompt.Config{Model: qwen3(t)}).WithoutAnswers()
	return newBackend(t, client, cfg), collector.Attempt{Task: task, Key: "key", GroupSize: 1, N: 1, RunID: "run"}
}

// A failed send cancels the prefetch of the previous one.
func TestPrefetchEndsWithRun(t *testing.T) {
	t.Parallel()
	hanging, ended := make(chan struct{}), make(chan struct{})
	sends := 0
	backend, attempt := recordsOnly(t, hanging, func(sim http.Handler, w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/steps") {
			close(hanging)
			<-r.Context().Done()
			close(ended)
			return
		}
		if isSend(r) {
			if sends++; sends == 2 {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
		}
		sim.ServeHTTP(w, r)
	})
	g := must(backend.Open(t.Context(), attempt))(t)
	began := time.Now()
	if _, err := g.Run(t.Context()); err == nil {
		t.Error("Run = nil, want the refusal of the second send")
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the request for steps outlives Run")
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("Run took %v: it waited until the request for steps timed out", took)
	}
	if err := g.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// TestRequests pins the requests that the proof of a sample of each shape makes, without creation
// and deletion. The goal is at most two, or one per send with several tools. Everything prefetched
// is read later, and nothing else is prefetched.
func TestRequests(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	for _, shape := range plans {
		p := newPrompter(t, prompt.Config{Model: model})
		known := madeUp(t, model, 2, shape.plan)
		var got [3]string // with a new server, with a known one, and with prefetching
		for n := range got {
			rollout := known.rollout()
			for i, s := range rollout.Sends {
				if n == 2 && i+1 < len(rollout.Sends) {
					p.Prefetch(t.Context(), rollout, s, known.reply.Sends[i].Turns)
				}
			}
			calls := must(p.Prompts(t.Context(), &known.reply.Reply, rollout))(t)
			got[n] = asked(rollout.Requests())
			for k := range calls {
				if c := &calls[k]; c.Grade != tokenize.CountVerified || !slices.Equal(c.PromptIDs, known.truths[k].prompt) {
					t.Errorf("%s: call %d: %s", shape.name, k, short(c))
				}
			}
		}
		want := cmp.Or(shape.known, shape.requests)
		if got[0] != shape.requests || got[1] != want || got[2] != want {
			t.Errorf("%s: %q, want %q and then %q", shape.name, got, shape.requests, want)
		}
	}
}

// checkProven checks that each call is proven by its count.
func checkProven(t *testing.T, what string, calls []tokenize.Call) {
	t.Helper()
	for k := range calls {
		if calls[k].Grade != tokenize.CountVerified {
			t.Errorf("%s: call %d is %v: %s", what, k, calls[k].Grade, calls[k].Note)
		}
	}
}
