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
	works   bool // what a check says
	checks  int
	dies    bool // it goes down while a sample waits
}

func newServer(cfg breaker.Config) *server {
	return &server{Breaker: breaker.New(cfg), now: epoch, budgets: map[string]*breaker.Budget{}, inHand: 4}
}

func (s *server) budget(key string) *breaker.Budget {
	if s.budgets[key] == nil {
		s.budgets[key] = new(breaker.Budget)
	}
	return s.budgets[key]
}

// end ends an attempt a second later, and does the steps that are asked for.
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
	if d.Next == breaker.Check {
		s.checks++
		first := d.Change
		d = s.Checked(b, d, s.works, false)
		d.Change.Tripped = d.Change.Tripped || first.Tripped
	}
	if d.Next == breaker.Wait {
		if s.dies {
			s.Silent(s.now)
		}
		d = s.Waited(b, d)
	}
	return d
}

func (s *server) fault(key string) breaker.Decision {
	return s.end(breaker.End{Key: key, Kind: breaker.Fault, Stage: breaker.Rolling})
}

func (s *server) answer(key string) {
	s.end(breaker.End{Key: key, Kind: breaker.Done, Stage: breaker.Rolling})
}

// trip has different samples fail until the breaker trips.
func (s *server) trip(t *testing.T) {
	t.Helper()
	for i := range 9 {
		s.fault(fmt.Sprint("other-", i))
	}
	if down, _ := s.State(); !down {
		t.Fatal("nine failures did not trip the breaker")
	}
}

// states are servers in every state that is different.
var states = []struct {
	name string
	make func(t *testing.T) *server
}{
	{"new", func(*testing.T) *server { return newServer(cfg) }},
	{"up", func(*testing.T) *server {
		s := newServer(cfg)
		s.answer("other")
		return s
	}},
	{"failing", func(*testing.T) *server { // one failure before the threshold
		s := newServer(cfg)
		s.answer("other")
		for i := range 3 {
			s.fault(fmt.Sprint("other-", i))
		}
		return s
	}},
	{"own", func(t *testing.T) *server { // the sample is known to fail where others do not
		t.Helper()
		s := newServer(cfg)
		s.answer("other")
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
		s := newServer(cfg)
		s.answer("other")
		s.trip(t)
		return s
	}},
	{"silent", func(*testing.T) *server {
		s := newServer(cfg)
		s.answer("other")
		s.now = s.now.Add(time.Second)
		s.Silent(s.now)
		return s
	}},
	{"overdue", func(t *testing.T) *server {
		t.Helper()
		s := newServer(cfg)
		s.answer("other")
		s.trip(t)
		s.now = s.now.Add(cfg.Outage)
		return s
	}},
	{"lost", func(t *testing.T) *server {
		t.Helper()
		s := newServer(cfg)
		s.answer("other")
		s.trip(t)
		s.Lose()
		return s
	}},
}

// Every kind of end, in every state of the server, for a sample that can still pay and for
// one that cannot.
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
	// A row has one decision for each of states: new, up, failing, own, down, silent,
	// overdue, lost.
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
		{breaker.Slow, always(charged), always(fail)},
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

// Kinds and verdicts have names, and all of them are in the table above.
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

// One sample alone pays for its failures, and takes no server down.
func TestOneSampleAloneDoesNotTrip(t *testing.T) {
	t.Parallel()
	s := newServer(cfg)
	s.answer("other")
	for i := range 50 {
		want := "retry charged"
		if i >= cfg.Retries {
			want = "fail"
		}
		if got := s.fault("k").String(); got != want {
			t.Fatalf("failure %d: %q, want %q", i+1, got, want)
		}
	}
	if down, _ := s.State(); down || s.checks > 0 {
		t.Errorf("down %v after %d checks", down, s.checks)
	}
	s.fault("k2") // but two of them may
	if down, _ := s.State(); !down {
		t.Error("not down after failures of two samples")
	}
}

