package breaker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/breaker"
)

// A server is reported down once, and only after its check failed, and reported back only after it
// was reported down.
func TestDownReportedOnce(t *testing.T) {
	t.Parallel()
	s := answering(cfg)
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

// A server that never answered is lost when a check fails too, unless it is watched, or a stop of
// the run cut the check off.
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

// Failures of samples give a server up after Outage, unless it is watched.
func TestOutage(t *testing.T) {
	t.Parallel()
	for _, watched := range []bool{false, true} {
		cfg := cfg
		cfg.Watched = watched
		s := answering(cfg).trip(t)
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

// A new agent is an answer only if the last failure was in the stage Opening.
func TestAgentMade(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		stage breaker.Stage
		want  bool
	}{{breaker.Opening, true}, {breaker.Rolling, false}} {
		s := answering(cfg).trip(t)
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

// A sample on its last retry is spared once if the server fails its check too: the server is then
// down.
func TestLastRetryIsChecked(t *testing.T) {
	t.Parallel()
	cfg := cfg
	cfg.Retries, cfg.Checks = 0, true
	for _, works := range []bool{false, true} {
		s := answering(cfg)
		s.works = works
		d := s.fault("k")
		if down, _ := s.State(); down == works || d.Change.Tripped == works || d.Change.Down == works || s.checks != 1 {
			t.Errorf("works %v: down %v after %d checks, %+v", works, down, s.checks, d.Change)
		}
		if got, want := d.String(), map[bool]string{true: "fail", false: "retry free"}[works]; got != want {
			t.Errorf("works %v: %s, want %s", works, got, want)
		}
	}

	s := answering(cfg) // k takes it down on every try
	for i, want := range []string{"retry free", "fail"} {
		if d := s.fault("k"); d.String() != want {
			t.Errorf("failure %d: %v, want %s", i, d, want)
		}
		s.answer("other")
	}

	s = answering(cfg) // an answer comes during the check
	b := s.budget("k")
	d := s.Waited(b, s.Ended(b, breaker.End{Key: "k", Kind: breaker.Fault, Stage: breaker.Rolling, InHand: 4, Limit: 8}, s.now.Add(time.Second)))
	if s.now = s.now.Add(2 * time.Second); d.Next != breaker.Check {
		t.Fatalf("%+v", d)
	}
	s.Answered(s.now)
	if d = s.Checked(b, d, false, false); d.Verdict != breaker.Fail || d.Change != (breaker.Change{}) {
		t.Errorf("%v, %+v after an answer", d, d.Change)
	}
}
