package breaker_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/breaker"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

var cfg = breaker.Config{Outage: 2 * time.Minute, Retries: 2, DataRetries: 1, BusyMax: 30 * time.Minute}

// A server is a Breaker with a clock and with the budgets of its samples.
type server struct {
	*breaker.Breaker
	now     time.Time
	budgets map[string]*breaker.Budget
	inHand  int
	works   bool // result of a check
	checks  int
	dies    bool // it goes down while a sample waits
}

func newServer(cfg breaker.Config) *server {
	return &server{Breaker: breaker.New(cfg), now: epoch, budgets: map[string]*breaker.Budget{}, inHand: 4}
}

// answering returns a server that has answered another sample.
func answering(cfg breaker.Config) *server {
	s := newServer(cfg)
	s.answer("other")
	return s
}

func (s *server) budget(key string) *breaker.Budget {
	if s.budgets[key] == nil {
		s.budgets[key] = new(breaker.Budget)
	}
	return s.budgets[key]
}

// end ends an attempt a second later, and takes the steps of the decision.
func (s *server) end(e breaker.End) breaker.Decision {
	s.now = s.now.Add(time.Second)
	if e.Replied.IsZero() {
		e.Replied = s.now
	}
	if e.InHand == 0 {
		e.InHand, e.Limit = s.inHand, 8
	}
	b := s.budget(e.Key)
	d := s.Ended(b, e, s.now)
	tripped := d.Change.Tripped
	for d.Next != breaker.Nothing {
		if d.Next == breaker.Check {
			s.checks++
			d = s.Checked(b, d, s.works, false)
		} else {
			if s.dies {
				s.Silent(s.now)
			}
			d = s.Waited(b, d)
		}
		tripped = tripped || d.Change.Tripped
	}
	d.Change.Tripped = tripped
	return d
}

func (s *server) fault(key string) breaker.Decision {
	return s.end(breaker.End{Key: key, Kind: breaker.Fault, Stage: breaker.Rolling})
}

func (s *server) answer(key string) {
	s.end(breaker.End{Key: key, Kind: breaker.Done, Stage: breaker.Rolling})
}

// trip makes different samples fail until the breaker trips.
func (s *server) trip(t *testing.T) *server {
	t.Helper()
	for i := range 9 {
		s.fault(fmt.Sprint("other-", i))
	}
	if down, _ := s.State(); !down {
		t.Fatal("nine failures did not trip the breaker")
	}
	return s
}

// states are servers in every distinct state.
var states = []struct {
	name string
	make func(t *testing.T) *server
}{
	{"new", func(*testing.T) *server { return newServer(cfg) }},
	{"up", func(*testing.T) *server { return answering(cfg) }},
	{"failing", func(*testing.T) *server { // one failure before the threshold
		s := answering(cfg)
		for i := range 3 {
			s.fault(fmt.Sprint("other-", i))
		}
		return s
	}},
	{"own", func(t *testing.T) *server { // the sample is known to fail while others succeed
		t.Helper()
		s := answering(cfg)
		s.works = true
		for range 4 {
			s.fault("k")
			s.fault("other-1")
		}
		if down, _ := s.State(); down || s.checks == 0 {
			t.Fatal("the check did not reset the breaker")
		}
		s.works, s.checks = false, 0
		s.budgets = map[string]*breaker.Budget{}
		return s
	}},
	{"down", func(t *testing.T) *server {
		t.Helper()
		return answering(cfg).trip(t)
	}},
	{"silent", func(*testing.T) *server {
		s := answering(cfg)
		s.now = s.now.Add(time.Second)
		s.Silent(s.now)
		return s
	}},
	{"overdue", func(t *testing.T) *server {
		t.Helper()
		s := answering(cfg).trip(t)
		s.now = s.now.Add(cfg.Outage)
		return s
	}},
	{"lost", func(t *testing.T) *server {
		t.Helper()
		s := answering(cfg).trip(t)
		s.Lose()
		return s
	}},
}