// The threshold is what can fail before one sample fails twice, at least three. Failures
// to make an agent count whoever asks.
func TestThreshold(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name          string
		answered      bool
		inHand, limit int
		stage         breaker.Stage
		keys          int
		want          int
	}{
		{"in hand", true, 5, 100, breaker.Rolling, 9, 5},
		{"the limit", true, 100, 6, breaker.Rolling, 9, 6},
		{"three at least", true, 1, 1, breaker.Rolling, 9, 3},
		{"the limit before the first answer", false, 1, 7, breaker.Rolling, 1, 7},
		{"one sample without an agent", true, 4, 8, breaker.Opening, 1, 4},
		{"two samples", true, 4, 8, breaker.Rolling, 2, 4},
	} {
		s := newServer(cfg)
		if test.answered {
			s.answer("other")
		}
		n := 0
		for down := false; !down && n < 20; n++ {
			d := s.end(breaker.End{Key: fmt.Sprint(n % test.keys), Kind: breaker.Fault, Stage: test.stage, InHand: test.inHand, Limit: test.limit})
			down = d.Change.Tripped
		}
		if n != test.want {
			t.Errorf("%s: down after %d failures, want %d", test.name, n, test.want)
		}
	}
}

// What a trip charged is refunded when the server goes down, and is final when it answers.
func TestRefund(t *testing.T) {
	t.Parallel()
	charge := func(t *testing.T) *server { // the sample k is charged for two failures of a trip
		t.Helper()
		s := newServer(cfg)
		s.inHand = 6
		s.answer("other")
		s.fault("k")
		s.fault("k")
		if s.budget("k").Charged != 2 {
			t.Fatalf("charged %d", s.budget("k").Charged)
		}
		return s
	}
	t.Run("down", func(t *testing.T) {
		t.Parallel()
		s := charge(t)
		s.trip(t)
		if d := s.fault("k"); d.String() != "retry free" || s.budget("k").Charged != 0 {
			t.Errorf("%v, charged %d", d, s.budget("k").Charged)
		}
	})
	t.Run("answer", func(t *testing.T) {
		t.Parallel()
		s := charge(t)
		s.answer("other")
		s.trip(t)
		if d := s.fault("k"); d.String() != "retry free" || s.budget("k").Charged != 2 {
			t.Errorf("%v, charged %d", d, s.budget("k").Charged)
		}
	})
	t.Run("a check is answered", func(t *testing.T) {
		t.Parallel()
		s := charge(t)
		s.works = true
		for i := 0; s.checks == 0 && i < 9; i++ {
			s.fault(fmt.Sprint("other-", i))
		}
		if d := s.fault("k"); d.String() != "fail" || s.budget("k").Charged != 3 {
			t.Errorf("%v, charged %d", d, s.budget("k").Charged)
		}
	})
	t.Run("down while it waits", func(t *testing.T) {
		t.Parallel()
		s := charge(t)
		s.dies = true
		if d := s.fault("k"); d.String() != "retry free" || s.budget("k").Charged != 0 {
			t.Errorf("%v, charged %d", d, s.budget("k").Charged)
		}
	})
	t.Run("moved before it is known", func(t *testing.T) {
		t.Parallel()
		s := charge(t)
		s.Leave(s.budget("k"))
		s.trip(t)
		s.Leave(s.budget("k"))
		if got := s.budget("k").Charged; got != 2 {
			t.Errorf("charged %d, want 2: it is final elsewhere", got)
		}
	})
	t.Run("moved because it is down", func(t *testing.T) {
		t.Parallel()
		s := charge(t)
		s.trip(t)
		s.Leave(s.budget("k"))
		if got := s.budget("k").Charged; got != 0 {
			t.Errorf("charged %d, want 0", got)
		}
	})
	t.Run("forgiven", func(t *testing.T) {
		t.Parallel()
		s := newServer(cfg)
		s.answer("other")
		*s.budget("k") = breaker.Resume(1, 0)
		s.fault("k")
		s.budget("k").Forgive()
		s.trip(t)
		s.Leave(s.budget("k"))
		if got := s.budget("k").Charged; got != 1 {
			t.Errorf("charged %d, want the 1 of the earlier process", got)
		}
	})
}

