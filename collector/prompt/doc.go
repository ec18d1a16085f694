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
// length is not: what may change without the length must be bound to the request, or
// the prompt is not count_verified. Several tools in another order have one length, and
// so have two time stamps, two words of one token, and true and false.
//
// # How a prompt is bound to its request
//
// The server loads agent, tools and messages once per request and makes every call of
// the request from them (agents.py:1731, letta_agent_v3.py:264-297: agent_state is set
// nowhere else; the tools of a call are picked from it, _get_valid_tools; a system
// message is compiled anew only after a compaction, letta_agent_v2.py:763). One trace of
// the request therefore speaks for all of its calls before a compaction. It is the last
// call's, or one of the two before it where that has none. stored takes the order of the
// tools from it, rebuilds its call, and compares the text of both as the template prints
// them; where they differ, or the call cannot be rebuilt, stored gives nothing for the
// request, and the traces are tried. AgentState read again says nothing about a request in between, and is used only
// where the request has no trace and nothing in its prompts changes by itself.
//
//	what                             with a trace of the request          without one
//	order of several tools           taken from it                        tool_order
//	order of client tools            the request's own, after the agent's the same
//	which tools (tool rules)         own trace of each call               tool_order
//	names, descriptions, parameters  compared, by content                 agent read again
//	strict, parallel and reasoner    shown in parameters, calls, texts    agent read again
//	flags, response_format
//	order of a tool's members        AgentState's: a trace orders anew    AgentState's
//	system text, its time stamp,     compared                             read again; never with
//	counts and ids, timezone                                              blocks, a conversation,
//	                                                                      or after a compaction
//	memory blocks, own and shared    in the system text: compared         quarantined
//	override_system, client_skills   the native path ignores them; the    system text as above
//	                                 system text is read again
//	override_model                   the request's own: no scrubbing      the same
//	user messages                    compared                             the request's own
//	calls as stored, tools' texts    compared, up to the traced call      the reply's and the run's,
//	                                                                      which only an edit of a
//	                                                                      stored message changes
//	text cut in a trace (5,000       the whole text, if the count agrees; the turn's
//	characters and more)             never a prompt from that trace
//	sampled tokens                   equal those of the trace             the turn's
//	history before the request       compared                             as each of the above
//	agent edited, attached, detached compared                             agent read again
//	agent taken over from a dead     compared                             quarantined: what is read
//	process                                                               then was read too late
//	after a compaction               from a trace of a call after it      compacted
//	template, tokenizer, model       not bound: the count, and doctor, which compares ids where
//	behind the same handle           the server sends them, and the engine's text elsewhere
//
// agent read again: AgentState and system message, after the last send, must be what they
// were before the first; what was changed and changed back between, by somebody who edits
// this one agent, is not seen. An agent with memory blocks is never proven so: a block
// is edited by the agent's own tools and by those of other agents that share it, each
// time compiling the system message anew, with the old time stamp
// (block_manager.py:60-69), so that it may come back to the letter.
//
// A tool that a trace shows with another content, or that the agent did not have, was
// changed after the agent was made. Its prompts are quarantined: the trace does not tell
// in which order the server wrote its members.
//
// With Config.Unverified, which --require any sets, a prompt of the right length that
// nothing shows is given as unverified; one that something contradicts never is.
//
// The source stored, forced, reads traces all the same, as witnesses; it takes no prompt
// from them. The price of a witness is one request per send, the largest there is beside
// the send itself (6 to 65 KB, 20 to 65 ms on a busy server), and 0.4 ms of CPU for 8k
// tokens. It is paid for agents with one tool as well, for whom the two requests that
// read the agent again cost as much and show less.
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
//	no_prompt        nothing to rebuild from, the template refused the messages, or a
//	                 trace shows another text
//	tool_order       the length agrees, and nothing shows the order of several tools
//	count_mismatch   everything that was tried has another length than counted
//	compacted        the server summarized the history before the call
//	hole             turns and steps of a send do not match: the whole sample
//
// Call.Note says, for people, what was tried and how each try ended.
//
// # Costs
//
// stored costs two small requests per send (steps and messages of its run) and the
// trace of one call, a conversation two more per sample, an agent without traces two
// more per sample; trace one large request per send that stored did not settle, or one
// per call. A trace may be late: it is asked for up to three
// times within some 200 ms. A step that ran a compaction has none for good and is
// not asked for. Prompter.Stats adds requests and time up.
//
// A request that fails is an error, so that the sample is tried again on a new
// agent; it is never a quarantine. All of it must happen before the agent is
// deleted, because the deletion takes runs, steps and messages along: the collector
// calls Prompts before it closes the agent.
package prompt
