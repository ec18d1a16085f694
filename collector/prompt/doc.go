// Package prompt finds the prompt of every call of a reply: the ids that the model was
// given before it sampled. It is the only package that knows both the server's messages
// and a model's chat template.
//
// # Why there is something to find
//
// turns holds what was sampled and the texts of tools. It holds no prompts, and the server
// renders the whole conversation anew for each call: it deletes text before tool calls,
// prints calls anew and joins parallel results. So the prompt of a call is in general not
// the prompt before it, plus its output, plus the text of the tool. A prompt is known from
// a source that can prove it, or it is not known.
//
// # From a reply to graded calls
//
// [Prompter.Prompts] is the whole way. A row has the grade of its worst call. The grade of a
// call is given in calls.go, by tokenize.CallsFromTurns, and changed in grade.go where a
// prompt is rebuilt:
//
//	calls.go    the turn holds its prompt (input_ids)           exact
//	calls.go    it does not                                     quarantined
//	from_tap.go then: a tap saw what the engine was given       exact
//	grade.go    then: a prompt was rebuilt and is proven        count_verified
//	clock.go    then: it was rebuilt, and two times fit         as the next
//	grade.go    then: it was rebuilt, and its proof has a gap   quarantined, or
//	                                                            unverified on request
//	continuity.go  behind a tap with continuity:                the same, or quarantined
//	calls.go    Config.Force is literal: no prompt is claimed   unverified
//
// The reason of a gap is set where the gap is seen: witness.go, compare.go and grade.go.
//
// Tokens of a quarantined call are kept, in failures/, and never trained on. A prompt that
// one source has proven is never replaced by another source.
//
// Rebuilding needs the model's own chat template and tokenizer ([Config.Model]). Its steps
// are those of the function rebuild:
//
//	answers.go    take all from the answers and the traces that prove it, where that does
//	join.go       else: fetch steps and messages, pair turns with steps
//	witness.go    find a trace of each send that shows what the model was given
//	stored.go     make each prompt from the stored messages (source stored)
//	compare.go    compare one of them with the trace
//	trace.go,     make the prompts that are still missing from traces (source trace)
//	from_trace.go
//	clock.go      render a prompt at every time that the server's clock can have shown
//	grade.go      accept what has the right length, withdraw what is not proven
//
// Of a server run that another program drove (Rollout.Recorded) neither the request is known
// nor what was said before it. Its prompts come from each call's own trace alone; recorded.go
// says what else must hold.
//
// # The source tap
//
// A tap is a proxy between server and engine; [Config.Tap] has the calls that it saw. They
// are the engine's own: prompt, end, version, what it was told about sampling. fromTap gives
// a turn the prompt of its call where only one is possible; tap.Index.Join says how that is
// found out. The prompt is then exact, also after a compaction. A reply whose calls were all
// seen costs no request to the server, and has the step ids that the answer itself names.
//
// The server writes the id of its agent into the system message. Where the model's tokenizer
// is there, a prompt without it is never taken.
//
// A call that is not found stays quarantined for the next source, and Call.Note says why it
// was not. Only the tap shows the sampling parameters: a tap can change the server's request,
// and no engine repeats the parameters in its answer.
//
// The source literal stands apart: it glues sampled ids and tokenized texts of tools
// together and claims no prompt. It is used only where Config.Force says so, and graded
// unverified.
//
// # A tap with continuity
//
// Such a tap gives the engine tokens that the engine had sampled, in place of the server's
// text of them (package collector/tap/continuity). Then only the tap knows the prompt that the
// engine received. This prompt often has as many tokens as the server's prompt, so no count
// shows the difference. A newer server sends its own ids with its turns; these are the ids of
// the server's prompt too.
//
// The tap marks each answer with meta_info.rollout, and the server keeps the mark in the trace
// of the step. The Prompter notices the tap in the first trace that it reads for any purpose:
// to prove a prompt, to find a version, or to check the preflight's call. From then on, until
// the process ends, each call of this server whose prompt does not come from the tap needs its
// own trace (continuity.go):
//
//	its own trace                        the prompt
//	has no mark, or counts 0 turns       stays as it was proven
//	counts turns that were spliced       quarantined, whatever grade is required
//	is missing                           quarantined, or unverified on request
//
// A call that bypassed the tap has no mark. So these rules also hold with several servers, with
// several taps, and with a tap that is started later. Without such a tap, no additional request
// is made. Four cases are not noticed:
//
//   - A server that keeps no traces, or only their metadata, hides the tap: use --tap with it.
//   - A tap runs with continuity only for a short time: calls in that time are not noticed if
//     no trace is read before the tap is started again without it.
//   - Prompts that a server sends with its turns need no trace. A tap that is started during a
//     run is noticed only if a trace is read for another reason.
//   - An engine or a proxy removes the mark, or writes its own.
//
// # The two rebuilt sources
//
// Both give the messages and tools to the chat template as the server's native adapter
// does; the template and the tokenizer do the rest, by the rules of the server's release of
// transformers ([Model]). Roles are members of an Enum there, and print as such before 5.22.2.
// [ExamineReleases] finds the release where it matters.
//
// stored replays what happened to the agent: the system message as it was read right
// after the agent was made, the client's own requests, the turns, and the calls as the
// server stored them. The tools are the agent's, then the client's.
//
// trace takes the OpenAI-style body that the server kept and never sent, and undoes its
// few, known differences. A trace counts only where the output_ids of its answer equal
// those of the turn. The trace of a send's last call holds the messages of the earlier
// calls too: it is tried first, cut before each assistant message. Then comes the call's
// own trace.
//
// # What a count proves
//
// A rebuilt prompt must have the length that the server counted for its step
// (prompt_tokens), and every turn the length that was counted for its output
// (completion_tokens). So a mistake that changes the length is always noticed. A mistake
// that keeps the length is not: several tools in another order, two time stamps, two words
// of one token, true and false. What can change without the length must be bound to the
// request in another way, or the prompt is not count_verified.
//
// # The clock
//
// A template that calls strftime_now prints the naive local time of the server's process. No
// record contains this time, and another date has the same number of tokens. clock.go renders
// such a prompt at every possible time and compares the texts:
//
//	instants  between the stamps of two stored messages: the last message that the request and
//	          the calls before it stored, and the first message that the call itself stored.
//	          The server cuts fractions of a second. The clock of this machine is not used
//	zones     [Model.Zone], which is trusted like the tokenizer; without it, each offset from
//	          -12:00 to +14:00 in steps of 15 minutes
//	texts     one for each different print of the formats that the template used; equal texts
//	          count once. A format with seconds can have too many texts
//
// If there is one text, or one text with the counted length, it is proven like any other
// prompt. If several texts have that length, or the instants are not bounded, the call has
// ReasonClock, and its prompt is at most unverified. A template that reads the clock but does
// not print it has one text. Package chat refuses all other nondeterminism of a template:
// random numbers and addresses.
//
// # What answers tell
//
// The messages of an answer are those that the server stored, and its usage is the sum over
// its steps. So answers.go first tries to do without the records of the server runs. It
// proves the same in the same way, and only the pieces come from elsewhere:
//
//	piece              from the records   from the answers
//	calls of tools     stored messages    messages of the answer; compared with the trace
//	step of each call  list of steps      messages of the answer; the trace of the last step
//	                                      must have the last turn's ids
//	length of outputs  list of steps      number of steps and sum in usage; the trace has the
//	                                      last output, so of two calls each is counted
//	length of prompts  list of steps      see below
//	text of prompts    compared with the trace of a call, by the same code
//	system message of  conversation       the trace of the last send, with which those of the
//	a conversation                        others are compared
//
// Each prompt is counted by itself. The trace has the engine's own count for the last call of
// a send, and usage what that call had in its context (context_tokens, output included) and
// the sum of the prompts. The prompt of a single call is the sum. The first of two is the
// sum without the last. For more calls there are more prompts than such words, and two
// mistakes may cancel in a sum; that the trace shows the messages of every call before it is
// no count of them. So for three calls and more the list of steps is fetched. All words
// about a prompt must agree.
//
// Each send has its own trace, as any other way to prove it would ask for, with one exception:
// of three sends and more to an agent with one tool at most, only the last send's. The other
// sends are then requests without a trace, as in the table below: the agent is read again, the
// trace of the last send shows that the system message is still the same, and what they said
// is compared as its history. The exception is not made where a trace would tell more: for
// memory blocks, a conversation, another model for a request, and a send that does not end with
// an id at which the engine was seen to stop. The policy versions of the other sends are then
// not known from here: whoever wants them asks for the trace of each call (package policy).
//
// All calls of the sample are proven so, or nothing is taken from the answers and the records
// are fetched. That is so for calls that wait for the client, tools of the client, an overridden
// system message, a compaction, tool rules that choose among tools, a call that said nothing,
// a template that reads the clock (an answer does not have the stamp of its request),
// an answer that leaves messages out or was itself taken from records, an agent that was taken
// over, and wherever a trace is missing or two of the words disagree. A server of which
// finishMisses samples in a row had no trace is asked for the records at once, until it is seen
// to keep traces.
//
// # How a prompt is bound to its request
//
// The server loads agent, tools and messages once per request and makes every call of
// the request from them (agents.py:1731, letta_agent_v3.py:264-297: agent_state is set
// nowhere else; the tools of a call are picked from it, _get_valid_tools; a system
// message is compiled anew only after a compaction, letta_agent_v2.py:763). One trace of
// the request is therefore a witness for all of its calls before a compaction. It is the
// trace of the last call, or of one of the two calls before it. stored takes the order of
// the tools from the witness and rebuilds its call. Both are compared: message by message,
// and where these differ, as the template prints them. If the texts differ, or the call
// cannot be rebuilt, stored gives nothing for the request, and the traces are tried.
//
// A request without a trace is proven only if nothing in its prompts changes by itself,
// and the agent is still the same when it is read again.
//
// In the table, compared means that the text of the trace must agree with what stored
// rebuilt, or the prompts of the request are quarantined. Agent read again means that
// AgentState and system message after the last send must be what they were before the
// first, or they are quarantined. A single word in the second column is their reason.
//
//	what                             with a trace of the request          without one
//	order of several tools           taken from it                        tool_order
//	order of client tools            from the request, after the agent's  from the request
//	which tools (tool rules)         own trace of each call               tool_order
//	names, descriptions, parameters  compared, by content                 agent read again
//	strict, parallel and reasoner    shown in parameters, calls, texts    agent read again
//	flags, response_format
//	order of a tool's members        as in AgentState (a trace lists      as in AgentState
//	                                 them in another order)
//	system text, its time stamp,     compared                             read again; never with
//	counts and ids, timezone                                              blocks, a conversation,
//	                                                                      or after a compaction
//	memory blocks, own and shared    in the system text: compared         quarantined
//	override_system, client_skills   the native path ignores them; the    system text as above
//	                                 system text is read again
//	override_model                   from the request; the text before    from the request
//	                                 tool calls is kept
//	user messages                    compared                             from the request
//	calls as stored, tools' texts    compared, up to the traced call      the reply's and the run's,
//	                                                                      which only an edit of a
//	                                                                      stored message changes
//	text cut in a trace (5,000       the whole text, if the count agrees; the turn's
//	characters and more)             never a prompt from that trace
//	sampled tokens                   equal those of the trace             the turn's
//	history before the request       compared                             as each of the above
//	agent edited, attached, detached compared                             agent read again
//	agent taken over from a dead     compared                             quarantined: it was read
//	process                                                               too late
//	after a compaction               from a trace of a call after it      compacted
//	the time that is printed         every time that is possible: the clock, above
//	template, tokenizer, zone, model not bound: only the count, and doctor, which compares ids
//	behind the same handle           where the server sends them, and the engine's text elsewhere
//
// If somebody edits the agent and takes the change back in between, reading it again does
// not see that. An agent with memory blocks is never proven this way: a block is edited by
// the agent's own tools and by other agents that share it, each time compiling the system
// message anew with the old time stamp (block_manager.py:60-69). So the text can change and
// then be the same again.
//
// A tool that a trace shows with another content, or that the agent did not have, was
// changed after the agent was made. Its prompts are quarantined: the trace does not tell
// in which order the server wrote the tool's members.
//
// With [Config.Unverified], which --require any sets, a prompt of the right length that
// nothing shows is given as unverified. A prompt that something contradicts never is.
//
// If the source stored is forced, traces are still read as witnesses, and no prompt is
// taken from them. A witness costs one request per send, the largest besides the send
// itself (6 to 65 KB). It is paid for agents with one tool as well, but for the exception
// above: the two requests that read the agent again cost as much and show less.
//
// # Step ids
//
// step_id of an answer's messages names the step of each call. It counts where there are
// as many steps among the messages as turns, or as turns that said or called something,
// and where the results of tools agree. (A result may name a step of an earlier send.)
// The list of steps is asked for only where a call said nothing.
//
// # Finish reasons
//
// No answer says how a call ended: the server hides length behind a tool call, and takes
// an output that the engine aborted for the end of a turn. The finish reason is known from
// the call's trace if it was fetched. It is stop if a trace showed that the engine stops at the
// last id of the call. For a call that ends in another id, the trace is fetched: at most two
// per sample, and none after eight in a row were missing. Without a trace, an output of 4,096
// tokens of a server of release 0.16 ended by length, because 4,096 is the limit of that
// release. An unknown finish reason is empty.
//
// # Reasons
//
//	no_prompt        nothing to rebuild from, the template refused the messages, or a
//	                 trace shows another text
//	tool_order       the length agrees, and nothing shows the order of several tools
//	trace_lost       the same, because a log-probability of each call of the send is NaN or
//	                 infinite: the server keeps traces, and cannot store such a one
//	clock            the length agrees at several times that the server's clock can have shown
//	count_mismatch   everything that was tried has another length than counted
//	compacted        the server summarized the history before the call
//	hole             turns and steps of a send do not match: the whole sample
//	continuity       a tap changed the prompt, or nothing shows that it did not
//
// Call.Note says, for people, what was tried and how each try ended.
//
// # Requests
//
// What the server keeps is read through package record, which keeps what it fetched. A
// sample of which the answers tell enough needs
//
//	the trace of each send's last call, or that of the last send and the agent once, where
//	    there are three sends or more and one tool at most
//	the steps of each send of three calls or more
//
// So a sample of one send needs one request or two. TestRequests pins more shapes. Behind a tap
// with continuity each call needs one for its trace (TestContinuityProof). Any other
// sample needs two small requests per send (steps and messages of its run) and the trace of
// one call; a conversation two more per sample, and an agent without traces two more per
// sample. trace needs one large request per send that stored did not settle, or one per
// call.
//
// Requests that do not depend on each other run side by side, up to a bound over all samples,
// and [Prompter.Prefetch] makes those for one send while the server works at the next, but for
// what the answer tells. A trace may be late: it is asked for up to three times within some
// 200 ms. A step that ran a compaction has none for good and is not asked for.
// [Prompter.Stats] adds requests and time up.
//
// A request that fails is an error, so that the sample is tried again on a new agent; it
// is never a quarantine. All reading has to be done before the agent is deleted, because
// the deletion takes runs, steps and messages along.
package prompt
