// Package record holds what is known of one rollout: what the client sent and was
// answered, and what the server keeps of it.
//
//	client      Rollout   agent, system text, conversation, sends
//	server run  Run       its steps and messages
//	step        Trace     what the engine was asked and what it answered
//
// A [Rollout] belongs to one attempt. The backend fills it in while it sends. Others read
// it: package prompt for the prompts of the calls and how each call ended, package agent to
// rebuild a lost answer.
//
// # Fetched once, parsed once
//
// Everything is fetched when it is first asked for and then kept, whoever asks, with the
// exceptions below. A request that failed is not kept: the next one who asks makes it
// again. Asking from several goroutines is safe; those who ask for the same thing wait for
// one request. [Rollout.Requests] counts what was asked for, by source.
//
// Five methods make a request again:
//
//	Rollout.AgentNow            reads agent and system text whenever it is called: whether the
//	                            agent is still what it was before the first send; to be called
//	                            after the last one
//	Rollout.AgentState          reads only the agent, for the same question
//	Rollout.ConversationSystem  reads the conversation whenever it is called
//	Rollout.TraceSoon           asks again for a trace that was not there
//	Run.Forget                  makes the next one who asks read steps and messages again: the
//	                            server had not stored all of them yet
//
// # How long it is there
//
// The server forgets runs, steps and messages when the agent is deleted; only traces
// stay. All reading has to be done before the backend closes the agent.
package record
