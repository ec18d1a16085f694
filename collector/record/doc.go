// Package record holds what is known of one rollout: what the client sent and was
// answered, and what the server keeps of it.
//
//	client      Rollout   agent, system text, conversation, sends
//	server run  Run       its steps and messages
//	step        Trace     what the engine was asked and what it answered
//
// A [Rollout] belongs to one attempt. The backend fills it in while it sends; whoever
// wants to know more asks it: the prompts of the calls (package prompt), how a call
// ended, what became of an answer that was lost.
//
// # Fetched once, parsed once
//
// Everything is fetched when it is first asked for and then kept, so that no request is
// made twice, whoever asks. A request that failed is not kept: the next one who asks
// makes it again. Asking from several goroutines is safe; those who ask for the same
// thing wait for one request. [Rollout.Requests] counts what was asked for, by source.
//
// Two methods read anew. [Rollout.AgentNow] shows whether the agent is still what it was
// before the first send, and is to be called after the last one. [Rollout.TraceSoon] asks
// again for a trace that was not there.
//
// # How long it is there
//
// The server forgets runs, steps and messages when the agent is deleted; only traces
// stay. All reading has to be done before the backend closes the agent.
package record
