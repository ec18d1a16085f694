package collector_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/tokenize"
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

func newHost(takes time.Duration, silent bool, away func(time.Duration) bool) *host {
	h := &host{silent: silent, takes: takes, away: away, start: time.Now()}
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
func inOrder(t *testing.T, j *notebook) {
	t.Helper()
	last := map[string]int{}
	for _, line := range j.lines {
		var key string
		var n int
		if text, ok := strings.CutPrefix(line, "begin "); ok {
			key, text, _ = strings.Cut(text, "/")
			_, _ = fmt.Sscan(text, &n)
			if n != last[key]+1 {
				t.Errorf("%s after attempt %d", line, last[key])
			}
			last[key] = n
		}
	}
}

// The samples of a server that refuses or never answers continue at the other server within
// seconds, uncharged. If it comes back, it is used again.
func TestSamplesMoveFromDeadServer(t *testing.T) {
	t.Parallel()
	const dies = 61 * time.Second
	for _, tt := range []struct {
		name   string
		silent bool
		spread time.Duration
		back   time.Duration // 0: never
		within time.Duration // until its samples continue at the other server
		took   time.Duration // at most
	}{
		// 16 in flight until it dies, then 8: another 160 s for the remaining 128 samples.
		{"refuses, for good", false, 0, 0, 15 * time.Second, dies + 190*time.Second},
		{"refuses one after the other", false, 3 * time.Second, 0, 40 * time.Second, dies + 190*time.Second},
		{"refuses, and is back", false, 0, dies + 3*time.Minute, 15 * time.Second, dies + 190*time.Second},
		{"silent, for good", true, 0, 0, 3 * time.Minute, dies + 5*time.Minute},
		{"silent, and is back", true, 0, dies + 5*time.Minute, 3 * time.Minute, dies + 6*time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				away := func(now time.Duration) bool { return now >= dies && (tt.back == 0 || now < tt.back) }
				dead, good := newHost(10*time.Second, tt.silent, away), newHost(10*time.Second, false, nil)
				dead.spread = tt.spread
				n := 220
				if tt.back > 0 {
					n = 700 // so that samples are left when it is back
					tt.took = time.Hour
				}
				j, s := &notebook{}, &shelf{atOnce: true}
				c := setup(t, dead, s, func(cfg *collector.Config) {
					cfg.Endpoints = []collector.Endpoint{{Name: "dead", Backend: dead, MaxInFlight: 8}, {Name: "good", Backend: good, MaxInFlight: 8}}
					cfg.Journal, cfg.Planned = j, n
				})
				start := time.Now()
				finish(t, c, tasks(n))
				dead.check(t)
				good.check(t)
				inOrder(t, j)
				st := counts(t, c, n, 0, 0, 0) // although Retries is 0
				if took := time.Since(start); took > tt.took {
					t.Errorf("took %v, want at most %v", took, tt.took)
				}
				if slices.ContainsFunc(s.samples, func(s *tokenize.Sample) bool { return s.Attempt > 2 }) {
					t.Error("a sample needed a third attempt")
				}
				for _, sample := range s.samples {
					if sample.Attempt == 2 && sample.StartedAt.Before(start.Add(dies)) && sample.Duration > tt.within+30*time.Second {
						t.Errorf("%s took %v in all", sample.TaskID, sample.Duration)
					}
				}
				end := tt.back
				if tt.back == 0 {
					end = time.Hour
				}
				if n := dead.after(dies+40*time.Second, end); n > 0 {
					t.Errorf("%d samples were sent to the dead server", n)
				}
				if n := dead.after(tt.back, time.Hour); tt.back > 0 && n < 50 {
					t.Errorf("%d samples were sent to the server after it was back", n)
				}
				if st.Endpoints[0].Lost || dead.checks > 50 {
					t.Errorf("lost %v, %d checks", st.Endpoints[0].Lost, dead.checks)
				}
			})
		})
	}
}

// Samples move to the server that is up before they were sent, while they wait for a retry, and back.
func TestWaitingSamplesMove(t *testing.T) {
	t.Parallel()
	from := func(from, to time.Duration) func(time.Duration) bool {
		return func(now time.Duration) bool { return now >= from && now < to }
	}
	for _, tt := range []struct {
		name  string
		hosts func() (a, b *host)
		room  int
		tasks int
		took  time.Duration // at most
		tries int           // 0: any
	}{
		{"not sent to a silent server: two pings of 10 s show it", func() (a, b *host) {
			return newHost(time.Second, true, from(0, time.Hour)), newHost(time.Second, false, nil)
		}, 8, 100, 40 * time.Second, 0},
		{"waits an hour for its retry", func() (a, b *host) {
			a = newHost(time.Second, false, from(3*time.Second, time.Hour))
			a.script = func(collector.Attempt) step { return step{takes: time.Second, runErr: collector.ErrServer} }
			return a, newHost(time.Second, false, nil)
		}, 1, 2, time.Minute, 3},
		{"from a to b and back: 48 at both, 56 at b alone, the rest at a", func() (a, b *host) {
			return newHost(10*time.Second, false, from(31*time.Second, 130*time.Second)), newHost(10*time.Second, false, from(101*time.Second, time.Hour))
		}, 8, 112, 4 * time.Minute, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := tt.hosts()
				j := &notebook{}
				c := setup(t, a, &shelf{atOnce: true}, func(cfg *collector.Config) {
					cfg.Endpoints = []collector.Endpoint{{Name: "a", Backend: a, MaxInFlight: tt.room}, {Name: "b", Backend: b, MaxInFlight: tt.room}}
					cfg.Journal = j
					if tt.tries > 0 {
						cfg.Retries, cfg.BackoffMin, cfg.BackoffMax = 3, time.Hour, time.Hour
					}
				})
				took := finish(t, c, tasks(tt.tasks))
				inOrder(t, j)
				if st := counts(t, c, tt.tasks, 0, 0, 0); took > tt.took || tt.tries > 0 && st.Attempts != tt.tries {
					t.Errorf("%d attempts in %v, want %d within %v", st.Attempts, took, tt.tries, tt.took)
				}
			})
		})
	}
}