func TestDecisions(t *testing.T) {
	t.Parallel()
	const (
		over     = "over"
		free     = "retry free"
		charged  = "retry charged"
		fail     = "fail"
		stop     = "stop"
		passOn   = "pass on"
		trips    = "retry free; tripped down"
		givenUp  = "pass on; lost"
		reopened = "; reset up"
	)
	// Decisions for each of states: new, up, failing, own, down, silent, overdue, lost.
	type row [8]string
	always := func(v string) row { return row{v, v, v, v, v, v, v, v} }
	answer := func(v string) row {
		u := v + reopened
		return row{v, v, v, v, u, u, u, u}
	}
	richFault := row{free, charged, trips, charged, free, free, givenUp, passOn}

	for _, test := range []struct {
		kind       breaker.Kind
		rich, poor row
	}{
		{breaker.Done, answer(over), answer(over)},
		{breaker.Policy, answer(charged), answer(fail)},
		{breaker.Final, answer(fail), answer(fail)},
		{breaker.Gone, answer(free), answer(free)},
		{breaker.LostAnswer, answer(charged), answer(fail)},
		{breaker.Busy, answer(free), answer(free)},
		{breaker.Own, always(charged), always(fail)},
		{breaker.Moved, always(free), always(free)},
		{breaker.Fault, richFault, richFault},
		{breaker.Cut, always(fail), always(fail)},
		{breaker.Cancelled, always(stop), always(stop)},
		{breaker.Fatal, always(stop), always(stop)},
	} {
		for i, st := range states {
			for _, stage := range []breaker.Stage{breaker.Opening, breaker.Rolling} {
				for _, probe := range []bool{false, true} {
					for _, poor := range []bool{false, true} {
						want := test.rich[i]
						if poor {
							want = test.poor[i]
							if test.kind == breaker.Fault && want == charged {
								want = fail
							}
						}
						name := fmt.Sprintf("%v at stage %d of a server that is %s, probe %v, poor %v", test.kind, stage, st.name, probe, poor)
						s := st.make(t)
						if poor {
							*s.budget("k") = breaker.Resume(cfg.Retries, cfg.DataRetries)
						}
						d := s.end(breaker.End{Key: "k", Kind: test.kind, Stage: stage, Probe: probe})
						if got := d.String() + changes(d.Change); got != want {
							t.Errorf("%s: %q, want %q", name, got, want)
						}
						if d.Next != breaker.Nothing {
							t.Errorf("%s: step %d is left to do", name, d.Next)
						}
					}
				}
			}
		}
	}
}

func changes(c breaker.Change) string {
	var words []string
	for _, one := range []struct {
		is   bool
		word string
	}{{c.Tripped, "tripped"}, {c.Reset, "reset"}, {c.Down, "down"}, {c.Up, "up"}, {c.Lost, "lost"}} {
		if one.is {
			words = append(words, one.word)
		}
	}
	if words == nil {
		return ""
	}
	return "; " + strings.Join(words, " ")
}

func TestNames(t *testing.T) {
	t.Parallel()
	for k := breaker.Done; k <= breaker.Fatal; k++ {
		if name := k.String(); name == "" || strings.Contains(name, "(") {
			t.Errorf("kind %d is called %q", k, name)
		}
	}
	if got := (breaker.Fatal + 1).String(); got != "kind(12)" {
		t.Errorf("the kind after the last is called %q", got)
	}
	if got := breaker.Verdict(9).String(); got != "verdict(9)" {
		t.Errorf("a verdict that there is not is called %q", got)
	}
}

