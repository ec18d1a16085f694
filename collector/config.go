package collector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/rollout-rl/rollout/collector/pace"
	"github.com/rollout-rl/rollout/tokenize"
)

// Config configures a Collector. If a field is zero, its default applies. Endpoints and Sink are
// required.
type Config struct {
	// RunID identifies this run on the servers. Default: empty.
	RunID     string
	Endpoints []Endpoint

	// Samples is the number of samples for each task that does not set its own number. Default 1.
	Samples int
	// Limit restricts the run to the first Limit samples of the tasks, including samples that
	// earlier processes finished. Default 0: no limit.
	Limit int
	// Planned is the total number of samples of the tasks, before Limit is applied. Default 0: the
	// number of samples read so far.
	Planned int
	// Left returns the state in which earlier processes left a sample. The result must not include
	// the work of this process. Left is called from one goroutine. Default nil: there was no
	// earlier process. Left is also called for the tasks of More, whose samples are sent in order, and
	// not the open attempts first.
	Left func(key string) SampleState
	// Filtered is the number of samples that Left reports as done and that have keep=false in the
	// dataset. Stats counts them as Filtered and not as Committed.
	Filtered int
	// Waiting is the number of samples that Left reports as done but that are not yet in a shard.
	// They wait for the other samples of their group. Stats counts them as Remaining until
	// CommittedEarlier is called.
	Waiting int
	// More returns the tasks that arrive during the run. Run reads them after the tasks that were
	// passed to it. The sequence can block, but it must end soon after ctx is done. ctx is done
	// after Drain, after a stop, or when Pace needs no more groups. Run reads up to 64 MiB of tasks
	// ahead in a separate goroutine, so that it can cut samples at their deadlines. Call Plan so
	// that Stats counts the samples of tasks that Run has not yet read. Run handles an error from
	// More like an error from the task source. Default nil: no more tasks.
	More func(ctx context.Context) iter.Seq2[*Task, error]
	// Pace decides when the next group can begin. Run reports to Pace which groups begin. The
	// caller must report which groups are whole or acknowledged, and the version of the policy.
	// Default nil: no pacing.
	Pace *pace.Pacer
	// RetryFailed makes Run claim only the samples that Left reports as failed, each with a new
	// budget. By default, Run claims only the samples that are not in the dataset.
	RetryFailed bool
	// Admit is called before each attempt. It can block until the attempt can begin. The context ends
	// if the sample is cut, the run is drained or the run stops. If the error wraps ErrMoved, the sample
	// is dropped. After any other error, the run ends. Admit must be safe for concurrent use. Default
	// nil: every attempt can begin.
	Admit func(ctx context.Context, a Attempt) error
	// Journal stores attempts for the next process. Optional.
	Journal Journal

	// Adaptive adjusts the number of samples in flight at each endpoint to the endpoint's capacity.
	// The limit starts at 32 and never exceeds MaxInFlight. See package limit. By default, the
	// limit is always MaxInFlight.
	Adaptive bool

	// Scorer scores finished rollouts. Default nil: no rewards.
	Scorer Scorer
	// Splitter separates the answer from the reasoning for the Scorer. Default nil: the whole text
	// is the answer.
	Splitter Splitter
	// Messages adds the conversation to the samples that the Sink gets (tokenize.Sample.Messages). The
	// Scorer gets it in any case. Default: the samples have no conversation.
	Messages bool
	Sink     Sink
	// TurnsHavePrompts, if not nil, states whether answers carry the prompts of their calls
	// (tokenize.SourceTurns). The server's record can lack these prompts. In that case, a rollout
	// whose answer was lost is collected again. Default nil: answers are assumed to carry prompts
	// until the first received answer shows whether they do.
	TurnsHavePrompts *bool
	// Align configures how calls become rows. Default: fork on divergence, with no limit on the
	// length of a row.
	Align tokenize.AlignConfig
	// Require is the worst grade that a row can have. A sample with a worse row fails with
	// tokenize.ReasonGrade. Default nil: any grade.
	Require *tokenize.Grade

	// Retries bounds the number of retries of one sample after failures of the infrastructure.
	// Failures of an endpoint that is down do not count, and refusals by a busy server count only
	// after BusyMax. Default 0.
	Retries int
	// DataRetries bounds the number of retries of one sample after failures of the policy
	// (Class.DataRetryable). These retries bias the data: see "Two budgets" in the package comment.
	// Default 0.
	DataRetries int
	// BusyMax is how long the server can refuse a sample as busy (429) before refusals count
	// against the sample's Retries. Refusals count earlier if the server repeatedly passes a check
	// (Checker) right after it refused the sample. Default 30m.
	BusyMax time.Duration
	// BackoffMin and BackoffMax bound the wait before a retry. The wait starts at BackoffMin and
	// doubles with each retry, up to BackoffMax. Up to half of the wait is then subtracted at
	// random. Defaults 1s and 30s.
	BackoffMin, BackoffMax time.Duration
	// RetryAfterMax caps the delay that a server can request before a retry. Default 1m.
	RetryAfterMax time.Duration
	// AttemptTimeout bounds the time of one attempt, which can make several sends. The time
	// includes everything from the creation of the agent to the reward, but not the wait for the
	// sink. Default 1h.
	AttemptTimeout time.Duration
	// CloseTimeout bounds the time to remove one agent. If removals time out, later removals get
	// less time until a removal succeeds (removal.go). Default 30s.
	CloseTimeout time.Duration
	// Outage is how long an endpoint can be down before it is given up. An endpoint that has never
	// answered is given up at once. While another endpoint is up, samples move to that endpoint at
	// once. In that case, an endpoint whose Backend is a Pinger and a Checker is not given up, and
	// is used again when it answers. Default 2m.
	Outage time.Duration
	// Tail is the policy for the last samples. Default: the run waits for them.
	Tail Tail
	// MaxFailures ends the run with ErrTolerance if more than MaxFailures samples fail. Default 0:
	// no limit.
	MaxFailures int
	// MaxUnscored ends the run with a *ScorerError if the Scorer failed on more than MaxUnscored
	// samples and scored none. Default 0: no limit.
	MaxUnscored int

	Events Events
	// Logger receives messages about errors that no function returns. Default nil: messages are
	// discarded.
	Logger *slog.Logger
	// Jitter returns a random number in [0, 1) for each wait before a retry. It must be safe for
	// concurrent use. Default nil: rand.Float64.
	Jitter func() float64
}

