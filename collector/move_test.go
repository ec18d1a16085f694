package collector_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
)

// A host is a server that is away for some time. It refuses connections, or, if silent, accepts
// them and never answers. Attempts in progress end when it goes away.
type host struct {
	revived
	silent bool
	spread time.Duration // between the ends of the attempts in progress when it went away
	takes  time.Duration
	away   func(now time.Duration) bool
	start  time.Time

	mu2    sync.Mutex
	begun  []time.Duration // start times of attempts
	cut    int             // number of attempts cut off
	checks int
}

func (h *host) isAway() bool { return h.away != nil && h.away(time.Since(h.start)) }

// away is an absence from one time to another.
func away(from, to time.Duration) func(time.Duration) bool {
	return func(now time.Duration) bool { return now >= from && now < to }
}

// never is a time after the end of every run.
const never = 1000 * time.Hour

func newHost(takes time.Duration, silent bool, away func(time.Duration) bool) *host {
	h := &host{silent: silent, takes: takes, away: away, start: time.Now()}
	h.scripted = new(scripted)
	h.script = func(collector.Attempt) step {
		h.mu2.Lock()
		defer h.mu2.Unlock()
		h.begun = append(h.begun, time.Since(h.start))
		switch now := time.Since(h.start); {
		case h.isAway() && silent:
			return step{opening: true}
		case h.isAway():
			return step{openErr: collector.ErrConnection}
		case h.away != nil && !h.away(now) && h.away(now+takes):
			for end := now; ; end += time.Second { // it dies during the attempt
				if h.away(end) {
					h.cut++
					return step{takes: end - now + time.Duration(h.cut-1)*h.spread, runErr: collector.ErrConnection, hang: silent}
				}
			}
		}
		return step{takes: takes}
	}
	return h
}

func (h *host) answer(ctx context.Context) error {
	switch {
	case h.isAway() && h.silent:
		<-ctx.Done()
		return ctx.Err()
	case h.isAway():
		return collector.ErrConnection
	}
	return nil
}

func (h *host) Ping(ctx context.Context) error { return h.answer(ctx) }

func (h *host) Check(ctx context.Context, _ string) error {
	h.checks++
	return h.answer(ctx)
}

// after counts the attempts that began in [from, to).
func (h *host) after(from, to time.Duration) (n int) {
	for _, at := range h.begun {
		if at >= from && at < to {
			n++
		}
	}
	return n
}

// inOrder fails the test if an attempt number was used twice or out of order.
func (n *notebook) inOrder(tb testing.TB) {
	tb.Helper()
	last := map[string]int{}
	for _, line := range n.lines {
		if text, ok := strings.CutPrefix(line, "begin "); ok {
			key, text, _ := strings.Cut(text, "/")
			var n int
			_, _ = fmt.Sscan(text, &n)
			is(tb, "number of the attempt of "+line, n, last[key]+1)
			last[key] = n
		}
	}
}

// The samples of a server that refuses or never answers continue at the other server within
// seconds, uncharged. If it comes back, it is used again.
func TestSamplesMoveFromDeadServer(t *testing.T) {
	const dies = 61 * time.Second
	type death struct {
		silent bool
		spread time.Duration
		back   time.Duration
		within time.Duration // until its samples continue at the other server
		took   time.Duration // at most
	}
	bubbles(t, map[string]death{
		// 16 in flight until it dies, then 8: another 160 s for the remaining 128 samples.
		"refuses, for good":           {false, 0, never, 15 * time.Second, dies + 190*time.Second},
		"refuses one after the other": {false, 3 * time.Second, never, 40 * time.Second, dies + 190*time.Second},
		"refuses, and is back":        {false, 0, dies + 3*time.Minute, 15 * time.Second, time.Hour},
		"silent, for good":            {true, 0, never, 3 * time.Minute, dies + 5*time.Minute},
		"silent, and is back":         {true, 0, dies + 5*time.Minute, 3 * time.Minute, time.Hour},
	}, func(r *rig, tt death) {
		const takes = 10 * time.Second
		dead, good := newHost(takes, tt.silent, away(dies, tt.back)), newHost(takes, false, nil)
		dead.spread = tt.spread
		n := 220
		if tt.back != never {
			n = 700 // so that samples are left when it is back
		}
		r.servers(8, dead, good)
		j := r.notes()
		r.cfg.Planned = n
		start := time.Now()
		r.finish(tasks(n))
		j.inOrder(r)
		st := r.counts(n, 0, 0, 0) // although Retries is 0
		within(r, "time", r.took, 0, tt.took)
		for _, sample := range r.s.samples {
			within(r, "attempt of "+sample.TaskID, sample.Attempt, 1, 2)
			if sample.Attempt == 2 && sample.StartedAt.Before(start.Add(dies)) {
				within(r, "time of "+sample.TaskID, sample.Duration, 0, tt.within+30*time.Second)
			}
		}
		is(r, "samples sent to the dead server", dead.after(dies+40*time.Second, tt.back), 0)
		if tt.back != never {
			within(r, "samples sent to the server after it was back", dead.after(tt.back, never), 50, n)
		}
		is(r, "lost", st.Endpoints[0].Lost, false)
		within(r, "checks", dead.checks, 0, 50)
	})
}