// A refused sample is charged after BusyMax, or if checks show that the server has room for others.
func TestBusy(t *testing.T) {
	t.Parallel()
	refuse := func(s *server) breaker.Decision { return s.end(breaker.End{Key: "k", Kind: breaker.Busy}) }
	t.Run("for long", func(t *testing.T) {
		s := newServer(cfg)
		for s.now.Sub(epoch) < cfg.BusyMax {
			if d := refuse(s); d.Charged || d.CheckPassed {
				t.Fatalf("%v after %v", d, s.now.Sub(epoch))
			}
		}
		if d := refuse(s); d.String() != "retry charged" {
			t.Errorf("%v after %v", d, s.now.Sub(epoch))
		}
	})
	t.Run("alone", func(t *testing.T) {
		s := newServer(cfg)
		s.works = true
		for i := range 10 {
			d := refuse(s)
			if want := i >= 6; d.Charged != want {
				t.Errorf("refusal %d: %v", i+1, d)
			}
			if want := i >= 4; d.CheckPassed != want || s.checks != max(0, i-3) {
				t.Errorf("refusal %d: room %v after %d checks", i+1, d.CheckPassed, s.checks)
			}
		}
	})
	t.Run("a check is turned away too", func(t *testing.T) {
		s := newServer(cfg)
		for i := range 20 {
			s.works = i%3 != 0
			if d := refuse(s); d.Charged {
				t.Fatalf("refusal %d: %v", i+1, d)
			}
		}
	})
	t.Run("something else between", func(t *testing.T) {
		s := newServer(cfg)
		s.works = true
		for i := range 40 {
			if d := refuse(s); d.Charged {
				t.Fatalf("refusal %d: %v", i+1, d)
			}
			if i%6 == 5 {
				s.end(breaker.End{Key: "k", Kind: breaker.Moved})
			}
		}
	})
}

// Changes are consistent for any order of ends: a server is down before it is back, is lost once,
// and no sample is refunded more than its charges.
func TestAnything(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 3))
		cfg := cfg
		cfg.Watched = seed%3 == 0
		s := newServer(cfg)
		tripped, down, lost := false, false, false
		follow := func(at int, ch breaker.Change) {
			switch {
			case ch.Up && !down, ch.Up && !ch.Reset, ch.Down && down, ch.Lost && lost, ch.Reset && !tripped && !ch.Tripped:
				t.Fatalf("seed %d, step %d: %+v while tripped %v, down %v, lost %v", seed, at, ch, tripped, down, lost)
			}
			tripped = (tripped || ch.Tripped) && !ch.Reset
			down = (down || ch.Down) && !ch.Up
			lost = lost || ch.Lost
			is, isLost := s.State()
			if is != tripped || isLost != lost {
				t.Fatalf("seed %d, step %d: state %v, %v after %+v, want %v, %v", seed, at, is, isLost, ch, tripped, lost)
			}
		}
		for i := range 400 {
			s.works, s.dies = rng.IntN(4) == 0, false
			key := fmt.Sprint(rng.IntN(6))
			switch rng.IntN(12) {
			case 0:
				follow(i, s.AgentMade(s.now))
			case 1:
				follow(i, s.Silent(s.now))
			case 2:
				s.Detach(s.budget(key))
			case 3:
				s.now = s.now.Add(time.Duration(rng.IntN(60)) * time.Second)
			default:
				before := s.budget(key).Charged
				kind := breaker.Kind(rng.IntN(int(breaker.Fatal) + 1))
				if rng.IntN(2) == 0 {
					kind = breaker.Fault
				}
				d := s.end(breaker.End{Key: key, Kind: kind, Stage: breaker.Stage(rng.IntN(2)), Probe: rng.IntN(4) == 0})
				follow(i, d.Change)
				after := s.budget(key).Charged
				if after < 0 || after > before+1 || d.Charged && kind != breaker.Policy && kind != breaker.Fault && after != before+1 {
					t.Fatalf("seed %d, step %d: %v: charged %d, before %d", seed, i, d, after, before)
				}
				if d.Verdict == breaker.Retry && after > cfg.Retries && kind != breaker.Policy && kind != breaker.Gone {
					t.Fatalf("seed %d, step %d: %v after %d charges", seed, i, d, after)
				}
			}
		}
	}
}
