package collector

import (
	"context"
	"encoding/json"

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

	// Prompts returns one Call per assistant turn of the reply, in order, with the
	// prompt that the model was shown. The calls may point into the Reply. A call whose
	// prompt is not known is Quarantined with its reason. An error means that the whole
	// sample cannot be used (a *tokenize.AlignError with a Reason), or that what the
	// server keeps of it could not be read.
	Prompts(ctx context.Context, r *Reply) ([]tokenize.Call, error)

	// Close removes the agent from the server, unless it is to be kept, and frees
	// the Reply. It is called exactly once, also after a failed Run and also when
	// the run is stopping: ctx is then a fresh one with its own time limit.
	Close(ctx context.Context) error
}

// A Reattacher is a Backend that can take over an attempt of an earlier process.
type Reattacher interface {
	// Reattach finds the agent of the attempt, by its tags where left does not
	// name it, and returns it. Run of that Agent waits for what the server still
	// does, takes what it finished from the server's own memory of it, and goes on
	// with the task from there. Where nothing can be taken over it removes what is
	// left on the server and returns an error that wraps ErrGone; so does Run,
	// where what the server remembers does not give every token.
	Reattach(ctx context.Context, a Attempt, left OpenAttempt) (Agent, error)
}

// A Pinger is a Backend that can say at once whether its server answers at all. Where
// there are several endpoints, one that does not answer is taken to be down although no
// attempt has failed yet: connections that hang, and servers that accept and never
// answer, would take minutes.
type Pinger interface {
	// Ping asks for something that costs the server nothing.
	Ping(ctx context.Context) error
}

// A Checker is a Backend that can say whether its server works at all. Samples that
// fail for ever on a server that works, such as a prompt that it cannot take, look like
// a server that is down when nothing else is left to do.
type Checker interface {
	// Check has an agent of the run's kind answer something that nobody keeps. An
	// error is classified as that of an attempt is.
	Check(ctx context.Context, runID string) error
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

// A Journal remembers attempts beyond the life of the process, so that the next
// one on the same run finds what was left on the servers and gives no two attempts
// one number. Its methods are called from many goroutines. Each returns once the
// note outlives the process; that it outlives the machine may take some
// milliseconds more. An error ends the run.
type Journal interface {
	// Begin notes that the attempt is about to be made at the endpoint.
	Begin(a Attempt, endpoint string) error
	// Agent notes which agent the attempt made.
	Agent(key string, attempt int, agentID string) error
	// ServerRun notes a run of the server that the attempt started.
	ServerRun(key string, attempt int, runID string) error
	// End notes how the attempt ended: ClassNone where the sink has the sample.
	// charged says that it was held against the budget of its class. An attempt that
	// was cut off and whose agent may live has no end.
	End(key string, attempt int, class Class, charged bool) error
}

// Left is what earlier processes left of a sample. Its zero value is a sample that
// nobody began.
type Left struct {
	// Done says that the dataset holds the sample; Failed is the class of its
	// failure where the dataset holds only that.
	Done   bool
	Failed Class
	// Attempts is the number of the last attempt that was begun, Charged how many
	// were held against the retries, and Rerolled how many against the data retries.
	Attempts, Charged, Rerolled int
	// Open is the last attempt where it has no outcome.
	Open *OpenAttempt
}

// An OpenAttempt is one whose process died. Its agent may live, and its server
// run may go on.
type OpenAttempt struct {
	N        int
	Endpoint string // where it was made
	// AgentID is empty where the process died before it was known. ServerRuns are
	// those that are known, in order.
	AgentID    string
	ServerRuns []string
}