// Samples move to the server that is up before they were sent, while they wait for a retry, and back.
func TestWaitingSamplesMove(t *testing.T) {
	const s = time.Second
	type moving struct {
		hosts func() (a, b *host)
		room  int
		tasks int
		took  time.Duration // at most
		tries int           // 0: any
	}
	bubbles(t, map[string]moving{
		"not sent to a silent server: two pings of 10 s show it": {func() (a, b *host) {
			return newHost(s, true, away(0, never)), newHost(s, false, nil)
		}, 8, 100, 40 * s, 0},
		"waits an hour for its retry": {func() (a, b *host) {
			a = newHost(s, false, away(3*s, never))
			a.script = always(step{takes: s, runErr: collector.ErrServer})
			return a, newHost(s, false, nil)
		}, 1, 2, time.Minute, 3},
		"from a to b and back: 48 at both, 56 at b alone, the rest at a": {func() (a, b *host) {
			return newHost(10*s, false, away(31*s, 130*s)), newHost(10*s, false, away(101*s, never))
		}, 8, 112, 4 * time.Minute, 0},
	}, func(r *rig, tt moving) {
		a, b := tt.hosts()
		r.servers(tt.room, a, b)
		j := r.notes()
		if tt.tries > 0 {
			r.cfg.Retries, r.cfg.BackoffMin, r.cfg.BackoffMax = 3, time.Hour, time.Hour
		}
		r.finish(tasks(tt.tasks))
		j.inOrder(r)
		st := r.counts(tt.tasks, 0, 0, 0)
		within(r, "time", r.took, 0, tt.took)
		if tt.tries > 0 {
			is(r, "attempts", st.Attempts, tt.tries)
		}
	})
}

// The run ends when all servers have been away for Outage.
func TestNoServerAnswersEndsTheRun(t *testing.T) {
	bubble(t, func(r *rig) {
		a := newHost(10*time.Second, false, away(31*time.Second, never))
		b := newHost(10*time.Second, true, away(10*time.Minute, never))
		r.servers(4, a, b)
		r.cfg.Outage, r.cfg.Planned = 3*time.Minute, 10000
		r.fails(r.Context(), tasks(10000), collector.ErrUnavailable)
		within(r, "time, of 10m and the 3m of an outage", r.took, 13*time.Minute, 15*time.Minute)
		st := r.c.Stats()
		is(r, "failed", st.Failed, 0)
		within(r, "remaining", st.Remaining, 9000, 10000)
	})
}

// An open attempt waits for its server for Outage. After that a new attempt is made.
func TestOpenAttemptsWaitForTheirServer(t *testing.T) {
	bothWays(t, func(r *rig, back bool) {
		until, reattached := time.Hour, 0
		if back {
			until, reattached = time.Minute, 6
		}
		r.servers(4, newHost(time.Second, false, away(0, until)), newHost(30*time.Second, false, nil))
		left := states{}
		for i := range 6 {
			left[fmt.Sprintf("t%d-0", i)] = openAt("a", 2)
		}
		r.notes()
		r.cfg.Left, r.cfg.Planned = lefts(left), 49
		st := r.finish(tasks(49)).counts(49, 0, 0, 0)
		same(r, "reattached, gone", []int{st.Reattached, st.Gone}, reattached, 6-reattached)
		within(r, "time", r.took, 0, 8*time.Minute)
	})
}

// If the sink fails when the tail is cut while samples move, the run ends with the sink's error.
func TestTailCutBetweenServers(t *testing.T) {
	bubble(t, func(r *rig) {
		dead := newHost(10*time.Second, false, away(31*time.Second, never))
		busy := newHost(time.Hour, false, nil)
		busy.script = always(step{takes: time.Hour, closing: time.Minute}) // no sample finds room there
		r.servers(8, dead, busy)
		r.cfg.Endpoints[1].MaxInFlight = 1
		r.s.err = func(n int) error { // except for the samples that the dead server finished before
			if n < 24 {
				return nil
			}
			return errPlain
		}
		r.cfg.Planned = 100
		r.cfg.Tail = collector.Tail{Kind: collector.TailDeadline, Deadline: 2 * time.Minute}
		r.fails(r.Context(), tasks(100), collector.ErrStorage)
	})
}

// A server without Pinger and Checker gets a probe every few seconds, also while another server
// takes the other samples.
func TestSilentBackendComesBack(t *testing.T) {
	bubble(t, func(r *rig) {
		const back = 90 * time.Second
		a, b := newHost(10*time.Second, false, away(31*time.Second, back)), newHost(10*time.Second, false, nil)
		only := func(h *host) collector.Backend { return struct{ collector.Backend }{h} } // no Ping, no Check
		r.servers(8, only(a), only(b))
		is(r, "lost", r.finish(tasks(400)).counts(400, 0, 0, 0).Endpoints[0].Lost, false)
		within(r, "samples sent to see whether it is back", a.after(40*time.Second, back), 1, 11)
		within(r, "samples sent after it was back", a.after(back, never), 50, 400)
	})
}