// The run ends when all servers have been away for Outage.
func TestNoServerAnswersEndsTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newHost(10*time.Second, false, func(now time.Duration) bool { return now >= 31*time.Second })
		b := newHost(10*time.Second, true, func(now time.Duration) bool { return now >= 10*time.Minute })
		c := setup(t, a, &shelf{atOnce: true}, func(cfg *collector.Config) {
			cfg.Endpoints = []collector.Endpoint{{Name: "a", Backend: a, MaxInFlight: 4}, {Name: "b", Backend: b, MaxInFlight: 4}}
			cfg.Outage, cfg.Planned = 3*time.Minute, 10000
		})
		start := time.Now()
		err := c.Run(t.Context(), tasks(10000))
		if collector.Classify(err) != collector.ClassUnavailable {
			t.Errorf("Run = %v", err)
		}
		if took := time.Since(start); took < 13*time.Minute || took > 15*time.Minute {
			t.Errorf("took %v, want 10m and the 3m of an outage", took)
		}
		a.check(t)
		b.check(t)
		if st := c.Stats(); st.Failed != 0 || st.Remaining < 9000 {
			t.Errorf("failed %d, remaining %d", st.Failed, st.Remaining)
		}
	})
}

// An open attempt waits for its server for Outage. After that a new attempt is made.
func TestOpenAttemptsWaitForTheirServer(t *testing.T) {
	t.Parallel()
	for _, back := range []time.Duration{time.Minute, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			a := newHost(time.Second, false, func(now time.Duration) bool { return now < back })
			b := newHost(30*time.Second, false, nil)
			j := &notebook{}
			left := map[string]collector.SampleState{}
			for i := range 6 {
				left[fmt.Sprintf("t%d-0", i)] = openAt("a", 2)
			}
			c := setup(t, a, &shelf{atOnce: true}, func(cfg *collector.Config) {
				cfg.Endpoints = []collector.Endpoint{{Name: "a", Backend: a, MaxInFlight: 4}, {Name: "b", Backend: b, MaxInFlight: 4}}
				cfg.Journal, cfg.Left, cfg.Planned = j, lefts(left), 49
			})
			took := finish(t, c, tasks(49))
			st := counts(t, c, 49, 0, 0, 0)
			want := 6
			if back == time.Hour {
				want = 0
			}
			if st.Reattached != want || st.Gone != 6-want {
				t.Errorf("reattached %d, gone %d, want %d and %d", st.Reattached, st.Gone, want, 6-want)
			}
			if took > 8*time.Minute {
				t.Errorf("took %v", took)
			}
		})
	}
}

// If the sink fails when the tail is cut while samples move, the run ends with the sink's error.
func TestTailCutBetweenServers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dead := newHost(10*time.Second, false, func(now time.Duration) bool { return now >= 31*time.Second })
		busy := newHost(time.Hour, false, nil)
		busy.script = func(collector.Attempt) step { return step{takes: time.Hour, closing: time.Minute} } // no sample finds room there
		full := func(n int) error {                                                                        // except for the samples that the dead server finished before
			if n < 24 {
				return nil
			}
			return errors.New("disk full")
		}
		c := setup(t, dead, &shelf{atOnce: true, err: full}, func(cfg *collector.Config) {
			cfg.Endpoints = []collector.Endpoint{{Name: "dead", Backend: dead, MaxInFlight: 8}, {Name: "busy", Backend: busy, MaxInFlight: 1}}
			cfg.Planned = 100
			cfg.Tail = collector.Tail{Kind: collector.TailDeadline, Deadline: 2 * time.Minute}
		})
		fails(t.Context(), t, c, tasks(100), collector.ErrStorage)
		identity(t, c.Stats())
	})
}

// A server without Pinger and Checker gets a probe every few seconds, also while another server
// takes the other samples.
func TestSilentBackendComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newHost(10*time.Second, false, func(now time.Duration) bool { return now >= 31*time.Second && now < 90*time.Second })
		b := newHost(10*time.Second, false, nil)
		only := func(h *host) collector.Backend { return struct{ collector.Backend }{h} } // no Ping, no Check
		c := setup(t, a, &shelf{atOnce: true}, func(cfg *collector.Config) {
			cfg.Endpoints = []collector.Endpoint{{Name: "a", Backend: only(a), MaxInFlight: 8}, {Name: "b", Backend: only(b), MaxInFlight: 8}}
		})
		finish(t, c, tasks(400))
		st := counts(t, c, 400, 0, 0, 0)
		if n := a.after(40*time.Second, 90*time.Second); n == 0 || n > 11 {
			t.Errorf("%d samples were sent to see whether it is back", n)
		}
		if n := a.after(90*time.Second, time.Hour); n < 50 || st.Endpoints[0].Lost {
			t.Errorf("%d samples were sent after it was back; lost %v", n, st.Endpoints[0].Lost)
		}
	})
}
