package collector

import (
	"context"
	"encoding/json"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// A Backend makes agents on one server.
type Backend interface {
	// Open makes a fresh agent for the attempt and checks that it will give token
	// data. When it fails, nothing is left behind on the server as far as the
	// backend can know.
	Open(ctx context.Context, a Attempt) (Agent, error)
}

// An Agent lives for one attempt. Its methods are called from one goroutine.
type Agent interface {
	// ID is the server's name of the agent.
	ID() string

	// Run sends the task's messages, answers what the server asks in between, and
	// fetches all evidence that must be had before Close. No send is ever
	// repeated. Where some sends were answered before an error came, it returns
	// them together with the error.
	//
	// The Reply and everything it points to is valid until Close returns.
	Run(ctx context.Context) (*Reply, error)

	// Close removes the agent from the server, unless it is to be kept, and frees
	// the Reply. It is called exactly once, also after a failed Run and also when
	// the run is stopping: ctx is then a fresh one with its own time limit.
	Close(ctx context.Context) error
}

// A Prompter finds the prompt of every call of a reply. The calls may point into
// the Reply and into memory of their own.
type Prompter interface {
	// Prompts returns one Call per assistant turn, in order. A call whose prompt
	// cannot be had is Quarantined with its reason; an error means that the whole
	// sample is (a *tokenize.AlignError with a Reason), or that fetching failed.
	Prompts(ctx context.Context, r *Reply) ([]tokenize.Call, error)
}

// A Scorer rewards a finished rollout.
type Scorer interface {
	// Score returns the reward; an error leaves the reward null and is written to
	// reward_details, and never fails the sample.
	Score(ctx context.Context, t *Task, r *Reply) (Reward, error)
}

// A Reward is a score and, optionally, a JSON object that explains it.
type Reward struct {
	Value   *float64 // nil: not scored
	Details json.RawMessage
}

// A Sink makes samples durable.
type Sink interface {
	// Append takes the sample as a whole. It blocks to push back. When it returns
	// nil the sample is accepted and its memory belongs to the sink; done is called
	// exactly once, from any goroutine, when the sample is in a committed shard
	// (nil) or when the sink gave up on it.
	//
	// An error ends the run, unless its chain says by a method
	//
	//	Refused() bool
	//
	// that the sink does not take this one sample because of what is in it. Then the
	// sample fails with ClassInternal, and what is left of it is appended instead.
	Append(ctx context.Context, s *tokenize.Sample, done func(error)) error
}

// A Reply is all that one attempt's agent answered.
type Reply struct {
	// AgentID names the agent; Model is the handle that it was made with.
	AgentID, Model string
	// ServerVersion is what the server calls itself, or empty.
	ServerVersion string

	// Sends holds one entry per request that was answered with 200, in order.
	Sends []Send

	// FirstAnswer is how long the first send took until the server answered it; 0
	// where that is not known.
	FirstAnswer time.Duration

	// Sampling says what the engine really used where the server's version lets
	// us know, else nil fields.
	Sampling tokenize.Sampling

	// Output is the text of the last assistant message, for scorers.
	Output string
	// Messages is the conversation as JSON, or nil when not asked for.
	Messages json.RawMessage

	// Evidence belongs to the backend; a Prompter that knows the backend reads it.
	Evidence any
}

// A Send is the answer to one request.
type Send struct {
	// Turns as the server sent them; nil where it sent none.
	Turns []tokenize.Turn
	// RunID is the server run; empty where the answer names none.
	RunID string
	// StopReason is the server's own word.
	StopReason string
	Usage      Usage
	// ClientTools says that the request held a tool result which the client made, so
	// that the contexts of this send and of all later ones do.
	ClientTools bool
	// FromRecord says that the answer was not received: its turns are taken from the
	// server's memory of the run.
	FromRecord bool
	// Lost is what cost this process the answer of a recalled send; nil: an earlier
	// process sent it.
	Lost error
	// Duration is how long the server took, by its own clock where the answer was not
	// received; 0 where that is not known.
	Duration time.Duration
}

// Usage holds the server's counts for one send, summed over its steps.
type Usage struct {
	PromptTokens, CompletionTokens int64
	Steps                          int32
}
