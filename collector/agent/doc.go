// Package agent makes, drives and removes one agent on a Letta server per attempt. It
// implements collector.Backend on package letta.
//
// # Answers that were not read
//
// A run goes on without anybody who waits for it. Where the connection is lost, the
// answer never comes, or the process dies and another one calls Backend.Reattach, the
// run is looked up and waited for, and its answer is made from what the server keeps:
//
//	tokens, log-probabilities      response_json of each step's trace
//	texts of tools, as packaged    request_json of the trace of the next step
//	texts, calls, stored messages  messages of the run
//	stop reason, counts            the run and its steps
//
// It equals the answer, or is not made: a step without a trace (a compaction, a NaN), a
// failed run, counts that contradict each other are collector.ErrGone, with the reason.
// So is whatever the server did beyond what the task asked for. Close cancels a run
// that was not waited for to its end, and deletes the agent.
//
// # Errors
//
// A send that ends in a 500 is looked up in the server run first and becomes a
// *ServerRunError where that knows more.
//
// # Reading order
//
// backend.go opens an agent; agent.go, answer.go and explain.go are one attempt;
// recover.go, reattach.go, takeover.go, await.go and memory*.go one whose answer was not
// read; tags.go finds the agents of a run again.
package agent
