// Package prompt finds the prompt of every call in a reply: the ids that the model received before
// it sampled. It is the only package that knows both the server's messages and a model's chat
// template.
//
// # Why prompts must be found
//
// The turns of a reply contain sampled ids and tool text, but no prompts. The server re-renders the
// whole conversation for each call. It deletes text before tool calls, re-encodes the calls and
// joins parallel results. So in general, a prompt is not the previous prompt plus its output plus
// the tool text. A prompt is known only if a source proves it.
//
// # From a reply to graded calls
//
// [Prompter.Prompts] turns a reply into graded calls. A row has the grade of its worst call.
// calls.go sets the initial grade of a call, using tokenize.CallsFromTurns. The other files can
// change the grade:
//
//	file           condition                                        grade
//	calls.go       the turn contains its prompt (input_ids)         exact
//	calls.go       the turn does not contain its prompt             quarantined
//	from_tap.go    … and a tap recorded the engine's input          exact
//	grade.go       … and a rebuilt prompt is proven                 count_verified
//	grade.go       … and the proof of a rebuilt prompt has a gap    quarantined, or
//	                                                                unverified on request
//	clock.go       … and a rebuilt prompt fits at several times     the same
//	continuity.go  a tap with continuity might have changed a prompt  the same
//	calls.go       Config.Force is literal: no prompt is claimed    unverified
//
// The tokens of a quarantined call go to failures/ and are never trained on. No source replaces a
// prompt that another source has proven.
//
// Rebuilding needs the model's own chat template and tokenizer ([Config.Model]). The method
// Prompter.rebuild uses these files in order:
//
//	answers.go    use only the answers and the traces that prove them, if they are enough
//	join.go       otherwise, fetch steps and messages, and pair turns with steps
//	witness.go    find a trace of each send that shows the model's input
//	stored.go     rebuild each prompt from the stored messages (source stored)
//	compare.go    compare one of these prompts with the trace
//	trace.go,     rebuild the missing prompts from traces (source trace)
//	from_trace.go
//	clock.go      render a prompt at every time that the server's clock could have shown
//	grade.go      accept prompts of the right length, withdraw prompts that are not proven
//
// If another program drove a server run (record.Rollout.Recorded), the requests and the history
// before the run are unknown. Each prompt then comes from the trace of its own call. See
// recorded.go.
//
// # The source tap
//
// A tap is a proxy between the server and the engine. [Config.Tap] contains the calls that taps
// recorded, with the engine's own data: prompt, finish reason, policy version and sampling
// parameters. If exactly one recorded call matches a turn, fromTap uses the prompt of this recorded
// call. See tap.Index.Join. The prompt is then exact, even after a compaction. If the tap recorded
// all calls of a reply, no request to the server is needed, and the step ids come from the answer.
//
// The server writes the agent's id into the system message. If the system message contains the id
// and the model's tokenizer is known, fromTap never uses a prompt without the id.
//
// If no recorded call matches, the call stays quarantined unless a later source proves its prompt.
// Call.Note states why no recorded call matches. Only a tap shows the sampling parameters, because
// a tap can change the server's request and no engine repeats the parameters in its answer.
//
// The source literal is different. It concatenates sampled ids and tokenized tool text, but does
// not claim that the result is the prompt. It is used only if Config.Force selects it. Its calls
// are graded unverified.
//
// # A tap with continuity
//
// A tap with continuity sends the engine the tokens that the model sampled earlier instead of the
// server's rendering of these tokens (package collector/tap/continuity). So only the tap knows the
// prompt that the engine received. This prompt often has as many tokens as the server's prompt. In
// that case, a token count does not reveal the difference. A newer server sends prompt ids with its
// turns, but these are the ids of the server's own prompt and not of the prompt that the engine
// received.
//
// The tap marks each answer with meta_info.rollout, and the server keeps the mark in the trace of
// the step. The Prompter notices the tap when the first marked trace is read. A trace can be read
// to prove a prompt, to find a policy version, or to check the preflight's call. From then until
// the process ends, every call on this server whose prompt does not come from the tap needs its own
// trace (continuity.go):
//
//	the call's own trace               the prompt
//	has no mark, or counts 0 turns     keeps its grade
//	counts turns that were spliced     is quarantined, even with Config.Unverified
//	is missing                         is quarantined, or unverified on request
//
// A call that bypassed the tap has no mark. So these rules also work with several servers, with
// several taps, and with a tap that is started later. If no tap with continuity was noticed, no
// additional request is made. In four cases, the Prompter does not notice the tap:
//
//   - The server keeps no traces, or only their metadata. Use --tap with such a server.
//   - The tap runs with continuity for only a short time, and no trace is read before the tap is
//     restarted without continuity.
//   - The server sends prompts with its turns, so no traces are needed for the prompts. A tap that
//     is started during a run is then noticed only if a trace is read for another reason.
//   - An engine or a proxy removes the mark, or writes another mark.
//
// # The two rebuilt sources
//
// Both sources pass messages and tools to the chat template in the same form as the server's native
// adapter. The template and the tokenizer follow the rules of the server's version of the
// transformers library ([Model]). In the adapter, roles are members of an Enum. With versions of
// the transformers library before 5.22.2, a template prints the role user as MessageRole.user. If
// the prompts depend on the version, [ExamineReleases] finds the server's version.
//
// The source stored replays the history of the agent: the original system message, the client's own
// requests, the turns, and the calls. The original system message is the message that was read
// right after the agent was created. The calls are used in the form in which the server stored
// them. The agent's tools come first, then the client's tools.
//
// The source trace uses the OpenAI-style request body that the server kept but never sent. The
// source reverts the few known differences from the native prompt. A trace is used only if the
// output_ids of its answer equal the ids of the turn. The trace of a send's last call also contains
// the messages of the earlier calls. So this trace is tried first for every call, truncated before
// the call's own output. The call's own trace is tried next.
//
// # What a count proves
//
// The length of a rebuilt prompt must equal the server's count for its step (prompt_tokens). The
// length of every output must equal the step's completion_tokens. So a mistake that changes a
// length is always noticed. A mistake that does not change a length is not noticed. Examples are
// another order of several tools, a different timestamp, a different word of one token, or true
// instead of false. If something can change without changing the length, it must be bound to the
// request in another way. Otherwise, the prompt is not count_verified.
//
// # The clock
//
// A template that calls strftime_now prints the naive local time of the server's process. No record
// contains this time, and another date can have the same number of tokens. clock.go renders such a
// prompt at every possible time and compares the renderings:
//
//	instants  the times between the timestamps of two stored messages: the last message that
//	          the request and the calls before it stored, and the first message that the call
//	          itself stored. The server drops fractions of a second. The local clock is not used
//	zones     [Model.Zone], which is trusted like the tokenizer; if it is nil, each offset from
//	          -12:00 to +14:00 in steps of 15 minutes
//	prompts   one for each distinct output of the formats that the template used; equal prompts
//	          count once. A format with seconds can produce too many prompts
//
// If only one prompt is possible, or only one prompt has the counted length, it is proven like any
// other prompt. Otherwise the reason of the call is ReasonClock, and its prompt is never graded
// higher than unverified. The same holds if no timestamps bound the instants or if too many prompts
// are possible. If a template reads the clock but does not print the time, there is only one
// prompt. Package chat refuses templates with any other nondeterminism, such as random numbers or
// memory addresses.
//
// # Rebuilding from answers
//
// An answer contains the messages as the server stored them, and its usage is the sum over the
// steps of the send. So answers.go first tries to rebuild the prompts without the records of the
// server runs. The proof is the same. Only the sources for the parts of the proof differ:
//
//	part               from the records   from the answers
//	tool calls         stored messages    messages of the answer; compared with the trace
//	step of each call  list of steps      messages of the answer; the trace of the last step
//	                                      must have the last turn's ids
//	length of outputs  list of steps      number of steps and sum in usage; the trace has the
//	                                      last output, so with two calls both are checked
//	length of prompts  list of steps      see below
//	text of prompts    compared with the trace of a call by the same code
//	system message of  conversation       the trace of the last send; the other traces are
//	a conversation                        compared with it
//
// The length of each prompt is checked separately. The trace contains the engine's own count for
// the last call of a send. The usage contains the context size after this call (context_tokens,
// which includes the output) and the sum of all prompt lengths. If the send has one call, the sum
// is the prompt length of this call. If the send has two calls, the first prompt length is the sum
// minus the last prompt length. With three or more calls, there are more prompts than values, and
// two mistakes can cancel out in a sum. The messages in a trace do not show the token counts of the
// earlier calls. So the list of steps is fetched if there are three or more calls. All values for a
// prompt must agree.
//
// Each send needs its own trace, with one exception. If a sample has three or more sends and its
// agent has at most one tool, only the trace of the last send is needed. In the table of the next
// section, the other sends then count as requests without a trace. The agent is reread to prove the
// prompts of these sends. The trace of the last send shows that the system message is unchanged.
// The earlier sends are part of the history in this trace, so they are compared with it. The
// exception does not apply if the trace of another send contains information that the trace of the
// last send lacks. This is the case with memory blocks, a conversation or a model override. It is also
// the case if the last output of a send does not end with an id at which the engine was seen to
// stop. Even if the exception applies, package policy needs the trace of each call to find the
// policy versions of the other sends.
//
// If any call of the sample is not proven this way, the results are discarded and the records are
// fetched. The records are needed in these cases:
//
//   - calls that wait for the client, or client tools
//   - an overridden system message, a compaction, or tool rules that choose among tools
//   - a call whose output has neither text nor tool calls
//   - a template that reads the clock, because an answer lacks the timestamp of its request
//   - an answer that omits messages or comes from records, or a taken-over agent
//   - a missing trace, or two values that disagree
//
// After finishMisses consecutive samples without a trace, the records are fetched without an
// attempt to use the answers.
//
// # How a prompt is bound to its request
//
// The server loads the agent, its tools and its messages once per request and uses them for every
// call of the request. In the server's source, agents.py:1731 and letta_agent_v3.py:264-297 are the
// only places that set agent_state. _get_valid_tools chooses the tools of a call from agent_state.
// The system message is recompiled only after a compaction (letta_agent_v2.py:763). So one trace of
// the request is a witness for all calls of the request before a compaction. The witness is the
// trace of the last call, or of one of the two calls before it.
//
// The source stored takes the order of the tools from the witness and rebuilds the prompt of the
// witness's call. The messages of the rebuilt prompt are compared with the messages in the witness
// one by one. If any messages differ, the rendered prompts are compared. If the rendered prompts
// differ, or the prompt cannot be rebuilt, the source stored proves nothing for the request, and
// the source trace is tried.
//
// A request without a trace is proven only if nothing in its prompts can change on its own and the
// agent is unchanged when it is reread.
//
// In the table, "compared" means that the text of the trace must equal the rebuilt text. "Agent
// reread" means that the AgentState and the system message after the last send must equal their
// values before the first send. If a condition does not hold, the prompts are quarantined. The
// table entries tool_order and compacted are quarantine reasons.
//
//	what                             with a trace of the request          without one
//	order of several tools           from the trace                       tool_order
//	order of client tools            from the request, after the agent's  from the request
//	which tools (tool rules)         own trace of each call               tool_order
//	names, descriptions, parameters  compared, by content                 agent reread
//	strict, parallel and reasoner    shown in parameters, calls, texts    agent reread
//	flags, response_format
//	order of a tool's members        as in AgentState (a trace lists      as in AgentState
//	                                 them in another order)
//	system text, its timestamp,      compared                             reread; never with
//	counts and ids, timezone                                              blocks, a conversation,
//	                                                                      or after a compaction
//	memory blocks, own and shared    in the system text: compared         quarantined
//	override_system                  the native path ignores it; the      system text as above
//	                                 system text is reread
//	override_model                   from the request; the text before    from the request
//	                                 tool calls is kept
//	user messages                    compared                             from the request
//	stored calls, tool text          compared, up to the traced call      from the reply and the
//	                                                                      run; only an edit of a
//	                                                                      stored message changes
//	                                                                      them
//	text cut in a trace (5,000       the full text, if the count agrees;  from the turn
//	characters and more)             never a prompt from that trace
//	sampled tokens                   equal to the ids in the trace        from the turn
//	history before the request       compared                             as each row above
//	agent edited, attached, detached compared                             agent reread
//	agent taken over from a dead     compared                             quarantined, because it was
//	process                                                               read too late
//	after a compaction               from a trace of a call after it      compacted
//	the time that is printed         every possible time (see above)
//	template, tokenizer, zone, model not bound: only the count, and doctor, show a change. doctor
//	behind the same handle           compares ids if the server sends them, otherwise the
//	                                 engine's text
//
// If the agent is edited and the edit is reverted before the agent is reread, the edit is not
// noticed. So a prompt of an agent with memory blocks is never proven this way. The agent's own
// tools and other agents that share a block can edit the block. Each edit recompiles the system
// message with the old timestamp (block_manager.py:60-69), so the text can change and change back.
//
// A trace can show a tool with different content, or a tool that the agent did not have. Such a
// tool was changed or added after the agent was read. In this case, the prompts of the request are
// quarantined, because the trace does not show the order in which the server wrote the tool's
// members.
//
// With [Config.Unverified], which --require any sets, a prompt of the right length without other
// proof is returned as unverified. A prompt that a trace contradicts is never returned.
//
// If the source stored is forced, traces are still read as witnesses, but provide no prompts. A
// witness costs one request per send. Except for the answer to the send, the answer to this request
// is the largest (6 to 65 KB). Apart from the exception above, a witness is also used for an agent
// with one tool. The two requests that reread the agent would cost as much as the trace and show
// less.
//
// # Finish reasons
//
// An answer does not contain the finish reasons of its calls. If an output with a tool call reached
// the token limit, the server does not report the limit. If the engine aborted an output, the
// server reports that the turn ended normally. finish.go reads the finish reason from the call's
// trace, or recognizes a final id at which the engine was seen to stop. If the finish reason is
// unknown, the field is empty.
//
// # Reasons
//
//	no_prompt        nothing to rebuild from, the template refused the messages, or a
//	                 trace shows another text
//	tool_order       the length agrees, but nothing shows the order of several tools
//	trace_lost       like tool_order, but because every call of the send has a NaN or infinite
//	                 log-probability and the server cannot store a trace with such a value
//	clock            the length agrees at several times that the server's clock could have shown
//	count_mismatch   no rebuilt prompt has the counted length
//	compacted        the server summarized the history before the call
//	hole             turns and steps of a send do not match; affects the whole sample
//	continuity       a tap changed the prompt, or nothing shows that it did not
//
// Call.Note lists the sources that were tried and explains why each one failed.
//
// # Requests
//
// All records are fetched through package record, which caches them. A sample with one send that is
// rebuilt from its answer needs one or two requests. TestRequests has the numbers for other
// samples. Behind a tap with continuity, each call needs one request for its trace
// (TestContinuityProof). Any other sample needs, per send, two small requests (for the steps and
// messages of the server run) and one request for a trace. A conversation needs two more requests
// per sample, and so does an agent without traces. The source trace needs one large request for
// each send that the source stored did not prove. If the trace of the send's last call is not
// enough, it needs one large request for each call.
//
// Independent requests run concurrently, up to a limit for all samples together. If a trace is
// late, it is requested up to three times within about 200 ms. [Prompter.Stats] reports the number
// of requests and the time spent.
//
// If a request fails, Prompts returns an error and the sample is retried on a new agent. A failed
// request never causes a quarantine. All records must be read before the agent is deleted, because
// the server deletes the agent's runs, steps and messages with it.
package prompt
