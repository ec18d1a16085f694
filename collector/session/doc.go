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
// Harnesses write the arguments of tool calls in another form, and drop reasoning. So a message is an
// answer if it has the same tool-call ids. If the answer has no ids, the text must be the same, except
// for white space at its ends. The messages before it must be the messages of the answered request.
// If the harness changed them, the requests must have the same tools or the same system message.
//
// A call continues the call whose answer is the last one in its request. If several answers qualify,
// an answer with the same arguments comes first, then the answer whose prompt and output have the most
// tokens in common with the prompt. There are two additions:
//
//   - A call continues the call whose prompt and output are the beginning of its prompt, unless the
//     message in that place is the answer of another call: a cut answer and its repetition can begin
//     with the same tokens.
//   - A call continues a call if its request begins with the messages of that call, followed by an
//     assistant message that is not an answer: the harness can have changed the answer.
//
// # Chains
//
// A chain takes one continuation of each call: a request that extends its tokens, then the request
// whose conversation lasts longest. Any other continuation forks: it begins a new chain. A request
// that continues no call begins a new chain too, with two exceptions:
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
// # Which answers are trained
//
// An answer is trained if the harness read it. One of these proves it:
//
//   - A later request contains the answer. If several answers have the same ids in this place, the
//     text and the arguments must be the same too.
//   - The prompt of a later request begins with the prompt and the output.
//   - A later request has a message in the place of the answer that is derived from it: it shares a
//     tool-call id, or has the same tools and arguments; one text contains the other; or the text
//     contains the names and the string arguments of all tool calls.
//   - A later request contains the history of the conversation, such as a request for a summary: the
//     tool-call ids, or the text after the same message, and no other answer is the same.
//   - A later message contains the text, such as the result of a subagent. The text has at least 32
//     bytes, and no other answer had the same text by then.
//
// A request that failed can also prove it. A cut answer needs the second proof.
//
// Without a proof, an answer is trained only if it was delivered and is the last one of its
// conversation. Delivered means that the whole answer was written to a client that was still
// connected. The answer is not the last one if a later request repeats the request without the
// answer, has an unknown message in its place, or rewrites the history. A request repeats a call if it
// began after the call ended, has the same tools, and begins with all messages of the call, but does
// not contain an answer after them. If the harness changed the messages before them, the messages
// since the last answer are enough. The repeat is equal if it has no other messages. A request that
// failed, or whose answer was not delivered, explains one repeat. An explained repeat is not evidence
// about delivered answers. The first line that applies decides:
//
//	call                                                                          reason
//	in an auxiliary chain, without Config.TrainAuxiliary                          auxiliary
//	the numbers of ids and log-probabilities differ                               length_mismatch
//	complete, but the ids are missing or their number is not the engine's count   no_ids
//	proved                                                                        trained
//	delivered, and the client states that the repeat is a retry of this call      superseded
//	delivered, and the last one of its conversation                               trained
//	not delivered, and there is an equal repeat                                   superseded
//	not delivered                                                                 cut_answer
//	delivered, but stopped by the token limit or the engine                       cut_answer
//	delivered, and the harness rejected it                                        trained
//	any other                                                                     ambiguous_retry
//
// Some harnesses reject an answer: they drop it, and state why in a user message. The repeat is such a
// reply if it adds a user message that is neither the task nor the first user message, and no tool
// result, and if the client does not state that it is a retry. If the answer calls tools, the reply
// must name one of them. A harness also rejected an answer if it sends the same messages with other
// tools.
//
// So an empty answer after which the harness sends the same request again is ambiguous_retry: nothing
// proves that the harness read it, even if it was delivered. The same is true for the only answer of a
// subagent if another subagent begins later with the same request, and no message contains the text.
//
// Requests that are equal and overlap in time are never repeats: they are conversations of their
// own. The client states a retry with x-stainless-retry-count. The statement proves nothing if the
// request could be a retry of several delivered answers.
//
// A request without an answer has no tokens. It is only counted, in Rollout.Failed.
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
//	decisions     fate.go, chain.go, rewrite.go, kind.go
//	result        rollout.go
package session
