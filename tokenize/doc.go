// Package tokenize turns the bytes of a reply into aligned training rows: token ids,
// log-probabilities and loss mask. It only computes: it opens no files or connections, reads no
// clock, starts no goroutines and writes no log.
//
//	bytes ──Decoder──► Reply.Turns ──CallsFromTurns──► []Call ──Aligner──► []Row
//
// A turn is one element of the server's `turns`. A call is one generation by the model: the prompt
// and the tokens that the model sampled. A row is one training sequence. A sample is one repetition
// of a task. A sample has one row, or several rows if the server rewrote the history between two
// calls. A span is a contiguous part of a row with one role.
//
// # Shapes
//
// T is the number of tokens in a row, and K is the number of spans in the row. In other packages, B
// is the number of samples in a batch and G is the number of repetitions of a task.
//
//	InputIDs    [T]  int32    whole sequence, unshifted, unpadded
//	LossMask    [T]  int8     1: sampled by the policy, and a trainer can learn from it
//	Logprobs    [T]  float32  log-probability of token i at index i; exactly 0 if the mask is 0
//	Versions    [T]  int32    nil if no version is known; -1 if the token was not sampled
//	                          or its version is unknown
//	TurnOffsets [K+1] int32   from 0 to T
//	TurnRoles   [K]  int8
//
// # Values from inside a call
//
// Engines can return more per token than its log-probability. AlignConfig.Inside selects which of
// these values rows keep; by default, none.
//
//	WeightVersions, WeightVersionEnds  [V]    names of the weight versions, as runs of tokens
//	Experts             [T, layers, top_k]    experts to which the router sent the token
//	SamplingMask        [sum of MaskLengths]  ids among which the token was sampled
//	MaskLengths         [T]
//
// A value is in a row only if the engine returned it for this token after exactly the tokens before
// it. Each call also returns the experts of its prompt. A token has the experts of the first call in
// its row that has them. For a sampled token, this is the call that sampled it. The last token of an
// output is an exception, because the engine computes it in the next call. All other tokens have a
// filler: expert -1, the empty name, and a mask of length 0. Values of another shape are an error.
// They are never padded.
//
// # From calls to rows
//
// In the following example, O stands for tokens that the model has not seen before, and A for
// tokens that it sampled. The three calls
//
//	(O1, A1)  (O1+A1+O2, A2)  (O3, A3)
//
// become two rows, in which the tokens in brackets have mask 1:
//
//	O1 [A1] O2 [A2]
//	O3 [A3]
//
// A prompt continues the open row if it begins with the whole row and is longer. The rest of the
// prompt is appended as context: a tool span if a tool turn is between the two calls, otherwise a
// user span. Any other prompt FORKS: the open row is closed, and the next row begins with the new
// prompt as one prompt span. So every sampled token is in exactly one row, with exactly the context
// that the model saw. A prompt that ends at or before the end of the row also forks, because the
// model then sampled a second time at the same position. A prompt is compared only with the open
// row. A row never contains calls of two chains (Call.Chain): the first call of a chain starts a new
// row that has no divergence.
//
// If the difference begins inside the last output, at most RealignMax tokens before its end,
// DriftRealign repairs the row instead of forking. The rest of the output is removed from the row
// and counted in Trimmed, and the rest of the prompt is appended as context. Row.Realigned keeps
// the first ids of the removed tokens and of the tokens that replace them. The repair drops sampled
// tokens. Short outputs lose the largest share of their tokens. In recorded exchanges, every
// difference begins at least ten tokens before the end of the output.
//
// A quarantined call is in no row and closes the open row. The next call starts a new row. Rows
// without a trainable token are counted and dropped. The remaining rows are then numbered.
//
// # How well a context is proven
//
//	Exact          the engine's own prompt ids: SourceTurns or SourceTap
//	CountVerified  rebuilt; every length equals the server's count, and changes that keep
//	               the length are ruled out by evidence about the request
//	Unverified     nothing could be checked (SourceLiteral), or the prompt was rebuilt with
//	               the right length but without such evidence
//	Quarantined    a check failed or the prompt is unknown: never data
//
// A row has the worst grade of its calls.
//
// # Invariants
//
// Row.Check verifies these invariants:
//
//   - All slices with one entry per token have the same length T, and the spans partition [0, T).
//   - Mask 1 means that the token was sampled in a captured call, so it is in an assistant span.
//     The converse does not hold. A token without a usable log-probability has mask 0 and counts in
//     Unscored. With MaskAfterStop, the same is true of a token after a stop id. An assistant
//     message in a prompt is context.
//   - With mask 1, a log-probability is between -1000 and 1e-6. With mask 0, it is exactly 0, which
//     means "no information". No log-probability is ever invented. Engines write a number below
//     -1000 for minus infinity, so such a number counts as missing (see UsableLogprob).
//   - PromptLength is the position of the first sampled token.
//   - Ids are not negative. If the engine's vocabulary size is known, they are below that size. An
//     id that the tokenizer does not define is valid, and its row has FlagPaddedID.
//   - At least one token is trainable.
//   - Chain 0 has the kind ChainMain.
//
// For each sample, the Alignment satisfies
//
//	Sampled == Trained + Unscored + Trimmed + Cut + Lost
//
// # Memory and errors
//
// Reuse a Decoder, Reply or Aligner for one sample after another. After the first samples, decoding
// does not allocate memory, and aligning allocates only the rows. Turns and calls point into the
// memory of a Reply. The Aligner copies the data, so rows own their memory. Invalid input leads to
// an error and never to a panic: a *DecodeError for malformed bytes, an *AlignError for invalid
// content.
//
// # Reading order
//
//	types               turn.go, call.go, row.go, sample.go; words.go names their values
//	turns to calls      turn_check.go (CallsFromTurns, CheckTurn), counts.go; literal.go
//	                    if there are no prompts
//	calls to rows       align.go, divergence.go, row_append.go, inside.go; row_check.go checks the
//	                    invariants
//	bytes to turns      decoder.go, decode_reply.go; one decode_*.go per kind of value
//	other documents     scanner.go: the same lists and numbers in other JSON documents
package tokenize
