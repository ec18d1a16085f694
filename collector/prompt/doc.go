// Package prompt finds the prompt of every call of a reply: the ids that the model received before
// it sampled. It is the only package that knows both the server's messages and a model's chat
// template.
//
// # Why prompts must be found
//
// turns contains sampled ids and tool texts, but no prompts. The server renders the whole
// conversation again for each call: it deletes text before tool calls, prints calls again and joins
// parallel results. So a prompt is in general not the previous prompt, plus its output, plus the
// tool text. A prompt is known only if a source proves it.
//
// # From a reply to graded calls
//
// [Prompter.Prompts] runs all steps. A row has the grade of its worst call. calls.go sets the grade
// of a call, with tokenize.CallsFromTurns. The other files change it:
//
//	calls.go       the turn contains its prompt (input_ids)      exact
//	calls.go       it does not                                   quarantined
//	from_tap.go    then: a tap recorded the engine's input       exact
//	grade.go       then: a prompt was rebuilt and proven         count_verified
//	clock.go       then: it was rebuilt, and two times fit       as the next
//	grade.go       then: it was rebuilt, and its proof has a gap quarantined, or
//	                                                             unverified on request
//	continuity.go  behind a tap with continuity                  the same, or quarantined
//	calls.go       Config.Force is literal: no prompt is claimed unverified
//
// The tokens of a quarantined call go to failures/ and are never trained on. No source replaces a
// prompt that another source has proven.
//
// Rebuilding needs the model's own chat template and tokenizer ([Config.Model]). The function
// rebuild runs these steps:
//
//	answers.go    use only the answers and the traces that prove them, if that is enough
//	join.go       otherwise: fetch steps and messages, pair turns with steps
//	witness.go    find a trace of each send that shows the model's input
//	stored.go     make each prompt from the stored messages (source stored)
//	compare.go    compare one of these prompts with the trace
//	trace.go,     make the missing prompts from traces (source trace)
//	from_trace.go
//	clock.go      render a prompt at every time that the server's clock can have shown
//	grade.go      accept prompts of the right length, withdraw prompts that are not proven
//
// If another program drove a server run (Rollout.Recorded), its requests and its earlier history
// are unknown. Each prompt then comes from the call's own trace; see recorded.go.
//
// # The source tap
//
// A tap is a proxy between server and engine. [Config.Tap] contains the calls that it recorded,
// with the engine's own data: prompt, end, version and sampling parameters. fromTap gives a turn
// the prompt of its call if exactly one call matches; see tap.Index.Join. The prompt is then exact,
// even after a compaction. If the tap recorded all calls of a reply, no request to the server is
// needed, and the step ids come from the answer.
//
// The server writes the id of its agent into the system message. If the model's tokenizer is known,
// a prompt without this id is never used.
//
// A call that is not found stays quarantined for the next source, with the cause in Call.Note. Only
// the tap shows the sampling parameters: a tap can change the server's request, and no engine
// repeats the parameters in its answer.
//
// The source literal is different: it concatenates sampled ids and tokenized tool texts and claims
// no prompt. It is used only if Config.Force selects it, and is graded unverified.
//
// # A tap with continuity
//
// This tap gives the engine previously sampled tokens instead of the server's text of them (package
// collector/tap/continuity). Then only the tap knows the prompt that the engine received. This
// prompt often has as many tokens as the server's prompt, so no count shows the difference. A newer
// server sends its own ids with its turns; these ids belong to the server's prompt too.
//
// The tap marks each answer with meta_info.rollout, and the server keeps the mark in the trace of
// the step. The Prompter notices the tap in the first trace that it reads for any purpose: to prove
// a prompt, to find a version, or to check the preflight's call. From then on, until the process
// ends, each call of this server whose prompt does not come from the tap needs its own trace
// (continuity.go):
//
//	its own trace                        the prompt
//	has no mark, or counts 0 turns       stays as it was proven
//	counts turns that were spliced       quarantined, whatever grade is required
//	is missing                           quarantined, or unverified on request
//
// A call that bypassed the tap has no mark. So these rules also hold with several servers, with
// several taps, and with a tap that is started later. Without such a tap, no additional request is
// made. Four cases are not noticed:
//
//   - A server that keeps no traces, or only their metadata, hides the tap: use --tap with it.
//   - A tap runs with continuity only for a short time: calls in that time are not noticed if no
//     trace is read before the tap is started again without it.
//   - Prompts that a server sends with its turns need no trace. A tap that is started during a run
//     is noticed only if a trace is read for another reason.
//   - An engine or a proxy removes the mark, or writes its own.
//
// # The two rebuilt sources
//
// Both sources pass messages and tools to the chat template like the server's native adapter.
// Template and tokenizer do the rest, by the rules of the server's release of transformers
// ([Model]). In the adapter, roles are members of an Enum, and before release 5.22.2 they print as
// such. If the release matters, [ExamineReleases] finds it.
//
// stored replays the history of the agent: the system message as it was right after the agent was
// created, the client's own requests, the turns, and the calls as the server stored them. The
// agent's tools come first, then the client's.
//
// trace uses the OpenAI-style body that the server kept and never sent, and reverts its few, known
// differences. A trace counts only if the output_ids of its answer equal the ids of the turn. The
// trace of a send's last call also contains the messages of the earlier calls. So it is tried
// first, cut before each assistant message. The call's own trace comes next.
//
// # What a count proves
//
// A rebuilt prompt must have the length that the server counted for its step (prompt_tokens), and
// every turn the length of its counted output (completion_tokens). So a mistake that changes the
// length is always noticed. A mistake that keeps the length is not noticed: several tools in
// another order, two timestamps, two words of one token, true and false. Anything that can change
// without changing the length must be bound to the request in another way. Otherwise the prompt is
// not count_verified.
//
// # The clock
//
// A template that calls strftime_now prints the naive local time of the server's process. No record
// contains this time, and another date has the same number of tokens. clock.go renders such a
// prompt at every possible time and compares the texts:
//
//	instants  between the timestamps of two stored messages: the last message that the request
//	          and the calls before it stored, and the first message that the call itself
//	          stored. The server cuts fractions of a second. The clock of this machine is not
//	          used
//	zones     [Model.Zone], which is trusted like the tokenizer; without it, each offset from
//	          -12:00 to +14:00 in steps of 15 minutes
//	texts     one for each different output of the formats that the template used; equal texts
//	          count once. A format with seconds can have too many texts
//
// If there is one text, or one text with the counted length, it is proven like any other prompt. If
// several texts have that length, or the instants are not bounded, the call has ReasonClock, and
// its prompt is at most unverified. A template that reads the clock but does not print it has one
// text. Package chat refuses all other nondeterminism of a template: random numbers and addresses.
//
// # Rebuilding from answers
//
// The messages of an answer are the stored messages, and its usage is the sum over its steps. So
// answers.go first works without the records of the server runs. It proves the prompts in the same
// way. Only the sources of the pieces differ:
//
//	piece              from the records   from the answers
//	tool calls         stored messages    messages of the answer; compared with the trace
//	step of each call  list of steps      messages of the answer; the trace of the last step
//	                                      must have the last turn's ids
//	length of outputs  list of steps      number of steps and sum in usage; the trace has the
//	                                      last output, so of two calls each is counted
//	length of prompts  list of steps      see below
//	text of prompts    compared with the trace of a call, by the same code
//	system message of  conversation       the trace of the last send; the other traces are
//	a conversation                        compared with it
//
// Each prompt is counted by itself. The trace has the engine's own count for the last call of a
// send. usage has the context size after that call (context_tokens, output included) and the sum of
// the prompts. The prompt of a single call is the sum. With two calls, the first prompt is the sum
// minus the last. With three or more calls there are more prompts than values, and two mistakes can
// cancel out in a sum. The messages in a trace are not a count of the earlier calls. So the list of
// steps is fetched for three or more calls. All values for a prompt must agree.
//
// Each send needs its own trace, with one exception: a sample of three or more sends whose agent
// has at most one tool needs only the last trace. The other sends are then requests without a
// trace, as in the table below. The agent is read again. The trace of the last send shows that the
// system message is unchanged, and the earlier sends are compared as its history. The exception
// does not apply if a trace shows more: with memory blocks, a conversation, a model override, or a
// send that does not end with an id at which the engine was seen to stop. The policy versions of
// the other sends then need the trace of each call (package policy).
//
// Either all calls of the sample are proven this way, or the results are dropped and the records
// are fetched. The records are needed in these cases:
//
//   - calls that wait for the client, or tools of the client
//   - an overridden system message, a compaction, or tool rules that choose among tools
//   - a call without text and calls
//   - a template that reads the clock: an answer lacks the timestamp of its request
//   - an answer that omits messages or comes from records, or a taken-over agent
//   - a missing trace, or two values that disagree
//
// After finishMisses samples in a row without a trace, the records are fetched immediately.
//
// # How a prompt is bound to its request
//
// The server loads agent, tools and messages once per request and makes every call of the request
// from them. Upstream: agents.py:1731 and letta_agent_v3.py:264-297 are the only places that set
// agent_state; _get_valid_tools chooses the tools of a call from it; a system message is compiled
// again only after a compaction (letta_agent_v2.py:763). So one trace of the request is a witness
// for all of its calls before a compaction. It is the trace of the last call, or of one of the two
// calls before it. stored takes the order of the tools from the witness and rebuilds its call. Both
// are compared message by message. Messages that differ are compared as the template prints them.
// If the texts differ, or the call cannot be rebuilt, stored proves nothing for the request, and
// the traces are tried.
//
// A request without a trace is proven only if nothing in its prompts changes by itself, and the
// agent is unchanged when it is read again.
//
// In the table, "compared" means that the text of the trace must equal the rebuilt text. "Agent
// read again" means that AgentState and system message after the last send must equal AgentState
// and system message before the first send. Otherwise the prompts are quarantined. A single word in
// the last column is the quarantine reason.
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
//	system text, its timestamp,      compared                             read again; never with
//	counts and ids, timezone                                              blocks, a conversation,
//	                                                                      or after a compaction
//	memory blocks, own and shared    in the system text: compared         quarantined
//	override_system                  the native path ignores it; the      system text as above
//	                                 system text is read again
//	override_model                   from the request; the text before    from the request
//	                                 tool calls is kept
//	user messages                    compared                             from the request
//	stored calls, tool texts         compared, up to the traced call      the reply's and the run's;
//	                                                                      only an edit of a stored
//	                                                                      message changes them
//	text cut in a trace (5,000       the whole text, if the count agrees; the turn's
//	characters and more)             never a prompt from that trace
//	sampled tokens                   equal the trace's                    the turn's
//	history before the request       compared                             as each of the above
//	agent edited, attached, detached compared                             agent read again
//	agent taken over from a dead     compared                             quarantined: it was read
//	process                                                               too late
//	after a compaction               from a trace of a call after it      compacted
//	the time that is printed         every possible time: the clock, above
//	template, tokenizer, zone, model not bound: only the count, and doctor, which compares ids
//	behind the same handle           if the server sends them, and the engine's text otherwise
//
// An edit of the agent that is reverted before the agent is read again is not noticed. An agent
// with memory blocks is never proven this way. The agent's own tools edit a block, and so do other
// agents that share it. Each edit compiles the system message again with the old timestamp
// (block_manager.py:60-69). So the text can change and change back.
//
// If a trace shows a tool with other content, or a tool that the agent did not have, the tool was
// changed after the agent was created. Its prompts are quarantined: the trace does not show the
// order in which the server wrote the tool's members.
//
// With [Config.Unverified], which --require any sets, a prompt of the right length without other
// proof is returned as unverified. A contradicted prompt is never returned.
//
// If the source stored is forced, traces are still read as witnesses, but provide no prompts. A
// witness costs one request per send, the largest one besides the send itself (6 to 65 KB). Agents
// with one tool need it as well, apart from the exception above: the two requests that read the
// agent again cost as much and show less.
//
// # Finish reasons
//
// No answer states how a call ended. The server hides length behind a tool call, and reports an
// output that the engine aborted as the end of a turn. finish.go takes the reason from the call's
// trace, or from the id at which an engine was seen to stop. An unknown finish reason is empty.
//
// # Reasons
//
//	no_prompt        nothing to rebuild from, the template refused the messages, or a
//	                 trace shows another text
//	tool_order       the length agrees, and nothing shows the order of several tools
//	trace_lost       the same, because a log-probability of each call of the send is NaN or
//	                 infinite: the server cannot store a trace with such a value
//	clock            the length agrees at several times that the server's clock can have shown
//	count_mismatch   no attempt has the counted length
//	compacted        the server summarized the history before the call
//	hole             turns and steps of a send do not match: the whole sample
//	continuity       a tap changed the prompt, or nothing shows that it did not
//
// Call.Note explains to people what was tried and how each try ended.
//
// # Requests
//
// All records are fetched through package record, which caches them. A sample of one send that is
// rebuilt from its answer needs one or two requests. TestRequests pins more shapes. Behind a tap
// with continuity, each call needs one request for its trace (TestContinuityProof). Any other
// sample needs two small requests per send (steps and messages of its run) and the trace of one
// call. A conversation needs two more per sample, and so does an agent without traces. trace needs
// one large request per send that stored did not settle, or one per call.
//
// Independent requests run concurrently, up to a bound over all samples. A late trace is requested
// up to three times within some 200 ms. [Prompter.Stats] sums requests and time.
//
// A failed request is an error, so the sample is retried on a new agent. It is never a quarantine.
// All reading must end before the agent is deleted, because the server then deletes its runs, steps
// and messages.
package prompt
