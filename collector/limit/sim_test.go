package limit_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/limit"
)

// A server is a model of a server: its samples per second with n in flight, and its limit of
// requests.
type server struct {
	perSecond func(n int) float64
	refuses   int           // 0: never
	why       limit.Reason  // of a refusal
	bursts    int           // samples in flight from which all new ones meet a 500; 0: never
	even      bool          // finishes at even intervals, otherwise at random ones
	kvPer     float64       // KV cache of one sample; 0: no metrics
	stalls    time.Duration // when the metrics stop; 0: never
}

func room(each time.Duration) func(int) float64 {
	return func(n int) float64 { return float64(n) / each.Seconds() }
}

func flat(perSecond float64) func(int) float64 {
	return func(int) float64 { return perSecond }
}

// A world runs a controller against a server, with as much work as the controller admits.
type world struct {
	t        *testing.T
	c        *limit.Controller
	max      int
	srv      server
	rnd      *rand.Rand
	start    time.Time
	at       time.Time
	inFlight int
	done     int
	changes  []limit.Change
	times    []time.Duration
	highest  int
	polled   time.Time
	keys     int
}

func newWorld(t *testing.T, cfg limit.Config, srv server, seed uint64) *world {
	t.Helper()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return &world{
		t: t, c: limit.New(cfg), max: cfg.Max, srv: srv, rnd: rand.New(rand.NewPCG(seed, 1)),
		start: start, at: start,
	}
}

func (w *world) note(ch limit.Change) {
	w.t.Helper()
	l := w.c.Limit()
	if open, _ := w.c.Open(w.at); l < 1 || l > w.max || open > l || open < 1 {
		w.t.Fatalf("after %v: limit %d of at most %d, open %d", w.at.Sub(w.start), l, w.max, open)
	}
	w.highest = max(w.highest, l)
	if ch.Made() {
		if ch.To != l || ch.Reason == limit.None {
			w.t.Fatalf("change %+v with the limit at %d", ch, l)
		}
		w.changes = append(w.changes, ch)
		w.times = append(w.times, w.at.Sub(w.start))
	}
}

func (w *world) run(d time.Duration) {
	w.t.Helper()
	for end := w.at.Add(d); w.at.Before(end); {
		w.admit()
		r := w.srv.perSecond(w.inFlight)
		gap := 1 / r
		if !w.srv.even {
			gap = w.rnd.ExpFloat64() / r
		}
		step := time.Second // or until the next sample is finished
		if w.inFlight > 0 && gap < step.Seconds() {
			step = time.Duration(gap * float64(time.Second))
		}
		w.at = w.at.Add(step)
		if w.inFlight > 0 && (step < time.Second || w.rnd.Float64() < 1/gap) {
			w.note(w.c.Done(w.at, w.inFlight))
			w.inFlight--
			w.done++
		}
		w.poll()
	}
}

func (w *world) admit() {
	open, _ := w.c.Open(w.at)
	for w.inFlight < open {
		switch {
		case w.srv.refuses > 0 && w.inFlight >= w.srv.refuses:
			w.keys++
			w.note(w.c.Refused(w.at, string(rune(w.keys)), w.srv.why))
			return // it is retried later
		case w.srv.bursts > 0 && w.inFlight >= w.srv.bursts:
			for range open - w.inFlight {
				w.keys++
				w.note(w.c.Faulted(w.at, string(rune(w.keys)), open, true))
			}
			return
		}
		w.inFlight++
	}
}

func (w *world) poll() {
	since := w.at.Sub(w.start)
	if w.srv.kvPer == 0 || w.at.Sub(w.polled) < 5*time.Second || w.srv.stalls > 0 && since > w.srv.stalls {
		return
	}
	w.polled = w.at
	w.note(w.c.Polled(w.at, limit.Engine{KVUsage: math.Min(w.srv.kvPer*float64(w.inFlight), 1), Waiting: 0, Preemptions: -1}))
}

func (w *world) reasons() map[limit.Reason]int {
	m := make(map[limit.Reason]int)
	for _, ch := range w.changes {
		m[ch.Reason]++
	}
	return m
}

