package collector

import (
	"context"
	"log/slog"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// Events are optional callbacks, called from many goroutines at once. They must not block, because
// a slow callback slows the workers down. They must not change the data that their arguments point
// to. They must not retain that data unless the comment of the callback allows it.
type Events struct {
	// AttemptStarted fires before the agent is made.
	AttemptStarted func(a Attempt, endpoint string)
	// AttemptFinished fires once for each started attempt, after its agent has been removed. The
	// callback can retain r.
	AttemptFinished func(r Result)
	// Reattached fires when an attempt of an earlier process has been taken over. If that was not
	// possible, it fires with an error that wraps ErrGone.
	Reattached func(a Attempt, endpoint string, err error)
	// SampleSpan fires before the first attempt that an endpoint makes at a sample. AttemptSpan
	// fires when an attempt begins. The returned context, which must be derived from ctx, is used
	// during the span. The returned function is called at the end of the span with the error of its
	// last attempt, or nil. a.N is the number of the first attempt in the span.
	SampleSpan, AttemptSpan func(ctx context.Context, a Attempt, endpoint string) (context.Context, func(error))
	// RetryWaiting fires before the wait between two attempts. err is the *AttemptError of the
	// failed attempt.
	RetryWaiting func(a Attempt, err error, delay time.Duration)
	// SampleFinished fires when a sample is complete, just before it is appended to the sink. Read
	// the sample's rows in this callback, because the sink owns them afterward. The returned
	// function, which can be nil, is called when the sink has accepted the sample. Count samples in
	// that function. If the sink refuses the sample, SampleFinished fires again with the failure
	// that replaces it.
	SampleFinished func(s *tokenize.Sample) (accepted func())
	// SampleDone fires when the sink reports the result of a sample. err is nil if the sample is in
	// a committed shard. SampleDone can fire after Run has returned.
	SampleDone func(key string, err error)
	// CloseFailed fires when an agent could not be removed. Default: a warning to Config.Logger.
	CloseFailed func(a Attempt, endpoint string, err error)
	// ScoreFailed fires when the scorer failed on a sample.
	ScoreFailed func(a Attempt, err error)
	// EndpointDown fires with an error when the server of an endpoint goes down, and with nil when
	// the server is back.
	EndpointDown func(endpoint string, err error)
	// LimitChanged fires when the limit of an endpoint has changed (Config.Adaptive). Changes are
	// reported in order. reason is the name of a limit.Reason.
	LimitChanged func(endpoint string, from, to int, reason string)
	// EndpointLost fires when an endpoint is given up for the rest of the run.
	EndpointLost func(endpoint string, err error)
}

// A Result describes an attempt that has ended.
type Result struct {
	Attempt  Attempt
	Endpoint string
	// Err is nil if the sink accepted the sample, otherwise an *AttemptError. Class is its class.
	Err   error
	Class Class
	// Started is the time at which the attempt began. Duration includes the removal of the agent.
	Started  time.Time
	Duration time.Duration
	// Admission is how long the sample waited for a permit before the attempt.
	Admission time.Duration
	// Working is Duration minus the wait for the sink.
	Working time.Duration
	// FirstAnswer is the time from the first send to its answer; 0 if unknown.
	FirstAnswer time.Duration
	// Sampled counts the sampled tokens, and Trained the tokens with a loss mask of 1.
	Sampled, Trained int64
	Rows             int
}

// withDefaults replaces each nil callback with a function that does nothing. The default
// CloseFailed logs a warning.
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
