// Package agent creates, drives and deletes one agent on a Letta server for each attempt at
// a sample. It implements [collector.Backend] with the client of package letta.
//
// # One attempt
//
//	collector        package agent                                  server
//
//	Backend.Open     create the agent, check that it returns turns  POST   /v1/agents/
//	                 fetch its system text                          GET    /v1/messages/ID
//	Agent.Run        for each message of the task:
//	                   send it, wait for the whole answer           POST   /v1/agents/ID/messages
//	                   answer tool calls and approvals with sends
//	Agent.Prompts    pass reply and record to Config.Prompter       GET    steps, messages, traces
//	Agent.Close      free the memory of the replies
//	                 cancel a run that might still be working       POST   …/messages/cancel
//	                 delete the agent                               DELETE /v1/agents/ID
//
// agent.go contains these steps in this order. An agent is used for one attempt, and Close deletes
// it. Other functions also delete agents. deleteUnusable (create.go) deletes unusable agents.
// findAgent (reattach.go) deletes older agents of the sample. Preflight, Try and Check delete their
// own agents. [Clean] deletes the agents of a dead process. If Config.Keep is set, Close does not
// delete the agent of an attempt, and Reattach does not delete older agents.
//
// # When something fails
//
// A send is never repeated, because the server would run the agent twice.
//
//	what happens                   what the package does                          code
//	429, 409 because of a lock     fails the attempt with ErrBusy and the wait    letta: classify.go
//	                               that the server requested; package collector
//	                               retries after this wait
//	400, 500                       reads the reason from the server run: a dead   explain.go
//	                               engine, a full context, a malformed call
//	503, connection refused        fails the attempt with ErrUnavailable or       letta: classify.go
//	                               ErrConnection
//	connection lost, 408, 502,     waits for the server run and rebuilds its      recover.go
//	504, answer stops midway       answer from the record
//	silent for Config.SilentAfter  looks up the server run and reports it to      watch.go
//	                               Progress; if the run has ended, rebuilds the
//	                               answer as above
//	the process died               another process takes over the agent           reattach.go
//	the agent returns no turns     ends the run (letta.NoTurnsError)              agent.go
//
// Errors that leave the package wrap the sentinels of package collector ([Translate]) and
// keep the errors of package letta in their chain.
//
// # Lost answers
//
// A server run continues even if the client disconnects. If the answer was lost because the
// connection or the process ended, await waits for the end of the server run. Then rebuild builds
// the answer from the server's record:
//
//	tokens, log-probabilities      response_json of each step's trace
//	tool results, as packaged      request_json of the trace of the next step
//	text, calls, stored messages   messages of the run
//	stop reason, counts            the run and its steps
//
// The rebuilt answer equals the lost answer. If the record is not sufficient, rebuild returns an
// error that wraps [collector.ErrGone] and states the reason. The reason can be a step without a
// trace (because of a compaction or a NaN), a failed run, contradictory counts, or a server run
// that does not match the task. If only the lost answer contained a prompt, the prompt stays
// unknown.
//
// # Server runs that other programs drove
//
// A [Reader] reads the server runs of tasks whose field Recorded is set. It creates, sends and
// deletes nothing:
//
//	Reader.Open      find the server run                            GET    /v1/runs/ID
//	Agent.Run        read its agent's current state and the record  GET    agents, steps, messages, traces
//	Agent.Prompts    pass reply and record to the Prompter
//	Agent.Close      free the memory
//
// recorded.go implements this. No send follows, so the text of tool results does not have to be
// exact. Calls without a trace are listed in Reply.Missing, and the other calls become rows. A
// failure is final, because the rollout cannot be repeated.
//
// # Ownership of agents
//
// Every agent has three tags, [TagAll], [TagRun] and [TagKey], and its metadata names the attempt.
// [Backend.Reattach] uses the tags and the metadata to find the agent of a dead process. [Clean]
// uses them to find agents that are no longer needed.
//
// # Reading order
//
//   - config.go, overrides.go: the settings
//   - backend.go: the interface that package collector calls
//   - agent.go: one attempt, with create.go, answer.go (client tools and approvals), reply.go
//     and serverruns.go
//   - preflight.go, check.go: the checks of a server before and during a run
//   - explain.go, watch.go, recover.go: failed sends
//   - reattach.go, takeover.go: the work of another process
//   - await.go, serverrecord*.go, rebuild*.go: answers from the record
//   - reader.go, recorded.go: the server runs of other programs
package agent
