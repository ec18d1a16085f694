package agent

import "github.com/rollout-rl/rollout/collector"

// A ServerRunError reports a failed send with the reason from the server run and its last step.
type ServerRunError struct {
	// RunID and StepID identify the server run and the step, if known.
	RunID, StepID string
	// Type is the server's error class, such as HTTPStatusError or ConnectError, or empty.
	Type string
	// Message is the server's error text on one line, at most 300 bytes.
	Message string
	// Engine is the address of a failed or unreachable engine, "address unknown", or empty.
	Engine string
	// Err wraps the *APIError of the send and a sentinel of package collector.
	Err error
}

// Error returns a message with the reason from the server run.
func (e *ServerRunError) Error() string {
	what := e.Type
	if what != "" && e.Message != "" {
		what += ": "
	}
	what += e.Message
	switch {
	case e.Engine == "":
		return "send: the server run failed: " + what
	case isEngineUnreachable(e.Type, e.Message):
		return "send: the server cannot reach its model engine (" + e.Engine + "): " + what
	case engineStatus(e.Message) >= 400 && engineStatus(e.Message) < 500:
		return "send: the model engine (" + e.Engine + ") refused the call (see the engine's log): " + what
	}
	return "send: the server's model engine (" + e.Engine + ") failed: " + what
}

// Unwrap returns Err.
func (e *ServerRunError) Unwrap() error { return e.Err }

// Redacted returns a message without the reason.
func (e *ServerRunError) Redacted() string {
	words := "the server run failed"
	if e.RunID != "" {
		words = "server run " + e.RunID + " failed"
	}
	if of := collector.Redacted(e.Err); of != "" {
		words = of + ", and " + words
	}
	return words
}
