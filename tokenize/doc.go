// Package tokenize turns the bytes of a reply into aligned training rows: token ids,
// log-probabilities and loss mask. It is pure computation: no I/O, clock, goroutine or log.
//
//	bytes ──Decoder──► Reply.Turns ──CallsFromTurns──► []Call ──Aligner──► []Row
//
// A turn is one element of the server's `turns`. A call is one generation of the model: its prompt
// and the tokens that it sampled. A row is one training sequence. A sample is one repetition of a
// task. A sample has one row, or several rows if the server rewrote the history between two calls.
// A span is a contiguous part of a row with one role.
//
// # Shapes
//
// T is the number of tokens of a row, and K is the number of its spans. In other packages, B is the
// number of samples in a batch and G is the number of repetitions of a task.
//
//	InputIDs    [T]  int32    whole sequence, unshifted, unpadded
//	LossMask    [T]  int8     1: sampled by the policy, and a trainer can learn from it
//	Logprobs    [T]  float32  of token i at index i; exactly 0 if the mask is 0
//	Versions    [T]  int32    or nil; -1 if the token was not sampled, or its version is
//	                          unknown while another token of the row has one
//	TurnOffsets [K+1] int32   from 0 to T
//	TurnRoles   [K]  int8
//
// # From calls to rows
//
// With O for tokens that the model has not seen yet and A for tokens that it sampled, three calls
//
//	(O1, A1)  (O1+A1+O2, A2)  (O3, A3)
//
// give two rows
//
//	O1 [A1] O2 [A2]
//	O3 [A3]
//
// with mask 1 in brackets. A prompt continues the open row if it begins with the whole row and is
// longer. The rest of the prompt is appended as context: a tool span if a tool turn is between the
// two calls, otherwise a user span. Any other prompt FORKS: the open row is closed, and the next
// row begins with the true prompt as one prompt span. So every sampled token is trained in exactly
// one row, with exactly the context that the model saw. A prompt that ends at or before the end of
// the row also forks: the model sampled again at the same position. Only the open row is compared.
//
// DriftRealign repairs the row instead of forking if the difference begins inside the last output,
// at most RealignMax tokens before its end. The rest of that output is removed from the row and
// counted in Trimmed. The rest of the prompt follows as context. Row.Realigned keeps the first ids
// of both. The repair drops sampled tokens, and short outputs are affected most. In recorded
// exchanges, every difference begins at least ten tokens before the end of the output.
//
// A quarantined call is in no row and closes the open row. The next call starts a new row. Rows
// without a trainable token are counted and dropped. Then the remaining rows are numbered.
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
// Row.Check verifies them all:
//
//   - The slices of length T have the same length, and the spans partition [0, T).
//   - Mask 1 means that the token was sampled in a captured call, so it is in an assistant
//     span. The reverse does not hold: a token without a usable log-probability has mask 0
//     and counts in Unscored, as do tokens after an end of turn with MaskAfterStop.
//     An assistant message in a prompt is context.
//   - A log-probability is from -1000 to 1e-6 under mask 1, and exactly 0, meaning "no
//     information", under mask 0. No log-probability is ever invented. Engines write a smaller
//     number for minus infinity, so it counts as missing (UsableLogprob).
//   - PromptLength is the position of the first sampled token.
//   - Ids are not negative, and are below the engine's vocabulary size if it is known. An id
//     that the tokenizer does not name is valid, and its row has FlagPaddedID.
//   - At least one token is trainable.
//
// For each sample, Alignment satisfies
//
//	Sampled == Trained + Unscored + Trimmed + Cut + Lost
//
// # Memory and errors
//
// The owner of a Decoder, Reply or Aligner reuses it, one sample at a time. Once warm, decoding
// does not allocate, and aligning allocates only the rows. Turns point into their Reply, and calls
// point into turns. The Aligner copies the data, so rows own their memory. Invalid input returns an
// error and never panics: *DecodeError for malformed bytes, *AlignError for invalid content.
//
// # Reading order
//
//	types               turn.go, call.go, row.go, sample.go; words.go has their words
//	turns to calls      turn_check.go (CallsFromTurns, CheckTurn), counts.go; literal.go
//	                    if there are no prompts
//	calls to rows       align.go, divergence.go, row_append.go; row_check.go has the invariants
//	bytes to turns      decoder.go, decode_reply.go; one decode_*.go per kind of value
//	other shapes        scanner.go: the same lists and numbers in a shape that the caller knows
package tokenize
