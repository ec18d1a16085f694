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
// A request contains an answer if one of its messages is that answer. Harnesses write the arguments
// of tool calls in another form and drop reasoning. So a message is an answer if it calls the same
// tools by id. If the answer has no tool-call ids, the text must be the same, except for white space
// at its ends. The messages before it must be the messages of the answered request. If the harness
// changed them, the requests must have the same tools or the same system message.
//
// A call continues the call whose answer is the last one in its request. If several answers qualify,
// because several requests were the same, an answer with the same text and arguments comes first, then
// the answer of which the prompt has the most tokens. If the prompt begins with the whole prompt and
// output of a call, and has more tokens in common with it than with any other call, it continues that
// call. The only exception: the message in the place of the answer is the answer of another call. A
// cut answer and its repetition can begin with the same tokens.
//
// The harness can change an answer, for example by removing a part. So a request also continues a
// call if it begins with the messages of that call, followed by an assistant message.
//
// # Chains
//
// A chain takes one continuation of each call: a request that extends its tokens, then the request
// whose conversation lasts longest. Any other continuation forks: it begins a new chain. A request
// that continues no call begins a new chain too, with two exceptions:
//
//   - It repeats a request whose answer was dropped, or replies to it (see below). Then it is in the
//     chain of that request.
//   - The harness rewrote the history, for example for a compaction. The request has the tools of a
//     chain that ended before and that no call continues. It also has the first user message of that
//     chain, or its system message and a summary: a call between them without the chain's tools, or
//     the last answer of the chain. If the chain ended with an answer without tool calls, the request
//     must contain the text of the summary. Then the chain continues with the request, in a new row.
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
// Delivered means that the whole answer was written to a client that was still connected. A request
// repeats a call if it began after the call ended, has the same tools and begins with all messages of
// the call, but does not contain an answer after them. The repeat is equal if it has no other
// messages. A request that failed, or whose answer was not delivered, explains one repeat. An
// explained repeat is not evidence about delivered answers. The first line that applies decides:
//
//	call                                                                          reason
//	in an auxiliary chain, without Config.TrainAuxiliary                          auxiliary
//	the numbers of ids and log-probabilities differ                               length_mismatch
//	complete, but the ids are missing or their number is not the engine's count   no_ids
//	complete, and a later request contains the answer                             trained
//	cut, and the prompt that continues it begins with its prompt and output       trained
//	delivered, and the client states that the repeat is a retry of this call      superseded
//	delivered, and there is no repeat                                             trained
//	not delivered, and there is an equal repeat                                   superseded
//	not delivered                                                                 cut_answer
//	delivered, but stopped by the token limit or the engine                       cut_answer
//	delivered: a text that ends a conversation of one call, which does not state  trained
//	the task; the repeat is equal
//	delivered, and the repeat is a reply                                          trained
//	any other                                                                     ambiguous_retry
//
// So an empty answer after which the harness sends the same request again is ambiguous_retry: nothing
// proves that the harness read it, even if it was delivered. A request that failed can also contain an
// answer, and proves that the harness read it.
//
// Requests that are equal and overlap in time are never repeats: they are conversations of their
// own. The client states a retry with x-stainless-retry-count. The statement proves nothing if the
// request could be a retry of several delivered answers.
//
// A request without an answer has no tokens. It is only counted, in Rollout.Failed.
//
// # Cost
//
// Build reads each token and each message a small number of times. Sequences of tokens are compared
// by the sums of their beginnings, and a continuation is then verified token by token.
//
// # Reading order
//
//	types         record.go, build.go
//	requests      builder.go, message.go, tokens.go
//	decisions     parent.go, fate.go, chain.go, kind.go
//	result        rollout.go
package session
