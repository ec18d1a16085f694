// Package agent makes, drives and removes one agent on a Letta server for each attempt at
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
//	Agent.Prompts    give reply and record to Config.Prompter       GET    steps, messages, traces
//	Agent.Close      free the memory of the replies
//	                 stop a run that may still be working           POST   …/messages/cancel
//	                 delete the agent                               DELETE /v1/agents/ID
//
// agent.go has this, in this order; creating is in create.go, answering tools and approvals
// in answer.go. An agent is used for one attempt, and then Close deletes it. Others delete
// agents too: abandon one that cannot be used (create.go), findAgent older ones of the
// sample (reattach.go), Preflight, Try and Check their own, and [Clean] those that a dead
// process left. With Config.Keep neither Close after an attempt nor Reattach deletes any.
//
// # When something fails
//
// Nothing is ever sent twice: the server would run the agent twice.
//
//	what happens                   what is done                                   where
//	429, 409 of a lock             the attempt fails as ErrBusy with the wait     letta: classify.go
//	                               that the server asked for; package collector
//	                               makes another attempt after it
//	400, 500                       the server run says why: a dead engine, a      explain.go
//	                               full context, a call that cannot be read
//	503, connection refused        the attempt fails as ErrUnavailable or         letta: classify.go
//	                               ErrConnection
//	connection lost, 408, 502,     the server run is waited for, and its answer   recover.go
//	504, answer stops coming       is rebuilt from the record
//	silent for Config.SilentAfter  the server run is looked up and told to        watch.go
//	                               Progress; where it is over, as above
//	the process died               another process takes the agent over           reattach.go
//	this agent cannot give tokens  the run ends (letta.NoTurnsError)              agent.go
//
// Errors that leave the package wrap the sentinels of package collector ([Translate]);
// those of package letta stay in their chain.
//
// # Answers that were not read
//
// A server run continues without anybody who waits for it. Where its answer was lost, with
// the connection or with the process, await waits for the end of the run, and rebuild makes
// the answer from what the server keeps:
//
//	tokens, log-probabilities      response_json of each step's trace
//	texts of tools, as packaged    request_json of the trace of the next step
//	texts, calls, stored messages  messages of the run
//	stop reason, counts            the run and its steps
//
// The rebuilt answer equals the lost one, or there is none: a step without a trace (a
// compaction, a NaN), a failed run and counts that contradict each other are
// [collector.ErrGone] with the reason. So is a server run that the task does not account for.
// Prompts that only the lost answer held stay unknown.
//
// # Server runs that other programs drove
//
// A [Reader] reads those of tasks that are Recorded. Nothing is made, sent or deleted:
//
//	Reader.Open      find the server run                            GET    /v1/runs/ID
//	Agent.Run        read its agent as it is today, and the record  GET    agents, steps, messages, traces
//	Agent.Prompts    give reply and record to the Prompter
//	Agent.Close      free the memory
//
// recorded.go is this way. It differs from rebuild, which makes the answer to a send of this
// program: there is nothing to send next, so the texts of tools need not be exact; a call
// without a trace is left out and named, and the others make rows; and what the record does
// not give is final, because nobody can make the rollout again.
//
// # Whose agent is it
//
// Every agent has three tags, [TagAll], [TagRun] and [TagKey], and its metadata names the
// attempt. By them [Backend.Reattach] finds the agent of a dead process, and [Clean] those
// that nobody needs any more.
//
// # Reading order
//
// config.go and overrides.go say what can be chosen; backend.go is what package collector
// calls; agent.go is one attempt, with create.go, answer.go (client tools and approvals),
// reply.go and serverruns.go beside it; preflight.go and check.go ask whether a server can
// be used. explain.go, watch.go and recover.go are about sends that fail; reattach.go and
// takeover.go about the work of another process; await.go, kept*.go and rebuild*.go about
// answers from the record; reader.go and recorded.go about the server runs of others.
package agent
