package collector

import (
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

// Config says what a Collector does. The zero value of a field means its default;
// Endpoints and Sink have none.
type Config struct {
	// RunID names this run on the servers. Default: empty.
	RunID string
	// Endpoints are the servers to work on, each with a limit of its own.
	Endpoints []Endpoint

	// Samples is the number of samples of a task that does not say its own. Default 1.
	Samples int
	// Limit ends claiming after so many samples. Default 0: no limit.
	Limit int
	// Planned is the number of samples that the tasks give, where it is known before
	// Run; Limit still applies. Default 0: planned counts what was read so far.
	Planned int
	// Left returns what earlier processes left of a sample. What this run does must not
	// change its answer. It is called from one goroutine. Default nil: nothing was left, and
	// the tasks are read once instead of up to three times.
	Left func(key string) Left
	// Filtered is how many of the samples that Left has as done are in the dataset with
	// keep=false: Stats counts them as Filtered and not as Committed. Default 0.
	Filtered int
	// Waiting is how many of the samples that Left has as done are in no committed shard,
	// because others of their group are missing: Stats counts them as Remaining until
	// CommittedEarlier. Default 0.
	Waiting int
	// More yields tasks that come while the run goes on, after those that Run is given. It
	// may wait between two of them. Its owner must end it soon after ctx has ended, which
	// happens when nothing more is to begin: after Drain, a stop, or enough groups. Run reads
	// it ahead, in a goroutine of its own, so that a deadline is kept also while other tasks
	// are in front; at most 64 MiB of tasks wait. Plan counts those that it has not read.
	// An error is one of the task source. Default nil: nothing comes.
	More func(ctx context.Context) iter.Seq2[*Task, error]
	// Pace decides when the next group may begin. Run tells it which groups begin; its owner
	// tells it which are whole, acknowledged, and what version there is. Default nil: a group
	// begins when there is room.
	Pace *pace.Pacer
	// RetryFailed takes up only the samples that the dataset has as failed, each with a new
	// budget. It needs Left. Default: only samples that the dataset does not have.
	RetryFailed bool
	// Journal keeps attempts for the next process. Default nil: nothing does.
	Journal Journal

	// Adaptive finds out how many samples an endpoint can work on at a time, from 32 up to
	// its MaxInFlight: see package limit. Default: MaxInFlight from the start.
	Adaptive bool

	// Scorer rewards finished rollouts. Default nil: no reward.
	Scorer Scorer
	// Splitter finds the answer in the output of a model that reasons, for the Scorer. Default
	// nil: the whole output is the answer.
	Splitter Splitter
	Sink     Sink
	// TurnsHavePrompts tells, if that is known before Run, whether answers bring the prompts
	// of their calls along (tokenize.SourceTurns). The record that a server keeps may lack
	// them; a rollout that lost its answer is then made again. Default nil: the first answer
	// that is received shows it, and until then answers are taken to bring them.
	TurnsHavePrompts *bool
	// Align configures how calls become rows. Default: fork, and no bound.
	Align tokenize.AlignConfig
	// Require is the worst grade that a row may have. A sample with a worse row fails as a
	// whole, with tokenize.ReasonGrade. Default nil: any.
	Require *tokenize.Grade

	// Retries bounds the attempts after the first that one sample gets for failures of the
	// infrastructure. Failures of an endpoint that is down do not count. A refusal by a busy
	// server counts only after BusyMax. Default 0: none.
	Retries int
	// DataRetries bounds the attempts that one sample gets for failures of the data
	// (Class.DataRetryable), besides Retries. Trying until it goes well shifts the
	// distribution: of the tasks on which the policy often fails, the dataset then has only
	// the good rollouts. The attempt column shows those rows. Default 0: none.
	DataRetries int
	// BusyMax is how long a sample may meet nothing but a busy server (429) before that is
	// held against its retries. The attempts in between wait as after any failure, and at
	// least as long as the server asks. A refusal counts earlier if the server repeatedly has
	// room for a check (Checker) right after it turned the sample away. Default 30m.
	BusyMax time.Duration
	// BackoffMin and BackoffMax bound the wait before a retry: it doubles from one to
	// the other and half of it is random. Defaults 1s and 30s.
	BackoffMin, BackoffMax time.Duration
	// RetryAfterMax caps the wait that a server may ask for. Default 1m.
	RetryAfterMax time.Duration
	// AttemptTimeout bounds an attempt from making the agent to the reward, without the wait
	// for the sink. Default 1h: an attempt may take several sends.
	AttemptTimeout time.Duration
	// CloseTimeout bounds the removal of one agent. Default 30s. If one took that long and
	// none succeeded meanwhile, the next ones get a thirtieth of it, and now and then one a
	// sixth, until one succeeds.
	CloseTimeout time.Duration
	// Outage is how long an endpoint may be down before it is given up. One that never
	// answered is given up at once. If another endpoint is up, the samples move there at
	// once, and an endpoint that can be asked without a sample (Pinger and Checker) is not
	// given up: it takes part again when it is back. Default 2m.
	Outage time.Duration
	// Tail decides what becomes of the last samples. Default: the run waits for them.
	Tail Tail
	// MaxFailures ends the run with ErrTolerance when more samples failed.
	// Default 0: no limit.
	MaxFailures int
	// MaxUnscored ends the run with a *ScorerError when the Scorer failed on more samples
	// than this and scored none. Default 0: no limit.
	MaxUnscored int

	Events Events
	// Logger gets what no return value can carry. Default nil: nothing is logged.
	Logger *slog.Logger
	// Jitter returns a number in [0, 1) for every wait. It is called from many goroutines at
	// once. Default nil: random.
	Jitter func() float64
}

// An Endpoint is one server with a bound on the samples that it works on at a time.
type Endpoint struct {
	// Name tells endpoints apart in events and metrics.
	Name    string
	Backend Backend
	// MaxInFlight bounds the samples in hand, those that wait for a retry included. A high
	// bound costs nothing by itself: memory follows what is in flight. Default 24: a Letta
	// server with a default PostgreSQL fails near 30 agents at a time.
	MaxInFlight int
	// Weight is the share of the fresh samples that the endpoint gets while others have room
	// too: with 2 it gets twice as many as one with 1. Where only one has room, the sample
	// goes there whatever the weights are. From MinWeight to MaxWeight. Default 1.
	Weight float64
	// Answered reports that the server has just answered a call of the model. When it then
	// goes down, it is given up after Config.Outage; one that never answered is given up at
	// once.
	Answered bool
}

// The bounds of Endpoint.Weight.
const (
	MinWeight = 0.001
	MaxWeight = 1000.0
)

// The defaults that a program may want to show.
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
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
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

// Validate returns every complaint about the configuration, with its path.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	bad := func(path, format string, args ...any) {
		errs = append(errs, fmt.Errorf("collector.%s: %s", path, fmt.Sprintf(format, args...)))
	}
	if len(c.Endpoints) == 0 {
		bad("endpoints", "none given: at least one server is needed")
	}
	names := make(map[string]bool)
	for i, e := range c.Endpoints {
		at := fmt.Sprintf("endpoints[%d]", i)
		switch {
		case e.Name == "":
			bad(at+".name", "is empty")
		case names[e.Name]:
			bad(at+".name", "%q: given twice", e.Name)
		}
		names[e.Name] = true
		if e.Backend == nil {
			bad(at+".backend", "is nil")
		}
		if e.MaxInFlight < 0 {
			bad(at+".max_in_flight", "%d: must be ≥ 1", e.MaxInFlight)
		}
		if !(e.Weight >= MinWeight && e.Weight <= MaxWeight) { // nor is it NaN
			bad(at+".weight", "%v: must be from %v to %v", e.Weight, MinWeight, MaxWeight)
		}
	}
	if c.Sink == nil {
		bad("sink", "is nil")
	}
	if c.RetryFailed && c.Left == nil {
		bad("retry_failed", "needs left, which says what has failed")
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
		bad("tail", "oversample needs the number of samples, which is not known")
	}
	if c.BackoffMax < c.BackoffMin {
		bad("backoff_max", "%v: is less than backoff_min %v", c.BackoffMax, c.BackoffMin)
	}
	return errors.Join(errs...)
}