func TestControllerAgainstServers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		max        int
		srv        server
		hours      float64
		low, high  int // of the final limit
		never      int // highest allowed limit at any time; 0: max
		wantReason limit.Reason
	}{
		{"room for all: grows to the most", 512, server{perSecond: room(10 * time.Second)}, 2, 512, 512, 0, limit.SlowStart},
		{"room for all, evenly", 512, server{perSecond: room(10 * time.Second), even: true}, 1, 512, 512, 0, limit.SlowStart},
		{"room for all, an odd most", 333, server{perSecond: room(time.Second)}, 0.5, 333, 333, 0, limit.SlowStart},
		{"one Letta process: flat at 5/s", 512, server{perSecond: flat(5)}, 4, 32, 64, 90, limit.NoGain},
		{"flat at 5/s, evenly", 512, server{perSecond: flat(5), even: true}, 4, 32, 40, 64, limit.NoGain},
		{
			"flat from 150 on", 1024,
			server{perSecond: func(n int) float64 { return math.Min(float64(n), 150) / 5 }},
			4, 120, 340, 430, limit.NoGain,
		},
		{"429 above 50", 512, server{perSecond: room(10 * time.Second), refuses: 50, why: limit.RateLimited}, 2, 30, 64, 0, limit.RateLimited},
		{"503 above 20", 512, server{perSecond: room(10 * time.Second), refuses: 20, why: limit.Unavailable}, 2, 12, 26, 32, limit.Unavailable},
		{
			"PostgreSQL full at 30, which says 500", 512,
			server{perSecond: flat(5), bursts: 29},
			2, 15, 32, 32, limit.Overload,
		},
		{"KV cache full at 200", 1024, server{perSecond: room(10 * time.Second), kvPer: 1.0 / 200}, 2, 100, 170, 0, limit.SlowStart},
		{"metrics stall at once", 512, server{perSecond: room(10 * time.Second), kvPer: 1.0 / 2000, stalls: 10 * time.Second}, 2, 512, 512, 0, limit.SlowStart},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(3) {
				w := newWorld(t, limit.Config{Max: tt.max}, tt.srv, seed)
				w.run(time.Duration(tt.hours * float64(time.Hour)))
				l := w.c.Limit()
				if l < tt.low || l > tt.high || tt.never > 0 && w.highest > tt.never {
					t.Errorf("seed %d: limit %d, highest %d, want %d to %d, never above %d: %v",
						seed, l, w.highest, tt.low, tt.high, tt.never, w.reasons())
				}
				if w.reasons()[tt.wantReason] == 0 {
					t.Errorf("seed %d: no %v in %v", seed, tt.wantReason, w.reasons())
				}
			}
		})
	}
}

// MaxGain reports a gain only if it was measured and the limit still holds: not if the limit began
// at the maximum, or if the growth had no gain.
func TestTopped(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		max  int
		srv  server
		want bool
	}{
		{"room for all", 64, server{perSecond: room(10 * time.Second), even: true}, true},
		{"it began at the most", 24, server{perSecond: room(10 * time.Second), even: true}, false},
		{"flat: more bought nothing", 48, server{perSecond: flat(0.9), even: true}, false},
		{"a little: 3 % for half as many again", 48, server{perSecond: func(n int) float64 { return 0.9 + 0.03*float64(n-32)/16 }, even: true}, false},
		{"429 above 50", 64, server{perSecond: room(10 * time.Second), refuses: 50, why: limit.RateLimited}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, limit.Config{Max: tt.max}, tt.srv, 1)
			w.run(3 * time.Hour)
			g, ok := w.c.MaxGain()
			if ok != tt.want {
				t.Fatalf("topped %v with %+v at limit %d, want %v", ok, g, w.c.Limit(), tt.want)
			}
			if ok && (g.To != tt.max || g.From >= g.To || g.After < 1.2*g.Before || math.Abs(g.After-float64(g.To)/10) > 0.2*g.After) {
				t.Errorf("gain %+v, want what the server does at %d and fewer", g, tt.max)
			}
			w.c.Polled(w.at.Add(time.Hour), limit.Engine{KVUsage: 0.95})
			if g, ok := w.c.MaxGain(); ok {
				t.Errorf("still %+v after a cut", g)
			}
		})
	}
}
