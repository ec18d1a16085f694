package prompt_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
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

// A waiting server answers its second send only after want requests for records.
type waiting struct {
	next http.Handler
	want int

	mu    sync.Mutex
	sends int
	asked []string
	there chan struct{} // closed at the want-th request
}

func (s *waiting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	wait := false
	switch {
	case aRecord.MatchString(r.URL.Path):
		if s.asked = append(s.asked, r.URL.Path); len(s.asked) == s.want {
			close(s.there)
		}
	case r.Method == http.MethodPost && regexp.MustCompile(`/messages$`).MatchString(r.URL.Path):
		s.sends++
		wait = s.sends == 2
	}
	s.mu.Unlock()
	if wait {
		select {
		case <-s.there:
		case <-time.After(time.Minute):
		}
	}
	s.next.ServeHTTP(w, r)
}

// While the server works on a send, the records of the previous one are fetched: its steps and
// messages, and a trace if the server is known to keep traces. Steps and messages are not fetched
// if the answer contains them. Nothing is fetched twice.
func TestPrefetch(t *testing.T) {
	t.Parallel()
	t.Run("answers", func(t *testing.T) {
		t.Parallel()
		prefetches(t, true, [2]int{0, 1}, 1)
	})
	t.Run("records", func(t *testing.T) {
		t.Parallel()
		prefetches(t, false, [2]int{2, 3}, 3)
	})
}

// prefetches collects two samples and checks the number of their prefetches and requests.
func prefetches(t *testing.T, answers bool, wanted [2]int, each int) {
	t.Helper()
	model, err := qwen3()
	if err != nil {
		t.Fatal(err)
	}
	cases, err := simCases()
	if err != nil {
		t.Fatal(err)
	}
	all := recordings(t)
	rec := all[slices.IndexFunc(all, func(r recording) bool { return r.name == "multi" })]
	sim, err := lettasim.New(lettasim.Config{Cases: cases})
	if err != nil {
		t.Fatal(err)
	}
	p, err := prompt.New(prompt.Config{Model: model})
	if err != nil {
		t.Fatal(err)
	}
	if !answers {
		p.WithoutAnswers()
	}
	task, cfg := rec.asTask(t)
	cfg.Prompter = p
	for n, want := range wanted {
		server := &waiting{next: sim, want: want, there: make(chan struct{})}
		if want == 0 {
			close(server.there)
		}
		web := httptest.NewServer(server)
		client, err := letta.NewClient(letta.ClientConfig{BaseURL: web.URL})
		if err != nil {
			t.Fatal(err)
		}
		backend, err := agent.NewBackend(client, cfg)
		if err != nil {
			t.Fatal(err)
		}
		g, err := backend.Open(t.Context(), collector.Attempt{Task: task, Key: "key", GroupSize: 1, N: n + 1, RunID: "run"})
		if err != nil {
			t.Fatal(err)
		}
		reply, err := g.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		server.mu.Lock()
		ahead := len(server.asked)
		server.mu.Unlock()
		if ahead < want { // plus the requests of the second send, if the first ones arrived in time
			t.Errorf("attempt %d: %d records were fetched ahead, want at least %d: %q", n+1, ahead, want, server.asked)
		}
		calls, err := g.Prompts(t.Context(), reply)
		if err != nil {
			t.Fatal(err)
		}
		for k := range calls {
			if calls[k].Grade != tokenize.CountVerified {
				t.Errorf("attempt %d: call %d is %v: %s", n+1, k, calls[k].Grade, calls[k].Note)
			}
		}
		slices.Sort(server.asked)
		if once := slices.Compact(slices.Clone(server.asked)); len(once) != len(server.asked) || len(once) != each*len(reply.Sends) {
			t.Errorf("attempt %d: requested %q", n+1, server.asked)
		}
		if err := g.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		client.CloseIdle()
		web.Close()
	}
}

