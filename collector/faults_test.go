package collector_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
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
			bubble(t, func(r *rig) { randomRun(r, seed) })
		})
	}
}

func randomRun(r *rig, seed uint64) {
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
	s := r.s
	s.takes, s.atOnce = time.Duration(roll(2))*time.Second, roll(2) == 0
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
	check := func() { identity(r, r.c.Stats()) }
	r.cfg.Endpoints = nil
	for i := range 1 + roll(3) {
		e := collector.Endpoint{Name: fmt.Sprint(i), Backend: &scripted{script: script}, MaxInFlight: 1 + roll(5)}
		r.cfg.Endpoints = append(r.cfg.Endpoints, e)
	}
	r.cfg.Samples, r.cfg.Retries = samples, roll(4)
	r.cfg.AttemptTimeout, r.cfg.Outage = time.Minute, time.Hour
	if roll(2) == 0 {
		r.cfg.Planned = n * samples
	}
	if roll(3) == 0 {
		r.cfg.Limit = 1 + roll(n*samples)
	}
	if roll(4) == 0 {
		r.cfg.Left = func(string) collector.SampleState { return collector.SampleState{Done: roll(3) == 0} }
	}
	r.cfg.Jitter = func() float64 { return float64(roll(100)) / 100 }
	r.cfg.Events = collector.Events{
		AttemptStarted:  func(collector.Attempt, string) { check() },
		AttemptFinished: func(collector.Result) { check() },
		SampleFinished:  func(*tokenize.Sample) func() { check(); return check },
		SampleDone:      func(string, error) { check() },
		RetryWaiting:    func(collector.Attempt, error, time.Duration) { check() },
	}

	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	why := errors.New("stop")
	stops := roll(3) == 0
	if stops {
		time.AfterFunc(time.Duration(roll(120))*time.Second, func() { cancel(why) })
	}
	c := r.build()
	if roll(3) == 0 {
		time.AfterFunc(time.Duration(roll(60))*time.Second, c.Drain)
	}
	err := r.run(ctx, tasks(n))
	switch {
	case err == nil:
	case stops && errors.Is(err, why):
	case sinkFails && errors.Is(err, collector.ErrStorage):
	case errors.Is(err, collector.ErrUnavailable):
	default:
		r.Errorf("Run = %v", err)
	}
	s.settle(nil)

	var committed, failed int
	seen := map[string]bool{}
	for _, sample := range s.samples {
		if seen[sample.Key] {
			r.Errorf("duplicate sample %s", sample.Key)
		}
		seen[sample.Key] = true
		if len(sample.Rows) == 0 && len(sample.Failures) > 0 {
			failed++
		} else {
			committed++
		}
	}
	st := c.Stats()
	identity(r, st)
	// As the sink has them.
	same(r, "committed, failed", []int{st.Committed - st.Earlier.Committed, st.Failed}, committed, failed)
	same(r, "accepted, in flight", []int{st.Accepted, st.InFlight}, 0, 0)
}

// A run with 512 samples in flight loses nothing and leaves nothing behind.
func TestManyInFlight(t *testing.T) {
	bubble(t, func(r *rig) {
		const samples, inFlight = 2000, 512
		r.b.script = func(a collector.Attempt) step {
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
		}
		r.s.takes, r.s.atOnce = time.Millisecond, false
		r.room(inFlight)
		r.cfg.Retries, r.cfg.Samples, r.cfg.Planned = 3, samples, samples
		r.finish(tasks(1))
		r.s.settle(nil)
		failed := r.c.Stats().Failed
		r.counts(samples-failed, failed, 0, 0)
		within(r, "failed", failed, 1, samples)
		within(r, "most in flight", r.b.most, inFlight*9/10, inFlight)
		is(r, "samples with the sink", len(r.s.samples), samples)
	})
}
