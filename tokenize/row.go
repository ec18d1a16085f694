package tokenize

// A Row is one training sequence: T tokens in model order, unshifted and
// unpadded, with one entry per token in every parallel slice, and K spans.
//
// The slices grow together, only through AppendSampled and AppendContext, so
//
//	len(InputIDs) == len(LossMask) == len(Logprobs) == T
//	Versions is nil or has length T
//	TurnOffsets[0] == 0, TurnOffsets[K] == T, non-decreasing, length K+1
//	TurnRoles has length K
//
// A Row owns its memory; Reset keeps it for reuse.
type Row struct {
	// InputIDs is the whole sequence.
	InputIDs []int32

	// LossMask is 1 where the policy sampled the token in a captured call and a
	// trainer may learn from it, else 0. It follows provenance, never role.
	LossMask []int8

	// Logprobs[i] is the natural log of the probability that the engine reported
	// for InputIDs[i]. It is from -1000 to 1e-6 if LossMask[i] is 1. It is exactly 0 if
	// LossMask[i] is 0, meaning "no information", not "probability one".
	// Source: turns[].output_token_logprobs[j][0] (Letta).
	Logprobs []float32

	// Versions[i] is the policy version that sampled token i, -1 if the token was not
	// sampled or its version is unknown. Nil if no version is known.
	Versions []int32

	// TurnOffsets and TurnRoles partition the sequence into spans: span k is
	// [TurnOffsets[k], TurnOffsets[k+1]) and has role TurnRoles[k].
	TurnOffsets []int32
	TurnRoles   []int8

	// PromptLength is the number of tokens before the first sampled one.
	PromptLength int32

	// SegmentIndex of SegmentCount is the row's place among the rows of its sample.
	SegmentIndex, SegmentCount int32

	// Grade is the worst of the row's calls, Source where their prompts come from.
	Grade  Grade
	Source PromptSource

	// Divergence says why this row is not the continuation of the calls before it;
	// nil where there were none. (The row before may have been left out.)
	Divergence *Divergence

	// Realigned has one entry for each output of this row whose end DriftRealign
	// replaced, in order; empty where there was none. Row holds what was sampled,
	// Prompt what stands there now: Offset is a place in this row.
	Realigned []Divergence

	// Unscored counts sampled tokens of this row under mask 0: tokens without a usable
	// log-probability, and with AlignConfig.MaskAfterStop tokens after an end of turn.
	// Trimmed counts sampled tokens that DriftRealign replaced.
	Unscored, Trimmed int32

	// Truncated says that the row's end is known not to be one that the policy chose:
	// the row was cut at the row limit (FlagCut), or the engine's limit of tokens
	// ended its last output (FlagLength). It says nothing of outputs before the last,
	// nor of a rollout that used up its steps, which is the sample's Status. Where it
	// is false and the last of FinishReasons is empty, the end is not known.
	Truncated bool

	// Flags is a subset of the closed list of flags.
	Flags Flags

	// FirstCall and LastCall are the indexes of the row's calls within the sample,
	// [FirstCall, LastCall).
	FirstCall, LastCall int32
	// FinishReasons and StepIDs have one entry per call; empty where unknown. See
	// Call.FinishReason.
	FinishReasons, StepIDs []string

	// memory kept by Reset for fields that are nil when empty
	spareVersions   []int32
	spareDivergence *Divergence
}

// Flags is a set of the flags of a row.
type Flags uint16

// The flags. Their names, as written to the flags column, are in flagWords.
const (
	FlagCut               Flags = 1 << iota // cut by us at the row limit, at the end of an output
	FlagClientToolContext                   // a client-made tool result that the model saw as empty text
	_                                       // taken by censored, which is never set: a sample that the tail policy cut has no row
	FlagSurplusLogprobs                     // more log-probabilities than ids, and those of the ids come first; the rest is left out
	FlagRealigned                           // DriftRealign replaced the end of an output
	FlagReattached                          // tokens from the record of a server run whose answer was not received
	FlagLength                              // the engine's limit of tokens ended the row's last output
	FlagSpliced                             // the tap gave the engine tokens that it had sampled, in place of the server's print of them
	FlagAfterStop                           // an output of the row has tokens after its first end-of-turn id
	FlagPaddedID                            // the row has an id of the engine's padded vocabulary that the tokenizer does not name
)
