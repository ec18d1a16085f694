package collector

import (
	"context"
	"encoding/json"

	"github.com/rollout-rl/rollout/tokenize"
)

// A Backend creates agents on one server.
type Backend interface {
	// Open creates an agent and checks that the agent will return token data. If Open fails, it
	// leaves no agent on the server, as far as the backend can determine.
	Open(ctx context.Context, a Attempt) (Agent, error)
}

// An Agent exists for one attempt. Its methods are called from one goroutine.
type Agent interface {
	// ID returns the agent's id on the server.
	ID() string

	// Run sends the messages of the task. It also answers the server's requests for tool results
	// and approvals. It fetches all data that Close deletes. It never repeats a send. If an error
	// occurs after some sends were answered, Run returns a Reply with these sends and the error.
	// The Reply and all data that it points to are valid until Close returns.
	Run(ctx context.Context) (*Reply, error)

	// Prompts returns one Call per assistant turn, in order, with the prompt that the model saw.
	// The Calls can share memory with the Reply. A call with an unknown prompt has the grade
	// Quarantined and a reason. An error means that the sample cannot be used (a
	// *tokenize.AlignError with a Reason), or that the server's record could not be read.
	Prompts(ctx context.Context, r *Reply) ([]tokenize.Call, error)

	// Close removes the agent from the server, unless it must be kept, and frees the Reply. It is
	// called exactly once, even after a failed Run or during a stop, with its own time limit.
	Close(ctx context.Context) error
}

// A Reattacher is a Backend that can take over an attempt of an earlier process.
type Reattacher interface {
	// Reattach finds the agent of the attempt. If the OpenAttempt lacks the agent's id, Reattach
	// searches for the agent by its tags. The Run method of the returned Agent waits until the
	// server has finished, reads the finished work from the server's record, and continues the task
	// from there.
	//
	// If nothing can be taken over, Reattach removes the remaining agents from the server, unless
	// agents must be kept, and returns an error that wraps ErrGone. The Run method of the Agent
	// also returns an error that wraps ErrGone if the record lacks tokens.
	Reattach(ctx context.Context, a Attempt, left OpenAttempt) (Agent, error)
}

// A Pinger is a Backend that can check quickly whether its server answers at all. If a run has
// several endpoints, a server that does not answer pings counts as down before any attempt fails.
// Without pings, it would take minutes to detect such a server, because connections that hang fail
// only after a timeout.
type Pinger interface {
	// Ping sends a request that costs the server almost nothing.
	Ping(ctx context.Context) error
}

// A Checker is a Backend that can check whether its server works. Some samples fail every time, for
// example because of their prompt. Without a check, such samples make a working server count as
// down.
type Checker interface {
	// Check creates an agent with the run's settings and has the agent answer a test message. Check
	// returns an error that Classify can classify.
	Check(ctx context.Context, runID string) error
}

// A Scorer scores finished rollouts.
type Scorer interface {
	// Score returns the reward. If Score returns an error or a value that is not finite, the reward
	// is null, and reward_details contains the error and the returned details; see [Settle]. The
	// sample does not fail.
	Score(ctx context.Context, t *Task, r *Reply) (Reward, error)
}

// A Splitter separates a model's answer from its reasoning.
type Splitter interface {
	// Split splits r.Text into r.Output and r.Reasoning. The parameter calls is the result of
	// Agent.Prompts. Split must be safe for concurrent use.
	Split(r *Reply, calls []tokenize.Call)
}

// A Reward is a score and, optionally, a JSON object that explains it.
type Reward struct {
	Value   *float64 // nil: not scored
	Details json.RawMessage
}

// A Sink makes samples durable.
type Sink interface {
	// Append blocks while the sink cannot accept more samples. If Append returns nil, the sink owns
	// the sample and later calls done exactly once, from any goroutine. The argument of done is nil
	// if the sample is in a committed shard. Otherwise the argument is the reason why the sink
	// failed or left the sample to the next process, and the run ends. If the reason wraps ErrMoved, the
	// run only drops the sample.
	//
	// If the error wraps ErrMoved, the run drops the sample. Any other error ends the run, unless an
	// error in its chain has a method
	//
	//	Refused() bool
	//
	// that returns true. Such an error means that the sink refuses this sample because of its
	// content. The sample then fails with ClassInternal, and its remaining tokens are appended as a
	// failure.
	Append(ctx context.Context, s *tokenize.Sample, done func(error)) error
}

// A Journal stores attempts beyond the lifetime of the process. The next process of the run uses it
// to find agents that are left on the servers, and to avoid reusing attempt numbers.
//
// Its methods must be safe for concurrent use. Once a method has returned, its entry survives a
// crash of the process. A power failure can lose the entries of the last milliseconds. An error ends
// the run.
type Journal interface {
	// Begin records that an attempt is about to start at the endpoint.
	Begin(a Attempt, endpoint string) error
	// Agent records the agent of the attempt.
	Agent(key string, attempt int, agentID string) error
	// ServerRun records a server run that the attempt started.
	ServerRun(key string, attempt int, runID string) error
	// End records how the attempt ended. ClassNone means that the sink has the sample. The
	// parameter charged is true if the attempt used up a retry. After a stop, End is not called if
	// the agent might still exist.
	End(key string, attempt int, class Class, charged bool) error
}

// A SampleState is the state in which earlier processes left a sample. The zero value means that no
// process has begun the sample.
type SampleState struct {
	// Done is true if the dataset has the sample. If the dataset has only a failure row of the
	// sample, Failed is the class of that failure.
	Done   bool
	Failed Class
	// Attempts is the number of the last attempt that began. Charged and DataCharged count the
	// attempts charged to Config.Retries and Config.DataRetries.
	Attempts, Charged, DataCharged int
	// Open is the last attempt if it has no End, otherwise nil.
	Open *OpenAttempt
}

// An OpenAttempt is an attempt that a dead process left open. Its agent and its server runs can
// still be active.
type OpenAttempt struct {
	N        int
	Endpoint string // name of the endpoint at which the attempt was made
	// AgentID is empty if the journal does not contain it. ServerRuns contains the known server
	// runs, in order.
	AgentID    string
	ServerRuns []string
}
