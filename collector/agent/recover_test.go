package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// A line is a proxy to a simulated server. If send is set, it handles every send.
type line struct {
	sim   *lettasim.Server
	web   *httptest.Server
	send  func(n int64, w http.ResponseWriter, r *http.Request)
	sends atomic.Int64
	work  sync.WaitGroup
}

func (l *line) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/messages") && l.send != nil {
		l.send(l.sends.Add(1), w, r)
		return
	}
	l.sim.ServeHTTP(w, r)
}

// accept loses the connection as soon as the server has begun to work on the request.
func (l *line) accept(w http.ResponseWriter, r *http.Request) {
	before := l.runs(r)
	again := httptest.NewRequest(r.Method, r.URL.String(), strings.NewReader(mustRead(r)))
	again.Header = r.Header.Clone()
	l.work.Go(func() { l.sim.ServeHTTP(severed{}, again) })
	for l.runs(r) == before {
		time.Sleep(time.Millisecond)
	}
	panic(http.ErrAbortHandler)
}

func (l *line) runs(r *http.Request) int {
	w := httptest.NewRecorder()
	agent := strings.Split(r.URL.Path, "/")[3]
	l.sim.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/runs/?limit=1000&agent_id="+agent, nil))
	return strings.Count(w.Body.String(), `"agent_id"`)
}

func mustRead(r *http.Request) string {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// A sendFunc handles the n-th send.
type sendFunc func(l *line, n int64, w http.ResponseWriter, r *http.Request)

// accepts loses the connection of the n-th send, or of every send, after its begin.
func accepts(lost func(n int64) bool) sendFunc {
	return func(l *line, n int64, w http.ResponseWriter, r *http.Request) {
		if lost(n) {
			l.accept(w, r)
		}
		l.sim.ServeHTTP(w, r)
	}
}

// simulated starts a simulated server behind a line.
func simulated(t *testing.T, cfg lettasim.Config, send sendFunc) *line {
	t.Helper()
	cfg.InputIDs = true
	sim, err := lettasim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l := &line{sim: sim}
	if send != nil {
		l.send = func(n int64, w http.ResponseWriter, r *http.Request) { send(l, n, w, r) }
	}
	l.web = httptest.NewServer(l)
	t.Cleanup(func() { l.web.Close(); l.work.Wait() })
	return l
}

// handle replaces the handler of the web server.
func (l *line) handle(h http.HandlerFunc) { l.web.Config.Handler = h }

func (l *line) backend(t *testing.T, cfg agent.Config) *agent.Backend {
	t.Helper()
	return backendAt(t, l.web.URL, cfg, time.Second)
}

// backendAt returns a backend with an idle time.
func backendAt(t *testing.T, url string, cfg agent.Config, idle time.Duration) *agent.Backend {
	t.Helper()
	cfg.Model = model.Model
	return newBackend(t, newClient(t, letta.ClientConfig{BaseURL: url, ReadRetries: -1, IdleBodyTimeout: idle}), cfg)
}

func newClient(t *testing.T, cfg letta.ClientConfig) *letta.Client {
	t.Helper()
	c, err := letta.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdle)
	return c
}

