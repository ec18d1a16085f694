// Package session turns the calls of a session into the calls of a sample.
//
// A session is everything that an agent harness sends to a model through one URL: the calls of its
// main conversation, of its subagents, and of the harness itself. The tap records the calls (package
// collector/tap/proxy), package collector/session/store keeps them, and [Build] finds out which call
// continues which.
//
//	Record ──Build──► Rollout.Calls ──tokenize.Aligner──► rows
//
// Build never changes tokens. A call keeps exactly the prompt that the engine received and exactly
// the tokens that it sampled. So a wrong chain can cost rows, but it cannot put a sampled token into
// another context.
//
// # Which call continues which
//
// A message of a request is an answer if it has the same tool-call ids and names or, without ids, the
// same text. White space at both ends of a text, reasoning, and the form of the arguments do not matter. The
// messages before it must be the messages of the answered request. If the harness changed them, the
// requests must have the same tools or the same system message.
//
// A call continues the call whose answer is the last one in its request. If several answers qualify,
// the same arguments come first, then the most tokens in common with the prompt. Of equal answers, a
// delivered one comes first, then the one that the repeated request continues, then the latest without
// a continuation. If the messages before an answer are others, its ids alone do not prove that it was
// read, because some engines count them from 0 in every conversation. There are two additions:
//
//   - A call continues the call whose prompt and output are the beginning of its prompt, unless the
//     message in the place of the output is the answer of another call.
//   - A call continues a call if its request begins with the messages of that call, followed by an
//     assistant message of unknown origin: the harness could have changed the answer.
//
// # Chains
//
// A chain has one model (Call.Model). A call that continues the answer of another model continues the
// chain of the latest answer before it that comes from its own model, and otherwise forks. The model of
// the main chain is the policy. Chains of other models are never trained.
//
// A chain takes one continuation of each call: a request that extends its tokens, then the request
// whose conversation lasts longest. Any other continuation forks: it begins a new chain. A request
// that continues no call begins a new chain too, with two exceptions, in which the chain's model must be
// the model of the request:
//
//   - It repeats a request whose answer was dropped, or replies to it (see below). Then it is in the
//     chain of that request.
//   - The harness rewrote the history, for example for a compaction. Then the chain that ended last
//     continues in a new row. The request has the tools of the chain. It also has the first user
//     message of the chain, or its system message and a summary: the text of a call without tools that
//     began after the chain ended, or the text of the last answer of the main chain. If the chain
//     ended with a tool call or at the token limit, a call without tools is enough.
//
// The kind of a chain depends on its first request:
//
//	request                                                                kind
//	contains the task's prompt in a user message; with tools, then first   main: chain 0 (of equal first
//	                                                                       requests, the longest chain)
//	goes to another model than the main chain                              auxiliary
//	forks from a chain, with a tool of that chain or its tokens            as that chain
//	forks from a chain, without its tools                                  auxiliary
//	has no tools, or no tool of the main chain                             auxiliary
//	begins with answers of another chain                                   auxiliary
//	any other                                                              subagent
//
// If a later request with the chain's tools contains the answer of a fork without tools, the fork has
// the kind of its chain. One tool of the main chain is enough for a subagent. The task's prompt is
// compared without backslashes and with single spaces, because some harnesses quote it. If no request
// contains it, Build returns [ErrForeign].
//
// # Which call started a subagent
//
// The chain of a subagent has a parent (Chain.Parent) if requests prove it. The parent is the model call
// whose answer contains the tool call. All of these must be true:
//
//   - The last user message in the first request of the subagent is equal to a string in the arguments of
//     the tool call. If the string has at least 32 bytes, the message can also end with it, in a new
//     line. No other answer that ended before the first request, or before its last repetition, has a call
//     with a string that is equal to the message or to its end after a line break.
//   - A later request contains the answer with the tool call, directly followed by the result of this
//     call. The result has the id of the call. No other call has an equal answer in this place.
//   - The result contains the text of an answer of the subagent. The text has at least 32 bytes. If the
//     result also contains answers of other chains, none of these chains waited for a tool during all
//     calls of the subagent.
//   - The answer with the tool call ended before the first request of the subagent began. The answer of
//     the subagent ended before the request with the result began.
//   - No earlier message contains the text. No other answer contains it, except for equal answers of
//     other chains. In that case, there must be at least as many results with the text as chains with
//     this answer.
//
// If no result contains the text, it can have come later: from a tool that waits for agents, or in a
// user or system message. Then these must be true in place of the rules for the result:
//
//   - The string in the arguments has at least 32 bytes. The answer with the tool call is the last answer
//     of its conversation that ended before the first request of the subagent began.
//   - A later request of the conversation with the tool call contains the text of an answer of the
//     subagent. The message with the text is not an answer. The text has at least 32 bytes, and no
//     earlier message and no other answer contains it.
//
// The proof must identify exactly one model call. Each call of the chain must read an earlier answer of
// the chain, or repeat a request whose answer was not delivered. Otherwise, the chain could contain two
// conversations. Forks and auxiliary chains have no parent. Headers and shorter texts prove nothing.
//
// Call.Agent and Call.ParentAgent are hints. They help to choose between several candidates, and
// between chains with equal answers. A call does not count if its Agent differs from the chain's
// ParentAgent.
//
// # Which answers are trained
//
// An answer is trained if a later request proves that the harness read it, or if the answer was
// delivered and is the last one of its conversation. A request that failed is proof too. Proof is a
// request of which one is true:
//
//   - It contains the answer, after the messages of the answered request. If several answers with the
//     same ids qualify, the arguments must be the same.
//   - Its prompt begins with the prompt and the output. A cut answer needs this proof.
//   - It has a form of the answer in its place, and no other answer has this form. If both call tools,
//     one call has the same name, and the same id or arguments. Otherwise a text contains the answer's
//     text, is a part of it, or contains the names and the arguments of all tool calls. A part of less
//     than 32 bytes must be the beginning, and end with a word.
//   - It began after the answer ended, has the same tools or system message (see above), and contains
//     the answer in a history that the harness changed: after the message that the answer replies to,
//     if no request that began before the answer ended contained this; or anywhere, if the answered
//     request did not contain it and no other answer has the same text or calls.
//   - It began after the answer ended, and contains it in the history of another conversation, as a
//     request for a summary does: after the message that the answer replies to. No request that began
//     before the answer ended contained this, and no other answer to this message is the same.
//   - It quotes the text, as the result of a subagent does. The text has at least 32 bytes, and no
//     other answer and no earlier message contained it by then.
//
// Delivered means that the whole answer was written to a client that was still connected. The answer
// is not the last one if a later request repeats its request, has an unknown message in its place, or
// continues the chain with a rewritten history.
//
// A request repeats a call if it began after the call ended, has the same tools, and begins with all
// messages of the call, or with all since the last answer, but does not contain an answer after them.
// The repeat is equal if all messages are the same. Equal requests that overlap in time are
// conversations of their own. A request that failed, or whose answer was not delivered, explains one
// repeat, so that this repeat does not count for delivered answers.
//
// The harness rejected an answer if the repeat adds a new user message and no tool result. If the
// answer calls tools, the message must name one of them. It proves nothing if it is the first user
// message or contains the task, or if the client states that the repeat is a retry. The harness also
// rejected an answer if it sends the same messages with other tools.
//
// The first line that applies decides:
//
//	call                                                                          reason
//	in a chain of another model than the main chain                               auxiliary
//	in an auxiliary chain, without Config.TrainAuxiliary                          auxiliary
//	the numbers of ids and log-probabilities differ                               length_mismatch
//	the routed experts or sampling masks do not match the call's tokens           length_mismatch
//	complete, but the ids are missing or their number is not the engine's count   no_ids
//	proved                                                                        trained
//	delivered, and the client states that the repeat is a retry of this call      superseded
//	delivered, and the last one of its conversation                               trained
//	not delivered, and there is an equal repeat                                   superseded
//	not delivered                                                                 cut_answer
//	delivered, but stopped by the token limit or the engine                       cut_answer
//	delivered and rejected                                                        trained
//	any other                                                                     ambiguous_retry
//
// The client states a retry with x-stainless-retry-count. This proves nothing if it could be a retry
// of several delivered answers. A request without an answer has no tokens. It is only counted, in
// Rollout.Failed.
//
// # Cost
//
// Build takes time in proportion to the tokens, the messages of all requests and the texts: 20,000
// calls in small conversations take less than a second. Sequences of tokens are compared by the sums
// of their beginnings, and a continuation is then verified token by token.
//
// # Reading order
//
//	types         record.go, build.go
//	requests      builder.go, message.go, tokens.go
//	evidence      parent.go, quote.go, repeat.go
//	decisions     fate.go, chain.go, rewrite.go, kind.go, lineage.go, prompted.go
//	result        rollout.go
package session
