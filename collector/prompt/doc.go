// Package prompt finds the prompt of every call of a reply: what the model was
// shown before it sampled. It is the only package that may know both the
// server's messages and a model's chat template.
//
// # Why there is something to find
//
// turns holds what was sampled and the texts of tools. It holds no prompts, and
// the server renders the whole conversation anew for each call: it deletes text
// before tool calls, prints calls anew, joins parallel results. The prompt of a
// call is therefore in general not the one before, plus its output, plus the
// tool's text. A prompt is known from a source that can prove it, or not at all.
//
// # The ladder
//
// The sources form a ladder, best first. Each rung sees the calls that no rung
// above could give a prompt to, and fills in those that it can prove:
//
//	turns    input_ids on the assistant turn itself        exact
//	stored   rebuilt from what the server stored           count_verified
//	trace    rebuilt from the provider trace of a step     count_verified
//
// Rebuilding needs the model's own chat template and tokenizer (Config.Model);
// without them there is only turns. What no rung knows stays quarantined: its
// tokens are kept, in failures/, and are never trained on. A rung never replaces
// what one above it has found.
//
// One source stands beside the ladder, because it claims nothing: literal glues
// the sampled ids and the tokenized texts of tools together as they are, with no
// prompt. It is graded unverified and is used only where Config.Force says so.
//
// # The two recipes
//
// Both give the messages and tools as the server's native adapter gave them to the
// chat template; the template and the tokenizer do the rest.
//
// stored replays the agent's life: the system message as it was read right after
// the agent was made, the client's own requests, the turns, and the calls as the
// server stored them (those, not the text that the model wrote, are printed
// again). The tools are AgentState's, then the client's.
//
// The order of AgentState's tools is no property of the agent: the server reads them
// without one (orm/agent.py:136), so that it changes whenever the database plans its
// query anew, between two requests and between the agent and its first request.
// Another order has the same length. Of an agent with several tools the order is
// therefore taken, per send, from the trace of one of its calls; where there is none
// the agent is read again, and where it then has another order than at first, stored
// gives nothing.
//
// trace takes the OpenAI-style body that the server kept and never sent, and undoes
// its few, known differences. A trace counts only where the output_ids of its
// answer equal those of the turn. That of a send's last call holds the messages of
// the earlier calls too, and is tried first, cut before each assistant message;
// then the call's own. Whatever trace was fetched for a call also gives its finish
// reason and, where the engine numbers its weights, its version.
//
// # What a count proves
//
// Every rebuilt prompt must have the length that the server counted for its step
// (prompt_tokens), and every turn that of its step (completion_tokens). A rebuild
// that goes wrong in length is always noticed. One that goes wrong and keeps the
// length is not: count_verified is strong evidence, not identity. What is known to
// keep the length is therefore refused outright: the system message has a new time
// stamp after a compaction, so that no prompt after one is taken from stored, none
// is cut from a trace on its other side, and none at all is taken from stored in
// a conversation that was compacted, whose first system message cannot be read: nor is
// one from its traces where the request overrode that message.
//
// A trace for every call, beside stored, would prove that the step belongs to the
// turn, and about the prompt nothing but the order of the tools, which is the same
// in all calls of a send; it costs the largest request there is, and so one per send
// is fetched, and none for an agent with at most one tool.
//
// # Steps and ends
//
// step_id of an answer's messages names the step of each call, where there are as many
// steps among them as turns, or as turns that said or called something; the results of
// tools, which may name a step of an earlier send, must agree. Only where a call said
// nothing the list of steps is asked for.
//
// How a call ended is in no answer: the server hides length behind a tool call, and takes
// an output that the engine aborted for the end of a turn. It is known from the call's
// trace where one was fetched; it is length where the output has as many tokens as the
// engine was asked for; and stop where its last id is one at which a trace showed the
// engine to stop. Of a call that ends in no such id the trace is fetched, two per sample
// at most, and none any more once eight in a row were not there. What stays unknown is
// empty.
//
// # Reasons
//
//	no_prompt        nothing to rebuild from, or the template refused the messages
//	count_mismatch   everything that was tried has another length than counted
//	compacted        the server summarized the history before the call
//	hole             turns and steps of a send do not match: the whole sample
//
// Call.Note says, for people, what was tried and how each try ended.
//
// # Costs
//
// stored costs two small requests per send (steps and messages of its run), a
// conversation two more per sample; trace one large request per send that stored
// did not settle, or one per call. A trace may be late: it is asked for up to three
// times within some 200 ms. A step that ran a compaction has none for good and is
// not asked for. Prompter.Stats adds requests and time up.
//
// A request that fails is an error, so that the sample is tried again on a new
// agent; it is never a quarantine. All of it must happen before the agent is
// deleted, because the deletion takes runs, steps and messages along: the collector
// calls Prompts before it closes the agent.
package prompt