// An Endpoint is one of the servers that a run uses.
type Endpoint struct {
	Name    string
	Backend Backend
	// MaxInFlight bounds the number of samples in flight, including samples that wait for a retry.
	// Memory use depends on the number of samples in flight, not on the bound. The default is 24,
	// because a Letta server with a default PostgreSQL fails at about 30 concurrent agents.
	MaxInFlight int
	// Weight determines the endpoint's share of new samples while other endpoints have room too. An
	// endpoint with weight 2 gets twice as many samples as an endpoint with weight 1. Weight must
	// be between MinWeight and MaxWeight. Default 1.
	Weight float64
}

// Bounds of Endpoint.Weight.
const (
	MinWeight = 0.001
	MaxWeight = 1000.0
)

// Defaults, for programs that display them.
const (
	DefaultMaxInFlight    = 24 // for Endpoint.MaxInFlight
	DefaultAttemptTimeout = time.Hour
	DefaultBusyMax        = 30 * time.Minute
)

func (c Config) withDefaults() Config {
	c.Endpoints = append([]Endpoint(nil), c.Endpoints...)
	for i := range c.Endpoints {
		or(&c.Endpoints[i].MaxInFlight, DefaultMaxInFlight)
		or(&c.Endpoints[i].Weight, 1)
	}
	or(&c.Samples, 1)
	or(&c.BackoffMin, time.Second)
	or(&c.BackoffMax, max(30*time.Second, c.BackoffMin))
	or(&c.BusyMax, DefaultBusyMax)
	or(&c.RetryAfterMax, time.Minute)
	or(&c.AttemptTimeout, DefaultAttemptTimeout)
	or(&c.CloseTimeout, 30*time.Second)
	or(&c.Outage, 2*time.Minute)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Jitter == nil {
		c.Jitter = rand.Float64
	}
	c.Events = c.Events.withDefaults(c.Logger)
	return c
}

func or[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Validate returns all errors in the configuration, each with the path of the setting.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	bad := func(path, format string, args ...any) {
		errs = append(errs, fmt.Errorf("collector.%s: %s", path, fmt.Sprintf(format, args...)))
	}
	if len(c.Endpoints) == 0 {
		bad("endpoints", "at least one is required")
	}
	names := make(map[string]bool)
	for i, e := range c.Endpoints {
		at := fmt.Sprintf("endpoints[%d]", i)
		switch {
		case e.Name == "":
			bad(at+".name", "must not be empty")
		case names[e.Name]:
			bad(at+".name", "%q: duplicate name", e.Name)
		}
		names[e.Name] = true
		if e.Backend == nil {
			bad(at+".backend", "must not be nil")
		}
		if e.MaxInFlight < 0 {
			bad(at+".max_in_flight", "%d: must be ≥ 1", e.MaxInFlight)
		}
		if !(e.Weight >= MinWeight && e.Weight <= MaxWeight) { // also rejects NaN
			bad(at+".weight", "%v: must be between %v and %v", e.Weight, MinWeight, MaxWeight)
		}
	}
	if c.Sink == nil {
		bad("sink", "must not be nil")
	}
	if c.RetryFailed && c.Left == nil {
		bad("retry_failed", "must be set together with left (the states of earlier samples)")
	}
	for _, n := range []struct {
		path  string
		value int
	}{
		{"samples", c.Samples},
		{"limit", c.Limit},
		{"planned", c.Planned},
		{"filtered", c.Filtered},
		{"waiting", c.Waiting},
		{"retries", c.Retries},
		{"data_retries", c.DataRetries},
		{"max_failures", c.MaxFailures},
		{"max_unscored", c.MaxUnscored},
	} {
		if n.value < 0 {
			bad(n.path, "%d: must not be negative", n.value)
		}
	}
	for _, d := range []struct {
		path  string
		value time.Duration
	}{
		{"backoff_min", c.BackoffMin},
		{"backoff_max", c.BackoffMax},
		{"busy_max", c.BusyMax},
		{"retry_after_max", c.RetryAfterMax},
		{"attempt_timeout", c.AttemptTimeout},
		{"close_timeout", c.CloseTimeout},
		{"outage", c.Outage},
	} {
		if d.value < 0 {
			bad(d.path, "%v: must not be negative", d.value)
		}
	}
	if err := c.Tail.validate(); err != nil {
		bad("tail", "%v", err)
	} else if c.Tail.Kind == TailOversample && c.Planned == 0 {
		bad("tail", "oversample requires planned (the number of samples)")
	}
	if c.BackoffMax < c.BackoffMin {
		bad("backoff_max", "%v: must be at least backoff_min (%v)", c.BackoffMax, c.BackoffMin)
	}
	return errors.Join(errs...)
}
