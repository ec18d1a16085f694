package collector_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/tokenize"
)

// Random faults, stops and sinks: at every event the counts add up. At the end no agent is left, no
// sample is in the sink twice, and the counts match the sink.
func TestCountsAddUpUnderFaults(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { randomRun(t, seed) })
		})
	}
}

func randomRun(t *testing.T, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex // of rng
	roll := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(n)
	}
	faults := []error{
		collector.ErrBusy, collector.ErrUnavailable, collector.ErrConnection, collector.ErrIdle, collector.ErrServer,
		collector.ErrRejected, collector.ErrMalformedCall, collector.ErrAgent, delayed(5 * time.Second), errPlain,
	}
	rate := roll(90)
	script := func(collector.Attempt) step {
		s := step{takes: time.Duration(roll(20000)) * time.Millisecond, closing: time.Duration(roll(3)) * time.Second}
		if roll(100) >= rate {
			return s
		}
		switch err := faults[roll(len(faults))]; roll(8) {
		case 0:
			s.openErr = err
		case 1, 2, 3:
			s.runErr = err
		case 4:
			s.closeErr = err
		case 5:
			s.hang = true
		case 6:
			s.reply = with(func(r *collector.Reply) { r.Sends[0].Turns[roll(3)].PromptIDs = nil })
		case 7:
			s.runErr, s.reply = err, goodReply
		}
		return s
	}
	n, samples := 1+roll(30), 1+roll(4)
	s := &shelf{takes: time.Duration(roll(2)) * time.Second, atOnce: roll(2) == 0}
	sinkFails := roll(4) == 0
	if sinkFails {
		at := roll(n * samples)
		s.err = func(k int) error {
			if k >= at {
				return errPlain
			}
			return nil
		}
	}
	backends := make([]*scripted, 1+roll(3))
	var c *collector.Collector
	check := func() {
		if c != nil {
			identity(t, c.Stats())
		}
	}
	cc := setup(t, &scripted{}, s, func(cfg *collector.Config) {
		cfg.Endpoints = nil
		for i := range backends {
			backends[i] = &scripted{script: script}
			cfg.Endpoints = append(cfg.Endpoints, collector.Endpoint{Name: fmt.Sprint(i), Backend: backends[i], MaxInFlight: 1 + roll(5)})
		}
		cfg.Samples, cfg.Retries = samples, roll(4)
		cfg.AttemptTimeout, cfg.Outage = time.Minute, time.Hour
		if roll(2) == 0 {
			cfg.Planned = n * samples
		}
		if roll(3) == 0 {
			cfg.Limit = 1 + roll(n*samples)
		}
		if roll(4) == 0 {
			cfg.Left = func(string) collector.SampleState { return collector.SampleState{Done: roll(3) == 0} }
		}
		cfg.Jitter = func() float64 { return float64(roll(100)) / 100 }
		cfg.Events = collector.Events{
			AttemptStarted:  func(collector.Attempt, string) { check() },
			AttemptFinished: func(collector.Result) { check() },
			SampleFinished:  func(*tokenize.Sample) func() { check(); return check },
			SampleDone:      func(string, error) { check() },
			RetryWaiting:    func(collector.Attempt, error, time.Duration) { check() },
		}
	})
	c = cc

	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	why := errors.New("stop")
	stops := roll(3) == 0
	if stops {
		time.AfterFunc(time.Duration(roll(120))*time.Second, func() { cancel(why) })
	}
	if roll(3) == 0 {
		time.AfterFunc(time.Duration(roll(60))*time.Second, c.Drain)
	}
	err := c.Run(ctx, tasks(n))
	switch {
	case err == nil:
	case stops && errors.Is(err, why):
	case sinkFails && errors.Is(err, collector.ErrStorage):
	case errors.Is(err, collector.ErrUnavailable):
	default:
		t.Errorf("Run = %v", err)
	}
	for _, b := range backends {
		b.check(t)
	}
	check()
	s.settle(nil)

	var committed, failed int
	seen := map[string]bool{}
	for _, sample := range s.samples {
		if seen[sample.Key] {
			t.Errorf("duplicate sample %s", sample.Key)
		}
		seen[sample.Key] = true
		if len(sample.Rows) == 0 && len(sample.Failures) > 0 {
			failed++
		} else {
			committed++
		}
	}
	st := c.Stats()
	identity(t, st)
	if st.Committed-st.Earlier.Committed != committed || st.Failed != failed || st.Accepted != 0 || st.InFlight != 0 {
		t.Errorf("committed %d, failed %d, accepted %d, in flight %d; the sink has %d and %d",
			st.Committed, st.Failed, st.Accepted, st.InFlight, committed, failed)
	}
}

// A run with 512 samples in flight loses nothing and leaves nothing behind.
func TestManyInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const samples, inFlight = 2000, 512
		b := &scripted{script: func(a collector.Attempt) step {
			rng := rand.New(rand.NewPCG(uint64(a.Index), uint64(a.N)))
			s := step{takes: time.Duration(1+rng.IntN(60)) * time.Second}
			switch rng.IntN(10) {
			case 0:
				s.openErr = collector.ErrConnection
			case 1:
				s.runErr = delayed(time.Duration(rng.IntN(20)) * time.Second)
			case 2:
				s.runErr = collector.ErrMalformedCall
			case 3:
				s.closeErr = errPlain
			}
			return s
		}}
		s := &shelf{takes: time.Millisecond}
		c := setup(t, b, s, func(cfg *collector.Config) {
			cfg.Endpoints[0].MaxInFlight, cfg.Retries, cfg.Samples, cfg.Planned = inFlight, 3, samples, samples
		})
		finish(t, c, tasks(1))
		s.settle(nil)
		b.check(t)
		st := c.Stats()
		if b.most > inFlight || b.most < inFlight*9/10 || st.Remaining != 0 || st.Failed == 0 || st.Committed+st.Failed != samples || len(s.samples) != samples {
			t.Errorf("at most %d in flight, %d with the sink, stats %+v", b.most, len(s.samples), st)
		}
	})
}
