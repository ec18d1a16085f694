package collector

import (
	"context"
	"log/slog"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// Events are called as things happen, from many goroutines at once. They must not block: a
// slow one slows the workers down. What their arguments point to must not be changed, and must
// not be kept unless the event allows it. All are optional.
type Events struct {
	// AttemptStarted fires before the agent is made.
	AttemptStarted func(a Attempt, endpoint string)
	// AttemptFinished fires once for each attempt that was started, after its agent was
	// removed. The Result may be kept.
	AttemptFinished func(r Result)
	// Reattached fires when it is known whether an attempt of an earlier process could be
	// taken over. If not, err wraps ErrGone and a new attempt is made.
	Reattached func(a Attempt, endpoint string, err error)
	// SampleSpan fires when a sample is taken up, AttemptSpan when an attempt at it begins.
	// The context that they return, which must be derived from ctx, is used for what happens
	// in the span. The function that they return is called at its end, with its error. a.N
	// is the number of the first attempt of the span.
	SampleSpan, AttemptSpan func(ctx context.Context, a Attempt, endpoint string) (context.Context, func(error))
	// RetryWaiting fires before the wait between two attempts. err is the *AttemptError of
	// the one that failed.
	RetryWaiting func(a Attempt, err error, delay time.Duration)
	// SampleFinished fires when a sample is complete and before the sink takes it: the only
	// moment at which its rows can be read. The function that it returns, which may be nil, is
	// called when the sink has accepted the sample: what is counted once is counted there. If
	// the sink refuses the sample, SampleFinished fires again with the failure that takes its
	// place.
	SampleFinished func(s *tokenize.Sample) (accepted func())
	// SampleDone fires when the sink tells what became of a sample: err is nil if it is in a
	// committed shard. It may fire after Run has returned.
	SampleDone func(key string, err error)
	// CloseFailed fires when an agent could not be removed. Default: Config.Logger gets it.
	CloseFailed func(a Attempt, endpoint string, err error)
	// ScoreFailed fires when the scorer failed on a sample, which then has no reward.
	ScoreFailed func(a Attempt, err error)
	// EndpointDown fires when the server of an endpoint is taken to be down, and with nil
	// when it is back.
	EndpointDown func(endpoint string, err error)
	// LimitChanged fires when Adaptive changed how many samples may be worked on at the
	// endpoint. reason is the name of a limit.Reason. The changes of one endpoint come in
	// order.
	LimitChanged func(endpoint string, from, to int, reason string)
	// EndpointLost fires when an endpoint is given up for this run.
	EndpointLost func(endpoint string, err error)
}

// A Result is how an attempt ended.
type Result struct {
	Attempt  Attempt
	Endpoint string
	// Err is nil if the sink accepted the sample, else an *AttemptError. Class is its class.
	Err   error
	Class Class
	// Started is when the attempt began. Duration is how long it took, the removal of the
	// agent included.
	Started  time.Time
	Duration time.Duration
	// Admission is how long the sample waited for room before the attempt began, without the
	// wait between attempts.
	Admission time.Duration
	// Working is Duration without the wait for the sink.
	Working time.Duration
	// FirstAnswer is the time from the first send to the server's answer to it; 0 if the
	// backend does not tell.
	FirstAnswer time.Duration
	// Sampled counts the tokens that the policy sampled, and Trained those of them that have
	// a loss mask of 1. Rows counts training sequences.
	Sampled, Trained int64
	Rows             int
}

// withDefaults fills in functions that do nothing where none are given, so that every event
// can be called. An agent that could not be removed is then logged.
func (e Events) withDefaults(log *slog.Logger) Events {
	noSpan := func(ctx context.Context, _ Attempt, _ string) (context.Context, func(error)) {
		return ctx, func(error) {}
	}
	if e.AttemptStarted == nil {
		e.AttemptStarted = func(Attempt, string) {}
	}
	if e.AttemptFinished == nil {
		e.AttemptFinished = func(Result) {}
	}
	if e.Reattached == nil {
		e.Reattached = func(Attempt, string, error) {}
	}
	if e.SampleSpan == nil {
		e.SampleSpan = noSpan
	}
	if e.AttemptSpan == nil {
		e.AttemptSpan = noSpan
	}
	if e.RetryWaiting == nil {
		e.RetryWaiting = func(Attempt, error, time.Duration) {}
	}
	if e.SampleFinished == nil {
		e.SampleFinished = func(*tokenize.Sample) func() { return nil }
	}
	if e.SampleDone == nil {
		e.SampleDone = func(string, error) {}
	}
	if e.CloseFailed == nil {
		e.CloseFailed = func(a Attempt, endpoint string, err error) {
			log.Warn("agent not removed", "endpoint", endpoint, "sample_key", a.Key, "error", err)
		}
	}
	if e.ScoreFailed == nil {
		e.ScoreFailed = func(Attempt, error) {}
	}
	if e.EndpointDown == nil {
		e.EndpointDown = func(string, error) {}
	}
	if e.LimitChanged == nil {
		e.LimitChanged = func(string, int, int, string) {}
	}
	if e.EndpointLost == nil {
		e.EndpointLost = func(string, error) {}
	}
	return e
}
