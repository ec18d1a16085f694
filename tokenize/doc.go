// Package tokenize turns the bytes of a reply into aligned training rows: token
// ids, log-probabilities and loss mask. It is pure computation: no input or output,
// no clock, no goroutine, no log.
//
//	bytes ──Decoder──► Reply.Turns ──CallsFromTurns──► []Call ──Aligner──► []Row
//
// A turn is one element of turns as the server sends it. A call is one generation
// of the model: the prompt that it saw, and what it sampled. A row is one training
// sequence; a sample, one repetition of a task, gives one row, or several where the
// server rewrote the history between two calls. A span is a stretch of a row with
// one role.
//
// # Shapes
//
// T is the number of tokens of a row, K of its spans. B and G, where other packages
// speak of them, are the samples of a batch and the repetitions of a task.
//
//	InputIDs    [T]  int32    whole sequence, unshifted, unpadded
//	LossMask    [T]  int8     1: sampled by the policy, and a trainer may learn from it
//	Logprobs    [T]  float32  of token i at index i; exactly 0 where the mask is 0
//	Versions    [T]  int32    or nil; -1 if not sampled, or sampled by a version that is
//	                          unknown while another token of the row has one
//	TurnOffsets [K+1] int32   from 0 to T
//	TurnRoles   [K]  int8
//
// # From calls to rows
//
// With O what the model has not seen yet and A what it sampled, three calls
//
//	(O1, A1)  (O1+A1+O2, A2)  (O3, A3)
//
// give two rows
//
//	O1 [A1] O2 [A2]
//	O3 [A3]
//
// where brackets are mask 1. A prompt that begins with the whole open row and is
// longer continues it: what it adds is context, a tool span if a tool turn lies
// between, else a user span. Any other prompt FORKS: the open row is closed and the
// next begins with the true prompt as one prompt span. So every sampled token is
// trained in exactly one row, under exactly the context that the model saw. A
// prompt that ends where the row does, or before, forks as well: it is the same
// place sampled again. Only the open row is compared.
//
// DriftRealign repairs instead of forking where the difference begins inside the
// last output, at most RealignMax tokens before its end: the rest of that output is
// taken out of the row, counted in Trimmed, and what the prompt has instead follows
// as context; Row.Realigned keeps the first ids of both. The price is sampled tokens,
// those of short outputs first. On recorded exchanges no break is shorter than ten tokens.
//
// A quarantined call makes no row, closes the open one, and the next call begins a
// row of its own. Rows without a trainable token are counted and left out, then the
// others are numbered.
//
// # How well a context is proven
//
//	Exact          the engine's own prompt ids: SourceTurns, or SourceTap
//	CountVerified  rebuilt, every length agrees with the server's count, and what keeps
//	               the length is bound to the request
//	Unverified     nothing could be checked: SourceLiteral; or rebuilt with the right
//	               length, and not bound to the request
//	Quarantined    a check failed or the prompt is unknown: never data
//
// A row has the worst grade of its calls.
//
// # Invariants
//
// Row.Check verifies them all:
//
//   - the slices of length T have the same length, and the spans partition [0, T);
//   - mask 1 means that the token was sampled in a captured call: it lies in an
//     assistant span. The reverse does not hold: a token without a usable
//     log-probability has mask 0 and counts in Unscored, as do the tokens after an end of
//     turn with MaskAfterStop. An assistant message in a prompt is context;
//   - a log-probability is from -1000 to 1e-6 under mask 1, and exactly 0, meaning
//     "no information", under mask 0. No logprob is ever invented. Engines write a smaller
//     number for minus infinity, so it counts as missing (UsableLogprob);
//   - PromptLength is the position of the first sampled token;
//   - ids are not negative, and below the size of the engine's vocabulary if it is known.
//     An id that the tokenizer does not name is valid, and the row then has FlagPaddedID;
//   - at least one token is trainable.
//
// Over a sample, Alignment holds
//
//	Sampled == Trained + Unscored + Trimmed + Cut + Lost
//
// # Memory and errors
//
// Decoder, Reply and Aligner are reused by their owner, one sample at a time, and
// allocate nothing once warm. Turns point into their Reply, calls into turns; the
// Aligner copies, so rows own their memory. Input of any kind gives an error, never
// a panic: a *DecodeError for the bytes, an *AlignError for what they say.
//
// # Reading order
//
//	the types           turn.go, call.go, row.go, sample.go; words.go has their words
//	turns to calls      turn_check.go (CallsFromTurns, CheckTurn), counts.go; literal.go without
//	                    prompts
//	calls to rows       align.go, divergence.go, row_append.go; row_check.go has the invariants
//	bytes to turns      decoder.go, decode_reply.go; decode_*.go, one for each kind of value
//	other shapes        scanner.go: the same lists and numbers, in an order that the caller knows
package tokenize