// If the prefetched steps are incomplete, they are fetched again.
func TestPrefetchTooSoon(t *testing.T) {
	t.Parallel()
	model, err := qwen3()
	if err != nil {
		t.Fatal(err)
	}
	cases, err := simCases()
	if err != nil {
		t.Fatal(err)
	}
	all := recordings(t)
	rec := all[slices.IndexFunc(all, func(r recording) bool { return r.name == "multi" })]
	sim, err := lettasim.New(lettasim.Config{Cases: cases})
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan struct{})
	var once sync.Once
	var sends atomic.Int32
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case regexp.MustCompile(`/steps$`).MatchString(r.URL.Path):
			first := false
			once.Do(func() { first = true })
			if first {
				_, _ = w.Write([]byte("[]"))
				close(answered)
				return
			}
		case r.Method == http.MethodPost && regexp.MustCompile(`/messages$`).MatchString(r.URL.Path):
			if sends.Add(1) == 2 {
				<-answered
			}
		}
		sim.ServeHTTP(w, r)
	}))
	defer web.Close()
	client, err := letta.NewClient(letta.ClientConfig{BaseURL: web.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdle()
	task, cfg := rec.asTask(t)
	p, err := prompt.New(prompt.Config{Model: model})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Prompter = p.WithoutAnswers()
	backend, err := agent.NewBackend(client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	g, err := backend.Open(t.Context(), collector.Attempt{Task: task, Key: "key", GroupSize: 1, N: 1, RunID: "run"})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := g.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	calls, err := g.Prompts(t.Context(), reply)
	if err != nil {
		t.Error(err)
	}
	for k := range calls {
		if calls[k].Grade != tokenize.CountVerified {
			t.Errorf("call %d is %v: %s", k, calls[k].Grade, calls[k].Note)
		}
	}
	if err := g.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// A failed send cancels the prefetch of the previous one.
func TestPrefetchEndsWithRun(t *testing.T) {
	t.Parallel()
	model, err := qwen3()
	if err != nil {
		t.Fatal(err)
	}
	cases, err := simCases()
	if err != nil {
		t.Fatal(err)
	}
	all := recordings(t)
	rec := all[slices.IndexFunc(all, func(r recording) bool { return r.name == "multi" })]
	sim, err := lettasim.New(lettasim.Config{Cases: cases})
	if err != nil {
		t.Fatal(err)
	}
	hanging, ended := make(chan struct{}), make(chan struct{})
	var once sync.Once
	sends := 0
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case regexp.MustCompile(`/steps$`).MatchString(r.URL.Path):
			once.Do(func() { close(hanging) })
			<-r.Context().Done()
			close(ended)
			return
		case r.Method == http.MethodPost && regexp.MustCompile(`/messages$`).MatchString(r.URL.Path):
			if sends++; sends == 2 {
				<-hanging
				w.WriteHeader(http.StatusBadRequest)
				return
			}
		}
		sim.ServeHTTP(w, r)
	}))
	defer web.Close()
	client, err := letta.NewClient(letta.ClientConfig{BaseURL: web.URL, ReadRetries: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdle()
	task, cfg := rec.asTask(t)
	p, err := prompt.New(prompt.Config{Model: model})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Prompter = p.WithoutAnswers()
	backend, err := agent.NewBackend(client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	g, err := backend.Open(t.Context(), collector.Attempt{Task: task, Key: "key", GroupSize: 1, N: 1, RunID: "run"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Run(t.Context()); err == nil {
		t.Error("Run = nil, want the refusal of the second send")
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the request for steps outlives Run")
	}
	if err := g.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// Everything prefetched is read later, and nothing else is prefetched.
func TestPrefetchIsRead(t *testing.T) {
	t.Parallel()
	model, err := qwen3()
	if err != nil {
		t.Fatal(err)
	}
	for _, shape := range plans {
		p, err := prompt.New(prompt.Config{Model: model})
		if err != nil {
			t.Fatal(err)
		}
		known := madeUp(t, model, 2, shape.plan)
		var got [3]string // with a new server, with a known one, and with prefetching
		for n := range got {
			rollout := prompt.Read(known.memory, known.reply.Evidence)
			for i, s := range rollout.Sends {
				if n == 2 && i+1 < len(rollout.Sends) {
					p.Prefetch(t.Context(), rollout, s, known.reply.Sends[i].Turns)
				}
			}
			if _, err := p.Prompts(t.Context(), &known.reply.Reply, rollout); err != nil {
				t.Fatal(err)
			}
			got[n] = asked(rollout.Requests())
		}
		want := shape.known
		if want == "" {
			want = shape.requests
		}
		if got[0] != shape.requests || got[1] != want || got[2] != want {
			t.Errorf("%s: %q, want %q and then %q", shape.name, got, shape.requests, want)
		}
	}
}
