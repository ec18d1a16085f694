package collector

import "context"

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