func newBackend(t *testing.T, c *letta.Client, cfg agent.Config) *agent.Backend {
	t.Helper()
	b, err := agent.NewBackend(c, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func opened(t *testing.T, b *agent.Backend, a collector.Attempt) collector.Agent {
	t.Helper()
	g, err := b.Open(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func reattached(t *testing.T, b *agent.Backend, a collector.Attempt, left collector.OpenAttempt) collector.Agent {
	t.Helper()
	g, err := b.Reattach(t.Context(), a, left)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// takenOver is rollout for an attempt that another process left.
func takenOver(t *testing.T, b *agent.Backend, a collector.Attempt, left collector.OpenAttempt) (*collector.Reply, error) {
	t.Helper()
	return ran(t, reattached(t, b, a, left))
}

// ran runs the agent, and closes it at the end of the test.
func ran(t *testing.T, g collector.Agent) (*collector.Reply, error) {
	t.Helper()
	t.Cleanup(func() { closeAgent(t, g) })
	return g.Run(t.Context())
}

// cut opens an agent whose first send is cut, and returns its id.
func cut(t *testing.T, b *agent.Backend, a collector.Attempt) string {
	t.Helper()
	g := opened(t, b, a)
	if _, err := g.Run(t.Context()); !errors.Is(err, collector.ErrConnection) {
		t.Fatal(err)
	}
	return g.ID()
}

// scripted returns the attempt at a scripted sample of two messages.
func scripted(sample int) collector.Attempt {
	task := &collector.Task{ID: "sums", Messages: []string{"Add 2 and 3.", "Multiply 6 by 7."}}
	return collector.Attempt{Task: task, Key: fmt.Sprintf("sums-%04d", sample), Index: sample, GroupSize: 1, N: 1, RunID: "run-r"}
}

// rollout creates an agent, runs it, and closes it at the end of the test.
func rollout(t *testing.T, b *agent.Backend, a collector.Attempt) (*collector.Reply, error) {
	t.Helper()
	return ran(t, opened(t, b, a))
}

// replyOf is rollout for an attempt that must succeed.
func replyOf(t *testing.T, b *agent.Backend, a collector.Attempt) *collector.Reply {
	t.Helper()
	reply, err := rollout(t, b, a)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

func closeAgent(t *testing.T, g collector.Agent) {
	t.Helper()
	if err := g.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Errorf("close: %v", err)
	}
}

// undisturbed returns the reply of the attempt on a server without faults. Ids depend only on the
// attempt, so the reply can be compared byte by byte.
func undisturbed(t *testing.T, cfg lettasim.Config, a collector.Attempt) *collector.Reply {
	t.Helper()
	cfg.Faults, cfg.Latency = nil, lettasim.Latency{}
	return replyOf(t, simulated(t, cfg, nil).backend(t, agent.Config{}), a)
}

// sameReply compares replies except for times and whether the answers were received.
func sameReply(t *testing.T, got, want *collector.Reply) {
	t.Helper()
	x, y := *got, *want
	x.FirstAnswer, y.FirstAnswer = 0, 0
	x.Sends, y.Sends = slices.Clone(x.Sends), slices.Clone(y.Sends)
	for i := range x.Sends {
		x.Sends[i].FromRecord, x.Sends[i].Lost, x.Sends[i].Duration = false, nil, 0
	}
	for i := range y.Sends {
		y.Sends[i].Duration = 0
	}
	if !reflect.DeepEqual(x, y) {
		t.Errorf("reply differs:\n got %.600s\nwant %.600s", fmt.Sprintf("%+v", x), fmt.Sprintf("%+v", y))
	}
}

// TestLostConnections checks that a lost answer is recovered in every case without a second send.
func TestLostConnections(t *testing.T) {
	t.Parallel()
	for _, kind := range []lettasim.FaultKind{lettasim.Reset, lettasim.Drop, lettasim.Truncated, lettasim.Stalled} {
		for at := range 4 {
			send, conversation := at%2, at > 1
			t.Run(fmt.Sprintf("%s %d conversation=%v", kind, send, conversation), func(t *testing.T) {
				t.Parallel()
				agents := agent.Config{Conversation: conversation}
				a := scripted(1)
				var told []string
				a.ServerRun = func(id string) { told = append(told, id) }
				cfg := lettasim.Config{Faults: lettasim.Faults{{Kind: kind, Rate: 1, Send: send}}}
				l := simulated(t, cfg, nil)
				reply := replyOf(t, l.backend(t, agents), a)
				sameReply(t, reply, undisturbed(t, cfg, scripted(1)))
				s := l.sim.Stats()
				if s.Sends != 2 || s.AgentsCreated != 1 || s.Faults[kind] != 1 {
					t.Errorf("%d sends, %d agents, %d faults; want 2, 1 and 1", s.Sends, s.AgentsCreated, s.Faults[kind])
				}
				for i, s := range reply.Sends {
					if s.FromRecord != (i == send) {
						t.Errorf("send %d: from the record %v", i, s.FromRecord)
					}
					if c := collector.Classify(s.Lost); s.FromRecord != c.Retryable() {
						t.Errorf("send %d: lost to %v", i, s.Lost)
					}
				}
				if len(told) != 2 || told[0] != reply.Sends[0].RunID || told[1] != reply.Sends[1].RunID {
					t.Errorf("runs %v reported, want the runs of the two sends", told)
				}

				reply, err := rollout(t, simulated(t, cfg, nil).backend(t, agent.Config{NoRecover: true}), scripted(1))
				if c := collector.Classify(err); c != collector.ClassConnection && c != collector.ClassTimeoutIdle || len(reply.Sends) != send {
					t.Errorf("not recovered: %d sends, %s: %v", len(reply.Sends), c, err)
				}
			})
		}
	}
}

// TestProxyStopsWaiting checks that the answer is recovered if a proxy stopped waiting for it. Other
// errors do not show that the server worked, so the agent does not look for an answer.
func TestProxyStopsWaiting(t *testing.T) {
	t.Parallel()
	for status, recovered := range map[int]bool{408: true, 500: false, 502: true, 503: false, 504: true} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			l := simulated(t, lettasim.Config{}, func(l *line, n int64, w http.ResponseWriter, r *http.Request) {
				if n > 1 {
					l.sim.ServeHTTP(w, r)
					return
				}
				l.sim.ServeHTTP(httptest.NewRecorder(), r)
				w.WriteHeader(status)
			})
			reply, err := rollout(t, l.backend(t, agent.Config{}), scripted(1))
			if !recovered {
				if err == nil || l.sends.Load() != 1 {
					t.Errorf("%d sends, error %v; want 1 send and an error", l.sends.Load(), err)
				}
				return
			}
			if err != nil || l.sends.Load() != 2 || !reply.Sends[0].FromRecord {
				t.Fatalf("%d sends, error %v, reply %+v; want 2 sends, the first from the record", l.sends.Load(), err, reply)
			}
			sameReply(t, reply, undisturbed(t, lettasim.Config{}, scripted(1)))
		})
	}
}

// TestLostAtOnce checks that a run is awaited if the connection is lost while it works.
func TestLostAtOnce(t *testing.T) {
	t.Parallel()
	cfg := lettasim.Config{Latency: lettasim.Latency{Low: 700 * time.Millisecond}}
	l := simulated(t, cfg, accepts(func(n int64) bool { return n == 1 }))
	began := time.Now()
	reply := replyOf(t, l.backend(t, agent.Config{}), scripted(1))
	if took := time.Since(began); took < 1400*time.Millisecond {
		t.Errorf("took %v: less than the two runs", took)
	}
	sameReply(t, reply, undisturbed(t, cfg, scripted(1)))
}

// TestNeverArrived checks that a request that the server never saw fails as a connection error
// and is not repeated.
func TestNeverArrived(t *testing.T) {
	t.Parallel()
	l := simulated(t, lettasim.Config{}, func(*line, int64, http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	})
	reply, err := rollout(t, l.backend(t, agent.Config{}), scripted(1))
	ends(t, err, collector.ClassConnection, "")
	if len(reply.Sends) != 0 || l.sends.Load() != 1 {
		t.Errorf("%d sends came, %d answered", l.sends.Load(), len(reply.Sends))
	}
}

// TestFailedMeanwhile checks that the failure reason of a lost run is reported.
func TestFailedMeanwhile(t *testing.T) {
	t.Parallel()
	cfg := lettasim.Config{Faults: lettasim.Faults{{Kind: lettasim.EngineDown, Rate: 1}}}
	l := simulated(t, cfg, accepts(func(int64) bool { return true }))
	_, err := rollout(t, l.backend(t, agent.Config{}), scripted(1))
	ends(t, err, collector.ClassUnavailable, "")
	if run, ok := errors.AsType[*agent.ServerRunError](err); !ok || !strings.Contains(run.Message, "503") {
		t.Errorf("%v, want the engine's 503", err)
	}
}

// TestStuck checks that a run without progress is reported to Progress and then given up.
func TestStuck(t *testing.T) {
	t.Parallel()
	var told atomic.Int64
	cfg := agent.Config{StuckAfter: 900 * time.Millisecond, SilentAfter: 200 * time.Millisecond, Progress: func(p agent.Progress) {
		if p.Key != "sums-0001" || p.Attempt != 1 || p.RunID == "" || p.Silent < 200*time.Millisecond {
			t.Errorf("progress %+v", p)
		}
		told.Add(1)
	}}
	slow := lettasim.Config{Latency: lettasim.Latency{Low: time.Hour}}
	l := simulated(t, slow, accepts(func(int64) bool { return true }))
	g := opened(t, l.backend(t, cfg), scripted(1))
	_, err := g.Run(t.Context())
	if ends(t, err, collector.ClassConnection, "made no progress for"); told.Load() == 0 {
		t.Error("it was not reported")
	}
	closeAgent(t, g)
	if n := l.sim.Stats().Requests["POST /v1/agents/{id}/messages/cancel"]; n != 1 {
		t.Errorf("%d requests to stop the run, want 1", n)
	}
}

// TestSilent checks that a run without an answer is taken over once the answer is late.
func TestSilent(t *testing.T) {
	t.Parallel()
	l := simulated(t, lettasim.Config{}, func(l *line, n int64, w http.ResponseWriter, r *http.Request) {
		if n > 1 {
			l.sim.ServeHTTP(w, r)
			return
		}
		again := httptest.NewRequest(r.Method, r.URL.String(), strings.NewReader(mustRead(r)))
		l.sim.ServeHTTP(httptest.NewRecorder(), again)
		<-r.Context().Done()
	})
	var steps atomic.Int64
	var told []string
	a := scripted(1)
	a.ServerRun = func(id string) { told = append(told, id) }
	reply := replyOf(t, l.backend(t, agent.Config{
		SilentAfter: 100 * time.Millisecond, LostAfter: 300 * time.Millisecond,
		Progress: func(p agent.Progress) { steps.Add(int64(p.Steps)) },
	}), a)
	sameReply(t, reply, undisturbed(t, lettasim.Config{}, scripted(1)))
	if steps.Load() == 0 || len(told) != 2 {
		t.Errorf("%d steps seen, runs %v reported", steps.Load(), told)
	}
}

// TestSlowBody checks that a slow body does not count as silence.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	cfg := lettasim.Config{BodyRate: 20 << 10, Script: lettasim.Script{Tokens: lettasim.Range{Min: 300, Max: 300}}}
	l := simulated(t, cfg, nil)
	b := l.backend(t, agent.Config{SilentAfter: 500 * time.Millisecond, LostAfter: 500 * time.Millisecond})
	replyOf(t, b, scripted(1))
	if n := l.sim.Stats().Requests["GET /v1/steps/{id}/trace"]; n != 0 {
		t.Errorf("%d traces were read: the answer was given up", n)
	}
}

// TestServerRestarts checks that the runs of a server that was down count as lost.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	sim, err := lettasim.New(lettasim.Config{Latency: lettasim.Latency{Low: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	var listener net.Listener
	var address string
	for listener == nil {
		// Below the ephemeral ports: the port must still be free when the server restarts.
		address = fmt.Sprint("127.0.0.1:", 10000+rand.IntN(20000))
		if listener, err = net.Listen("tcp", address); err != nil && !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatal(err)
		}
	}
	first := &http.Server{Handler: sim}
	go first.Serve(listener)
	b := backendAt(t, "http://"+address, agent.Config{}, time.Second)
	g := opened(t, b, scripted(1))
	time.AfterFunc(300*time.Millisecond, func() { _ = first.Close() })
	back := time.AfterFunc(1500*time.Millisecond, func() {
		again, err := net.Listen("tcp", address)
		if err != nil {
			t.Errorf("listen again: %v", err)
			return
		}
		second := &http.Server{Handler: sim}
		t.Cleanup(func() { _ = second.Close() })
		_ = second.Serve(again)
	})
	defer back.Stop()
	_, err = g.Run(t.Context())
	ends(t, err, collector.ClassConnection, "the server was down")
	closeAgent(t, g)
}

// ends fails the test unless the error has the class and the text.
func ends(t *testing.T, err error, class collector.Class, says string) {
	t.Helper()
	if got := collector.Classify(err); got != class || err != nil && !strings.Contains(err.Error(), says) {
		t.Errorf("%v of class %v, want %v with %q", err, got, class, says)
	}
}

// alive fails the test unless the server has n agents.
func (l *line) alive(t *testing.T, n int64) {
	t.Helper()
	if got := l.sim.Stats().AgentsAlive; got != n {
		t.Errorf("%d agents are alive, want %d", got, n)
	}
}

// twice is a copy of the request with this body.
func twice(r *http.Request, body string) *http.Request {
	r = r.Clone(r.Context())
	r.Body = io.NopCloser(strings.NewReader(body))
	return r
}

// severed discards an answer that has no reader.
type severed struct{}

func (severed) Header() http.Header       { return http.Header{} }
func (severed) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
func (severed) WriteHeader(int)           {}

func sameTurns(t *testing.T, got, want collector.Send) {
	t.Helper()
	if !reflect.DeepEqual(got.Turns, want.Turns) || got.Usage != want.Usage || got.StopReason != want.StopReason {
		t.Errorf("send differs:\n got %.600s\nwant %.600s", fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want))
	}
}
