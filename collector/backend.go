package collector

import (
	"context"
	"encoding/json"

	"github.com/rollout-rl/rollout/tokenize"
)

// A Backend makes agents on one server.
type Backend interface {
	// Open makes a fresh agent and checks that it will return token data. If Open fails, it leaves
	// nothing on the server, as far as the backend can know.
	Open(ctx context.Context, a Attempt) (Agent, error)
}

// An Agent lives for one attempt. Its methods are called from one goroutine.
type Agent interface {
	// ID returns the server's id of the agent.
	ID() string

	// Run sends the messages of the task, answers requests of the server in between, and fetches
	// all data that Close deletes. It never repeats a send. If some sends were answered before an
	// error, it returns them with the error. The Reply and all data that it points to are valid
	// until Close returns.
	Run(ctx context.Context) (*Reply, error)

	// Prompts returns one Call per assistant turn, in order, with the prompt that the model saw.
	// Calls can point into the Reply. A call with an unknown prompt is Quarantined with its reason.
	// An error means that the sample cannot be used (a *tokenize.AlignError with a Reason), or that
	// the server's record could not be read.
	Prompts(ctx context.Context, r *Reply) ([]tokenize.Call, error)

	// Close removes the agent from the server, unless it must be kept, and frees the Reply. It is
	// called exactly once, even after a failed Run or during a stop, with a time limit of its own.
	Close(ctx context.Context) error
}

// A Reattacher is a Backend that can take over an attempt of an earlier process.
type Reattacher interface {
	// Reattach finds the agent of the attempt, by its tags if left does not name it. Run of that
	// Agent waits until the server has finished, takes finished work from the server's record, and
	// continues the task from there.
	//
	// If nothing can be taken over, Reattach removes the remaining agents from the server, unless
	// agents must be kept, and returns an error that wraps ErrGone. Run returns such an error if
	// the record lacks tokens.
	Reattach(ctx context.Context, a Attempt, left OpenAttempt) (Agent, error)
}

// A Pinger is a Backend that can check quickly whether its server answers at all. With several
// endpoints, a silent server then counts as down before any attempt fails: a hanging connection
// would take minutes to fail.
type Pinger interface {
	// Ping sends a request that costs nothing.
	Ping(ctx context.Context) error
}

// A Checker is a Backend that can check whether its server works. Without a check, samples that
// fail every time, for example because of their prompt, make a working server look down.
type Checker interface {
	// Check makes an agent with the run's settings answer a test message. Its error has a Class.
	Check(ctx context.Context, runID string) error
}

// A Scorer rewards a finished rollout.
type Scorer interface {
	// Score returns the reward. An error, or a value that is not finite, leaves the reward null and
	// is written to reward_details. It never fails the sample.
	Score(ctx context.Context, t *Task, r *Reply) (Reward, error)
}

// A Splitter separates the answer of a model from its reasoning.
type Splitter interface {
	// Split sets Output and Reasoning of the reply from Text. calls are the result of
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
	// Append blocks for backpressure. When it returns nil, the sink owns the sample. It then calls
	// done exactly once, from any goroutine. The argument is nil when the sample is in a committed
	// shard. Otherwise it is the reason why the sink failed or leaves the sample to the next
	// process, and the run ends.
	//
	// An error ends the run, unless an error in its chain has a method
	//
	//	Refused() bool
	//
	// that returns true: the sink refuses this sample because of its content. The sample then fails
	// with ClassInternal, and its remaining tokens are appended instead.
	Append(ctx context.Context, s *tokenize.Sample, done func(error)) error
}

// A Journal stores attempts beyond the life of the process. The next process of the run uses it to
// find agents that are left on the servers, and to reuse no attempt number.
//
// Its methods must be safe for concurrent use. When one returns, its entry survives a crash of the
// process; a power cut can lose the entries of the last milliseconds. An error ends the run.
type Journal interface {
	// Begin records that an attempt is about to start at the endpoint.
	Begin(a Attempt, endpoint string) error
	// Agent records the agent of the attempt.
	Agent(key string, attempt int, agentID string) error
	// ServerRun records a server run that the attempt started.
	ServerRun(key string, attempt int, runID string) error
	// End records how the attempt ended: ClassNone means that the sink has the sample. charged
	// reports whether the attempt used up a retry. There is no End if the agent can still exist
	// after a stop.
	End(key string, attempt int, class Class, charged bool) error
}

// A SampleState is the state in which earlier processes left a sample. The zero value means that no
// process began it.
type SampleState struct {
	// Done reports that the dataset has the sample. Failed is its class if only a failure row
	// exists.
	Done   bool
	Failed Class
	// Attempts is the number of the last attempt that began. Charged and DataCharged count the
	// attempts charged to Config.Retries and Config.DataRetries.
	Attempts, Charged, DataCharged int
	// Open is the last attempt if it has no End.
	Open *OpenAttempt
}

// An OpenAttempt is an attempt of a dead process. Its agent and its server run can still be active.
type OpenAttempt struct {
	N        int
	Endpoint string // where the attempt was made
	// AgentID is empty if the journal does not have it. ServerRuns has the known server runs, in
	// order.
	AgentID    string
	ServerRuns []string
}
