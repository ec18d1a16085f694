package breaker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/breaker"
)

// One sample alone is charged for its failures, and takes no server down.
func TestOneSampleAloneDoesNotTrip(t *testing.T) {
	t.Parallel()
	s := answering(cfg)
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
	s.fault("k2") // failures of two samples can
	if down, _ := s.State(); !down {
		t.Error("not down after failures of two samples")
	}
}

// The threshold is the number of samples in flight or the limit, at least three, and failures to
// make an agent count for any sample.
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

// Charges of a series are refunded when the server goes down, and are final when it answers.
func TestRefund(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		do      func(s *server) // after the sample k was charged for two failures of a series
		want    string          // decision for its next failure; empty: it has none
		charged int
	}{
		"down":   {func(s *server) { s.trip(t) }, "retry free", 0},
		"answer": {func(s *server) { s.answer("other"); s.trip(t) }, "retry free", 2},
		"a check is answered": {func(s *server) {
			s.works = true
			for i := 0; s.checks == 0 && i < 9; i++ {
				s.fault(fmt.Sprint("other-", i))
			}
		}, "fail", 3},
		"down while it waits": {func(s *server) { s.dies = true }, "retry free", 0},
		"moved before it is known": {func(s *server) { // final elsewhere
			s.Detach(s.budget("k"))
			s.trip(t)
			s.Detach(s.budget("k"))
		}, "", 2},
		"moved because it is down": {func(s *server) { s.trip(t); s.Detach(s.budget("k")) }, "", 0},
	} {
		s := newServer(cfg)
		s.inHand = 6
		s.answer("other")
		s.fault("k")
		s.fault("k")
		if got := s.budget("k").Charged; got != 2 {
			t.Fatalf("charged %d", got)
		}
		tt.do(s)
		if tt.want != "" {
			if d := s.fault("k"); d.String() != tt.want {
				t.Errorf("%s: %v, want %s", name, d, tt.want)
			}
		}
		if got := s.budget("k").Charged; got != tt.charged {
			t.Errorf("%s: charged %d, want %d", name, got, tt.charged)
		}
	}

	s := answering(cfg) // forgiven
	*s.budget("k") = breaker.Resume(1, 0)
	s.fault("k")
	s.budget("k").RefundTakeover()
	s.trip(t)
	s.Detach(s.budget("k"))
	if got := s.budget("k").Charged; got != 1 {
		t.Errorf("charged %d, want the 1 of the earlier process", got)
	}
}

// An answer from before the series does not count.
func TestOldAnswer(t *testing.T) {
	t.Parallel()
	s := answering(cfg)
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

// An answer from before the server fell silent does not count either: Silent restarts the series.
func TestAnswerBeforeSilence(t *testing.T) {
	t.Parallel()
	s := answering(cfg)
	s.fault("k") // begins the series
	between := s.now.Add(time.Second)
	s.Silent(s.now.Add(2 * time.Second))
	if ch := s.Answered(between); ch != (breaker.Change{}) {
		t.Errorf("%+v after an answer from before the silence", ch)
	}
	if down, _ := s.State(); !down {
		t.Error("an answer from before the silence brought the server back")
	}
}

// A sample whose failure trips the breaker is charged if the server answers the check.
func TestAnsweredCheckCharges(t *testing.T) {
	t.Parallel()
	s := answering(cfg)
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
