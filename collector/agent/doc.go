// Package agent creates, drives and deletes one agent on a Letta server for each attempt at
// a sample. It implements [collector.Backend] with the client of package letta.
//
// # One attempt
//
//	collector        package agent                                  server
//
//	Backend.Open     create the agent, check that it gives tokens   POST   /v1/agents/
//	                 read its system text                           GET    /v1/messages/ID
//	Agent.Run        for each message of the task:
//	                   send it, wait for the whole answer           POST   /v1/agents/ID/messages
//	                   answer tools and approvals, send again
//	Agent.Prompts    pass reply and record to Config.Prompter       GET    steps, messages, traces
//	Agent.Close      free the memory of the replies
//	                 cancel a run that might still be working       POST   …/messages/cancel
//	                 delete the agent                               DELETE /v1/agents/ID
//
// agent.go contains these steps in this order. An agent is used for one attempt, and Close deletes
// it. Other code deletes agents too: deleteUnusable (create.go) deletes unusable agents, findAgent
// (reattach.go) older agents of the sample, Preflight, Try and Check their own agents, and [Clean]
// the agents of a dead process. With Config.Keep, neither Close after an attempt nor Reattach
// deletes an agent.
//
// # When something fails
//
// Nothing is ever sent twice: the server would run the agent twice.
//
//	what happens                   what the package does                          code
//	429, 409 of a lock             fails the attempt as ErrBusy with the wait     letta: classify.go
//	                               that the server asked for; package collector
//	                               retries after it
//	400, 500                       reads the reason from the server run: a dead   explain.go
//	                               engine, a full context, a malformed call
//	503, connection refused        fails the attempt as ErrUnavailable or         letta: classify.go
//	                               ErrConnection
//	connection lost, 408, 502,     waits for the server run and rebuilds its      recover.go
//	504, answer stops midway       answer from the record
//	silent for Config.SilentAfter  looks up the server run and reports it to      watch.go
//	                               Progress; if it has ended, as above
//	the process died               another process takes over the agent           reattach.go
//	this agent cannot give tokens  ends the run (letta.NoTurnsError)              agent.go
//
// Errors that leave the package wrap the sentinels of package collector ([Translate]) and
// keep the errors of package letta in their chain.
//
// # Lost answers
//
// A server run continues without a client. If its answer was lost, with the connection or
// with the process, await waits for the end of the run and rebuild makes the answer from the
// server's record:
//
//	tokens, log-probabilities      response_json of each step's trace
//	texts of tools, as packaged    request_json of the trace of the next step
//	texts, calls, stored messages  messages of the run
//	stop reason, counts            the run and its steps
//
// The rebuilt answer equals the lost answer. If that is impossible, rebuild returns an error. The
// error is [collector.ErrGone] with the reason: a step without a trace (a compaction, a NaN), a
// failed run, contradictory counts, or a server run that the task does not explain. Prompts that
// only the lost answer contained stay unknown.
//
// # Server runs that other programs drove
//
// A [Reader] reads the server runs of tasks that are Recorded. It creates, sends and deletes
// nothing:
//
//	Reader.Open      find the server run                            GET    /v1/runs/ID
//	Agent.Run        read its agent as it is today, and the record  GET    agents, steps, messages, traces
//	Agent.Prompts    pass reply and record to the Prompter
//	Agent.Close      free the memory
//
// recorded.go implements this. Unlike after rebuild, no send follows, so the texts of tools need
// not be exact. It lists a call without a trace in Reply.Missing, and the other calls make rows. A
// failure is final, because the rollout cannot be repeated.
//
// # Ownership of agents
//
// Every agent has three tags, [TagAll], [TagRun] and [TagKey], and its metadata names the
// attempt. [Backend.Reattach] uses them to find the agent of a dead process, and [Clean] to
// find agents that are no longer needed.
//
// # Reading order
//
//   - config.go, overrides.go: the settings
//   - backend.go: the interface that package collector calls
//   - agent.go: one attempt, with create.go, answer.go (client tools and approvals), reply.go
//     and serverruns.go
//   - preflight.go, check.go: whether a server can be used
//   - explain.go, watch.go, recover.go: failed sends
//   - reattach.go, takeover.go: the work of another process
//   - await.go, serverrecord*.go, rebuild*.go: answers from the record
//   - reader.go, recorded.go: the server runs of other programs
package agent
