package collector

import (
	"context"
	"encoding/json"

	"github.com/rollout-rl/rollout/tokenize"
)

// A Backend makes agents on one server.
type Backend interface {
	// Open makes a fresh agent for the attempt and checks that it will give token data.
	// If it fails it leaves nothing behind on the server, as far as the backend can know.
	Open(ctx context.Context, a Attempt) (Agent, error)
}

// An Agent lives for one attempt. Its methods are called from one goroutine.
type Agent interface {
	// ID returns the server's name of the agent.
	ID() string

	// Run sends the messages of the task, answers what the server asks in between, and
	// fetches everything that must be fetched before Close. It never repeats a send. If
	// some sends were answered before an error came, it returns them with the error.
	//
	// The Reply and everything that it points to is valid until Close returns.
	Run(ctx context.Context) (*Reply, error)

	// Prompts returns one Call per assistant turn of the reply, in order, with the
	// prompt that the model was shown. The calls may point into the Reply. A call whose
	// prompt is not known is Quarantined with its reason. An error means that the whole
	// sample cannot be used (a *tokenize.AlignError with a Reason), or that what the
	// server keeps of it could not be read.
	Prompts(ctx context.Context, r *Reply) ([]tokenize.Call, error)

	// Close removes the agent from the server, unless it is to be kept, and frees the
	// Reply. It is called exactly once, also after a failed Run and when the run is
	// stopping. ctx has its own time limit then.
	Close(ctx context.Context) error
}

// A Reattacher is a Backend that can take over an attempt of an earlier process.
type Reattacher interface {
	// Reattach finds the agent of the attempt, by its tags if left does not name it, and
	// returns it. Run of that Agent waits for what the server still does, takes what is
	// finished from the record that the server keeps, and goes on with the task from there.
	//
	// If nothing can be taken over, Reattach removes what is left on the server, unless agents
	// are to be kept, and returns an error that wraps ErrGone. Run returns one if the record
	// does not give every token.
	Reattach(ctx context.Context, a Attempt, left OpenAttempt) (Agent, error)
}

// A Pinger is a Backend that can find out at once whether its server answers at all. If a
// run has several endpoints, one that does not answer is taken to be down before any attempt
// fails: a connection that hangs would take minutes to fail.
type Pinger interface {
	// Ping asks the server for something that costs nothing.
	Ping(ctx context.Context) error
}

// A Checker is a Backend that can find out whether its server works. Samples that fail
// every time on a server that works, such as a prompt that it cannot take, look like a
// server that is down.
type Checker interface {
	// Check has an agent of the run's kind answer something that nobody keeps. Its error
	// has a Class, as the error of an attempt has.
	Check(ctx context.Context, runID string) error
}

// A Scorer rewards a finished rollout.
type Scorer interface {
	// Score returns the reward. An error leaves the reward null and is written to
	// reward_details; it never fails the sample. A value that is not finite is such an error.
	Score(ctx context.Context, t *Task, r *Reply) (Reward, error)
}

// A Splitter separates the answer of a model from its reasoning.
type Splitter interface {
	// Split sets Output and Reasoning of the reply, whose Text is the whole text. calls are
	// the result of Agent.Prompts. Split must be safe for concurrent use.
	Split(r *Reply, calls []tokenize.Call)
}

// A Reward is a score and, optionally, a JSON object that explains it.
type Reward struct {
	Value   *float64 // nil: not scored
	Details json.RawMessage
}

// A Sink makes samples durable.
type Sink interface {
	// Append takes the whole sample. It blocks to push back. When it returns nil the sample
	// is accepted and its memory belongs to the sink. Then done is called exactly once, from
	// any goroutine: with nil when the sample is in a committed shard, else with the reason
	// why the sink gave up, or keeps the sample for the next process. That ends the run.
	//
	// An error ends the run, unless an error in its chain has a method
	//
	//	Refused() bool
	//
	// that returns true: the sink does not take this one sample because of what is in it.
	// Then the sample fails with ClassInternal, and what is left of it is appended instead.
	Append(ctx context.Context, s *tokenize.Sample, done func(error)) error
}

// A Journal keeps attempts beyond the life of the process. The next process of the same run
// finds by it what is left on the servers, and gives no number to two attempts.
//
// The methods are called from many goroutines. When one returns, the note survives a crash of
// the process; a power cut may take the notes of the last milliseconds. An error ends the run.
type Journal interface {
	// Begin notes that an attempt is about to be made at the endpoint.
	Begin(a Attempt, endpoint string) error
	// Agent notes which agent the attempt made.
	Agent(key string, attempt int, agentID string) error
	// ServerRun notes a run of the server that the attempt started.
	ServerRun(key string, attempt int, runID string) error
	// End notes how the attempt ended: with ClassNone if the sink has the sample. charged
	// reports that it was held against the budget of its class. An attempt that was cut off
	// and whose agent may live has no end.
	End(key string, attempt int, class Class, charged bool) error
}

// Left is what earlier processes left of a sample. Its zero value means that nobody began
// it.
type Left struct {
	// Done reports that the dataset holds the sample. Failed is the class of its failure if
	// the dataset holds only that.
	Done   bool
	Failed Class
	// Attempts is the number of the last attempt that began. Charged is how many were held
	// against the retries, and DataCharged how many against the data retries.
	Attempts, Charged, DataCharged int
	// Open is the last attempt if it has no end.
	Open *OpenAttempt
}

// An OpenAttempt is an attempt whose process died. Its agent may live, and its server run
// may go on.
type OpenAttempt struct {
	N        int
	Endpoint string // where it was made
	// AgentID is empty if the process died before it was known. ServerRuns are the server
	// runs that are known, in order.
	AgentID    string
	ServerRuns []string
}
