package collector

import (
	"context"
	"log/slog"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// Events are optional callbacks, called from many goroutines at once. They must not block: a slow
// callback slows the workers down. They must not change the data that their arguments point to, and
// must not keep it unless the event allows it.
type Events struct {
	// AttemptStarted fires before the agent is made.
	AttemptStarted func(a Attempt, endpoint string)
	// AttemptFinished fires once for each started attempt, after its agent was removed. r can be
	// kept.
	AttemptFinished func(r Result)
	// Reattached fires when an attempt of an earlier process was taken over. If that was not
	// possible, it fires with an error that wraps ErrGone.
	Reattached func(a Attempt, endpoint string, err error)
	// SampleSpan fires when a sample is claimed, AttemptSpan when an attempt begins. The returned
	// context, derived from ctx, is used during the span. The returned function is called at the
	// end of the span, with the error of the span. a.N is the first attempt of the span.
	SampleSpan, AttemptSpan func(ctx context.Context, a Attempt, endpoint string) (context.Context, func(error))
	// RetryWaiting fires before the wait between two attempts. err is the *AttemptError of the
	// failed attempt.
	RetryWaiting func(a Attempt, err error, delay time.Duration)
	// SampleFinished fires when a sample is complete, before Append: only then can its rows be
	// read. The returned function, which can be nil, is called when the sink has accepted the
	// sample, so count samples there. If the sink refuses it, SampleFinished fires again with the
	// failure that replaces it.
	SampleFinished func(s *tokenize.Sample) (accepted func())
	// SampleDone fires when the sink reports the result of a sample: err is nil if it is in a
	// committed shard. It can fire after Run has returned.
	SampleDone func(key string, err error)
	// CloseFailed fires when an agent could not be removed. Default: a warning in Config.Logger.
	CloseFailed func(a Attempt, endpoint string, err error)
	// ScoreFailed fires when the scorer failed on a sample.
	ScoreFailed func(a Attempt, err error)
	// EndpointDown fires when the server of an endpoint goes down, and with nil when it is back.
	EndpointDown func(endpoint string, err error)
	// LimitChanged fires when Adaptive changed the limit of an endpoint, in order. reason is the
	// name of a limit.Reason.
	LimitChanged func(endpoint string, from, to int, reason string)
	// EndpointLost fires when an endpoint is given up for this run.
	EndpointLost func(endpoint string, err error)
}

// A Result describes an attempt that has ended.
type Result struct {
	Attempt  Attempt
	Endpoint string
	// Err is nil if the sink accepted the sample, otherwise an *AttemptError. Class is its class.
	Err   error
	Class Class
	// Started is when the attempt began. Duration includes the removal of the agent.
	Started  time.Time
	Duration time.Duration
	// Admission is how long the sample waited for room before the attempt.
	Admission time.Duration
	// Working is Duration without the wait for the sink.
	Working time.Duration
	// FirstAnswer is the time from the first send to its answer; 0 if unknown.
	FirstAnswer time.Duration
	// Sampled counts the sampled tokens, and Trained the tokens with a loss mask of 1.
	Sampled, Trained int64
	Rows             int
}

// withDefaults sets each missing callback to one that does nothing. CloseFailed logs a warning.
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
