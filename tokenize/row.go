package tokenize

// A Row is one training sequence: T tokens in model order, unshifted and unpadded, with one entry
// per token in every parallel slice, and K spans.
//
// The slices grow together, only through AppendSampled and AppendContext, so
//
//	len(InputIDs) == len(LossMask) == len(Logprobs) == T
//	Versions is nil or has length T
//	TurnOffsets[0] == 0, TurnOffsets[K] == T, non-decreasing, length K+1
//	TurnRoles has length K
//
// A Row owns its memory.
type Row struct {
	InputIDs []int32

	// LossMask is 1 if the policy sampled the token in a captured call and a trainer can learn from
	// it, otherwise 0. It depends on the token's provenance, never on its role.
	LossMask []int8

	// Logprobs[i] is the natural log of the probability that the engine reported for InputIDs[i].
	// It is from -1000 to 1e-6 if LossMask[i] is 1. It is exactly 0, meaning "no information", if
	// LossMask[i] is 0. Source: turns[].output_token_logprobs[j][0] (Letta).
	Logprobs []float32

	// Versions[i] is the policy version that sampled token i, or -1 if the token was not sampled or
	// its version is unknown. Nil if no version is known.
	Versions []int32

	// TurnOffsets and TurnRoles partition the sequence into spans: span k is
	// [TurnOffsets[k], TurnOffsets[k+1]) and has role TurnRoles[k].
	TurnOffsets []int32
	TurnRoles   []int8

	// PromptLength is the number of tokens before the first sampled token.
	PromptLength int32

	// SegmentIndex of SegmentCount is the row's place among the rows of its sample.
	SegmentIndex, SegmentCount int32

	// Grade is the worst grade of the row's calls, and Source is the prompt source of that call.
	Grade  Grade
	Source PromptSource

	// Divergence is the reason why this row does not continue the calls before it. It is nil if
	// there are no earlier calls. (The previous row can have been dropped.)
	Divergence *Divergence

	// Realigned has one entry, in order, for each output whose end DriftRealign replaced: the
	// sampled ids (Row), their replacement (Prompt) and its position in this row (Offset).
	Realigned []Divergence

	// Unscored counts the sampled tokens of this row that have mask 0: tokens without a usable
	// log-probability and, with AlignConfig.MaskAfterStop, tokens after a stop id. Trimmed counts
	// sampled tokens that DriftRealign replaced.
	Unscored, Trimmed int32

	// Truncated reports that the policy did not choose the row's end: the row was cut at the row
	// limit (FlagCut), or the engine's token limit ended its last output (FlagLength). It does not
	// describe earlier outputs, nor a rollout that used up its steps (Sample.Status). If it is
	// false and the last of FinishReasons is empty, the cause of the end is unknown.
	Truncated bool

	Flags Flags

	// FirstCall and LastCall are the range of the row's calls within the sample: [FirstCall,
	// LastCall).
	FirstCall, LastCall int32
	// FinishReasons and StepIDs have one entry per call. An entry is empty if unknown. See
	// Call.FinishReason.
	FinishReasons, StepIDs []string
}

// Flags is a set of the flags of a row.
type Flags uint16

// The flags. flagWords has their names in the `flags` column.
const (
	FlagCut               Flags = 1 << iota // cut by the Aligner at the row limit, at the end of an output
	FlagClientToolContext                   // a tool result from the client that the model saw as empty text
	_                                       // censored: never set, because a sample that the tail policy cuts off has no rows
	FlagSurplusLogprobs                     // the engine sent more log-probabilities than ids; the surplus was dropped
	FlagRealigned                           // DriftRealign replaced the end of an output
	FlagReattached                          // the tokens come from the record of a server run whose answer was lost
	FlagLength                              // the engine's token limit ended the row's last output
	FlagSpliced                             // the tap sent the engine the ids that it had sampled, instead of the ids of the server's text
	FlagAfterStop                           // an output of the row has tokens after its first end-of-turn id
	FlagPaddedID                            // the row has an id of the padded vocabulary, which the tokenizer does not name
)
