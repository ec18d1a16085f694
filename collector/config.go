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

// Config configures a Collector. A zero field means its default. Endpoints and Sink are required.
type Config struct {
	// RunID names this run on the servers. Default: empty.
	RunID     string
	Endpoints []Endpoint

	// Samples is the number of samples of a task that does not set its own. Default 1.
	Samples int
	// Limit bounds the number of samples that are claimed. Default 0: no limit.
	Limit int
	// Planned is the number of samples of the tasks, before Limit. Default 0: the samples read so
	// far.
	Planned int
	// Left returns the state in which earlier processes left a sample. Its answers must not depend
	// on this run. It is called from one goroutine. Default nil: nothing was left.
	Left func(key string) SampleState
	// Filtered is the number of samples that Left reports as done and that have keep=false in the
	// dataset: Stats counts them as Filtered and not as Committed.
	Filtered int
	// Waiting is the number of samples that Left reports as done but no shard holds, because other
	// samples of their group are missing. Stats counts them as Remaining until CommittedEarlier.
	Waiting int
	// More yields tasks that arrive during the run, after the tasks passed to Run. It can block.
	// The caller must end it soon after ctx ends: after Drain, a stop, or enough groups. Run reads
	// up to 64 MiB of tasks ahead in a separate goroutine, so that it can cut samples at their
	// deadlines. Plan includes tasks that are not read yet. An error counts as an error of the task
	// source. Default nil: no more tasks.
	More func(ctx context.Context) iter.Seq2[*Task, error]
	// Pace decides when the next group can begin. Run reports to it which groups begin. The caller
	// reports which groups are whole or acknowledged, and the version. Default nil: no pacing.
	Pace *pace.Pacer
	// RetryFailed claims only the samples that Left reports as failed, each with a new budget.
	// Default: only samples that the dataset does not have.
	RetryFailed bool
	// Journal stores attempts for the next process. Optional.
	Journal Journal

	// Adaptive adapts the samples in flight at an endpoint to its capacity, from 32 up to
	// MaxInFlight: see package limit. Default: MaxInFlight from the start.
	Adaptive bool

	// Scorer rewards finished rollouts. Default nil: no reward.
	Scorer Scorer
	// Splitter separates the answer from the reasoning for the Scorer. Default nil: no reasoning.
	Splitter Splitter
	Sink     Sink
	// TurnsHavePrompts reports whether answers carry the prompts of their calls
	// (tokenize.SourceTurns). The server's record can lack them; a rollout that lost its answer is
	// then made again. Default nil: assumed until the first received answer shows it.
	TurnsHavePrompts *bool
	// Align configures how calls become rows. Default: fork, and no bound.
	Align tokenize.AlignConfig
	// Require is the worst allowed grade of a row. A sample with a worse row fails with
	// tokenize.ReasonGrade. Default nil: any.
	Require *tokenize.Grade

	// Retries bounds the retries of one sample after failures of the infrastructure. Failures of an
	// endpoint that is down do not count, and refusals by a busy server count only after BusyMax.
	// Default 0.
	Retries int
	// DataRetries bounds the retries of one sample after failures of the data
	// (Class.DataRetryable). They bias the data: see "Two budgets" in the package comment. Default
	// 0.
	DataRetries int
	// BusyMax is how long the server can refuse a sample as busy (429) before that counts against
	// its retries. A refusal counts earlier if the server repeatedly passes a check (Checker) right
	// after it refused the sample. Default 30m.
	BusyMax time.Duration
	// BackoffMin and BackoffMax bound the wait before a retry: it doubles from one to the other,
	// and half of it is random. Defaults 1s and 30s.
	BackoffMin, BackoffMax time.Duration
	// RetryAfterMax caps the wait that a server can ask for. Default 1m.
	RetryAfterMax time.Duration
	// AttemptTimeout bounds an attempt, which can make several sends, from making the agent to the
	// reward. The wait for the sink is not included. Default 1h.
	AttemptTimeout time.Duration
	// CloseTimeout bounds the removal of one agent. If removals time out, later removals get less
	// time until a removal succeeds (removal.go). Default 30s.
	CloseTimeout time.Duration
	// Outage is how long an endpoint can be down before it is given up. An endpoint that never
	// answered is given up at once. If another endpoint is up, the samples move there at once, and
	// an endpoint with Pinger and Checker is used again when it answers. Default 2m.
	Outage time.Duration
	// Tail is the policy for the last samples. Default: the run waits for them.
	Tail Tail
	// MaxFailures ends the run with ErrTolerance if more samples than this fail. Default 0: no
	// limit.
	MaxFailures int
	// MaxUnscored ends the run with a *ScorerError if the Scorer failed on more than MaxUnscored
	// samples and scored none. Default 0: no limit.
	MaxUnscored int

	Events Events
	// Logger gets messages that no return value can carry. Default nil: none.
	Logger *slog.Logger
	// Jitter returns a number in [0, 1) for every wait. It must be safe for concurrent use. Default
	// nil: random.
	Jitter func() float64
}

// An Endpoint is one server of the run.
type Endpoint struct {
	Name    string
	Backend Backend
	// MaxInFlight bounds the samples in flight, including samples that wait for a retry. Memory
	// follows the samples in flight, not the bound. Default 24: a Letta server with a default
	// PostgreSQL fails near 30 agents at a time.
	MaxInFlight int
	// Weight is the endpoint's share of new samples while others have room too: with 2 it gets
	// twice as many as an endpoint with 1. From MinWeight to MaxWeight. Default 1.
	Weight float64
}

// Bounds of Endpoint.Weight.
const (
	MinWeight = 0.001
	MaxWeight = 1000.0
)

// Defaults for programs that show them.
const (
	DefaultMaxInFlight    = 24 // of Endpoint
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

// Validate returns every error in the configuration, with its path.
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
		bad("retry_failed", "requires left, which lists the failed samples")
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
		bad("tail", "oversample requires planned, the number of samples")
	}
	if c.BackoffMax < c.BackoffMin {
		bad("backoff_max", "%v: must be at least backoff_min (%v)", c.BackoffMax, c.BackoffMin)
	}
	return errors.Join(errs...)
}