// An answer to what was sent before the trip says nothing about it.
func TestOldAnswer(t *testing.T) {
	t.Parallel()
	s := newServer(cfg)
	s.answer("other")
	before := s.now
	s.trip(t)
	d := s.end(breaker.End{Key: "late", Kind: breaker.Done, Replied: before})
	if down, _ := s.State(); !down || d.Change != (breaker.Change{}) {
		t.Errorf("down %v, %+v after an old answer", down, d.Change)
	}
	s.Silent(s.now)
	if ch := s.Answered(s.now.Add(time.Second)); !ch.Up || !ch.Reset {
		t.Errorf("%+v after a new answer", ch)
	}
}

// An answer from before the first failure of the trip, and from before the server fell
// silent, says nothing either: the silence moves the beginning of the trip.
func TestAnswerBeforeSilence(t *testing.T) {
	t.Parallel()
	s := newServer(cfg)
	s.answer("other")
	s.fault("k") // begins the trip
	between := s.now.Add(time.Second)
	s.Silent(s.now.Add(2 * time.Second))
	if ch := s.Answered(between); ch != (breaker.Change{}) {
		t.Errorf("%+v after an answer from before the silence", ch)
	}
	if down, _ := s.State(); !down {
		t.Error("an answer from before the silence brought the server back")
	}
}

// A sample whose failure trips the breaker is charged when the server answers the check: the
// failure was its own.
func TestAnsweredCheckCharges(t *testing.T) {
	t.Parallel()
	s := newServer(cfg)
	s.answer("other")
	s.works = true
	var d breaker.Decision
	var key string
	for i := 0; s.checks == 0 && i < 9; i++ {
		key = fmt.Sprint("other-", i)
		d = s.fault(key)
	}
	if s.checks != 1 || d.String() != "retry charged" || s.budget(key).Charged != 1 {
		t.Errorf("%d checks, %v, charged %d", s.checks, d, s.budget(key).Charged)
	}
}

// A server is told to be down once, and only when its check was not answered; it is told to
// be back only if it was told to be down.
func TestDownIsToldOnce(t *testing.T) {
	t.Parallel()
	s := newServer(cfg)
	s.answer("other")
	trip := func() (*breaker.Budget, breaker.Decision) {
		b := s.budget("k")
		for i := range 9 {
			s.now = s.now.Add(time.Second)
			d := s.Ended(b, breaker.End{Key: fmt.Sprint(i), Kind: breaker.Fault, Stage: breaker.Rolling, InHand: 4, Limit: 8}, s.now)
			if d.Next == breaker.Check {
				return b, d
			}
		}
		t.Fatal("nine failures did not trip the breaker")
		return nil, breaker.Decision{}
	}
	b, first := trip()
	s.now = s.now.Add(time.Second)
	if ch := s.Answered(s.now); !ch.Reset || ch.Up {
		t.Errorf("%+v after an answer during the check", ch)
	}
	_, second := trip()
	if d := s.Checked(b, first, false, false); !d.Change.Down {
		t.Errorf("%+v after a check that failed", d.Change)
	}
	if d := s.Checked(b, second, false, false); d.Change.Down {
		t.Errorf("%+v after the second check that failed", d.Change)
	}
	s.now = s.now.Add(time.Second)
	if ch := s.Answered(s.now); !ch.Reset || !ch.Up {
		t.Errorf("%+v after an answer", ch)
	}
}

// A server that never answered is lost when a check fails as well; unless somebody watches
// it, or the check was cut off by a stop of the run.
func TestNeverAnswered(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		watched  bool
		stopping bool
		lost     bool
	}{{"alone", false, false, true}, {"watched", true, false, false}, {"stopping", false, true, false}} {
		cfg := cfg
		cfg.Watched = test.watched
		b := breaker.New(cfg)
		var d breaker.Decision
		var s breaker.Budget
		for i := range 3 {
			d = b.Ended(&s, breaker.End{Key: fmt.Sprint(i), Kind: breaker.Fault, Limit: 3}, epoch)
		}
		if d.Next != breaker.Check || !d.Change.Tripped || d.Change.Down {
			t.Fatalf("%s: %+v", test.name, d)
		}
		d = b.Checked(&s, d, false, test.stopping)
		if _, lost := b.State(); lost != test.lost || d.Change.Lost != test.lost || (d.Verdict == breaker.PassOn) != test.lost {
			t.Errorf("%s: lost %v, %+v", test.name, lost, d)
		}
	}
}

// Failures of samples give a server up after the outage, unless somebody watches it.
func TestOutage(t *testing.T) {
	t.Parallel()
	for _, watched := range []bool{false, true} {
		cfg := cfg
		cfg.Watched = watched
		s := newServer(cfg)
		s.answer("other")
		s.trip(t)
		s.now = s.now.Add(cfg.Outage - 10*time.Second)
		if d := s.fault("k"); d.Verdict != breaker.Retry {
			t.Errorf("watched %v: %v before the outage is over", watched, d)
		}
		s.now = s.now.Add(10 * time.Second)
		d := s.fault("k")
		if d.Change.Lost == watched {
			t.Errorf("watched %v: %v, %+v", watched, d, d.Change)
		}
		if overdue, never := s.Overdue(s.now); !overdue || never {
			t.Errorf("watched %v: overdue %v, never answered %v", watched, overdue, never)
		}
		if first, second := s.Lose(), s.Lose(); first.Lost != watched || second.Lost {
			t.Errorf("watched %v: given up %v, then %v", watched, first.Lost, second.Lost)
		}
	}
}

// An agent that is made is an answer only where the last failure was that none could be.
func TestAgentMade(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		stage breaker.Stage
		want  bool
	}{{breaker.Opening, true}, {breaker.Rolling, false}} {
		s := newServer(cfg)
		s.answer("other")
		s.trip(t)
		s.end(breaker.End{Key: "k", Kind: breaker.Fault, Stage: test.stage})
		if ch := s.AgentMade(s.now.Add(time.Second)); ch.Up != test.want {
			t.Errorf("stage %d: %+v", test.stage, ch)
		}
	}
	s := newServer(cfg)
	if ch := s.AgentMade(s.now); ch != (breaker.Change{}) {
		t.Errorf("a new server: %+v", ch)
	}
	s.answer("other")
	s.Silent(s.now.Add(time.Second))
	if ch := s.AgentMade(s.now.Add(2 * time.Second)); !ch.Up {
		t.Errorf("a silent server: %+v", ch)
	}
	s = newServer(cfg)
	s.Silent(s.now)
	if ch := s.AgentMade(s.now.Add(time.Second)); ch != (breaker.Change{}) {
		t.Errorf("a server that never answered: %+v", ch)
	}
}

// A sample that is turned away pays after BusyMax, or when checks show that the server has
// room for others.
func TestBusy(t *testing.T) {
	t.Parallel()
	refuse := func(s *server) breaker.Decision { return s.end(breaker.End{Key: "k", Kind: breaker.Busy}) }
	t.Run("for long", func(t *testing.T) {
		t.Parallel()
		s := newServer(cfg)
		for s.now.Sub(epoch) < cfg.BusyMax {
			if d := refuse(s); d.Charged || d.HadRoom {
				t.Fatalf("%v after %v", d, s.now.Sub(epoch))
			}
		}
		if d := refuse(s); d.String() != "retry charged" {
			t.Errorf("%v after %v", d, s.now.Sub(epoch))
		}
	})
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		s := newServer(cfg)
		s.works = true
		for i := range 10 {
			d := refuse(s)
			if want := i >= 6; d.Charged != want {
				t.Errorf("refusal %d: %v", i+1, d)
			}
			if want := i >= 4; d.HadRoom != want || s.checks != max(0, i-3) {
				t.Errorf("refusal %d: room %v after %d checks", i+1, d.HadRoom, s.checks)
			}
		}
	})
	t.Run("a check is turned away too", func(t *testing.T) {
		t.Parallel()
		s := newServer(cfg)
		for i := range 20 {
			s.works = i%3 != 0
			if d := refuse(s); d.Charged {
				t.Fatalf("refusal %d: %v", i+1, d)
			}
		}
	})
	t.Run("something else between", func(t *testing.T) {
		t.Parallel()
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

// Whatever happens, in whatever order, what is told is consistent: a server is down before
// it is back, a lost one is lost once, and no sample is refunded what it did not pay.
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
				s.Leave(s.budget(key))
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
