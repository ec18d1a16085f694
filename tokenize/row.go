package tokenize

// A Row is one training sequence: T tokens in model order, unshifted and unpadded, in K spans. Each
// parallel slice has one entry per token.
//
// Only AppendSampled and AppendContext extend the slices. They extend all slices together, so
//
//	len(InputIDs) == len(LossMask) == len(Logprobs) == T
//	Versions is nil or has length T; see also Experts and MaskLengths
//	TurnOffsets[0] == 0, TurnOffsets[K] == T, non-decreasing, length K+1
//	TurnRoles has length K
//
// A Row owns its memory.
type Row struct {
	InputIDs []int32

	// LossMask[i] is 1 if the policy sampled token i in a captured call and a trainer can learn
	// from the token, otherwise 0. The mask depends on where the token came from, never on its
	// role.
	LossMask []int8

	// Logprobs[i] is the natural log of the probability that the engine reported for InputIDs[i].
	// If LossMask[i] is 1, Logprobs[i] is between -1000 and 1e-6. If LossMask[i] is 0, Logprobs[i]
	// is exactly 0, which means "no information". Source: turns[].output_token_logprobs[j][0]
	// (Letta).
	Logprobs []float32

	// Versions[i] is the policy version that sampled token i, or -1 if the token was not sampled or
	// its version is unknown. Versions is nil if no version is known.
	Versions []int32

	// WeightVersions and WeightVersionEnds are runs of tokens with one weight version, by the engine's
	// own name for it. Run k ends before token WeightVersionEnds[k], and begins where the run before it
	// ends. The name is empty if the tokens were not sampled or their version is unknown. Both lists are
	// nil unless AlignConfig.Inside selects them and a name is known.
	WeightVersions    []string
	WeightVersionEnds []int32

	// Experts holds the routed experts of all T tokens. A token has the values from the first call of
	// the row that has them: the call that sampled the token or, for context and for the last token of
	// an output, the first call whose prompt contains the token. All ids of a token are -1 if no call
	// has them. So the last token of the row always has -1. Experts.IDs is nil unless AlignConfig.Inside
	// selects the experts and a call has them.
	Experts Experts

	// MaskLengths holds, for each token, the number of ids among which the engine sampled the token,
	// after top-k, top-p and min-p. It is 0 if the token was not sampled or the ids are unknown.
	// SamplingMask holds these ids, one list after the other. A list contains the token itself. Both
	// are nil unless AlignConfig.Inside selects them and a call has them.
	SamplingMask, MaskLengths []int32

	// TurnOffsets and TurnRoles partition the sequence into spans: span k is
	// [TurnOffsets[k], TurnOffsets[k+1]) and has role TurnRoles[k].
	TurnOffsets []int32
	TurnRoles   []int8

	// PromptLength is the number of tokens before the first sampled token.
	PromptLength int32

	// Chain and ChainKind are the fields of the row's calls. If Chain is 0, ChainKind is ChainMain.
	Chain     int32
	ChainKind ChainKind

	// Parent is Call.Parent of the row's calls. It is zero unless ChainKind is ChainSubagent.
	Parent Parent

	// SegmentIndex is the index of the row among the SegmentCount rows of its sample.
	SegmentIndex, SegmentCount int32

	// Grade is the worst grade among the row's calls, and Source is the prompt source of the call
	// with that grade.
	Grade  Grade
	Source PromptSource

	// Divergence describes why this row does not continue the row before it. That earlier row might
	// have been dropped. Divergence is nil if there are no earlier calls.
	Divergence *Divergence

	// Realigned has one entry, in order, for each output whose end DriftRealign replaced. An entry
	// holds the sampled ids (Row), the ids that replaced them (Prompt) and the position in this row
	// (Offset).
	Realigned []Divergence

	// Unscored counts the sampled tokens of this row that have mask 0: tokens without a usable
	// log-probability and, with AlignConfig.MaskAfterStop, tokens after a stop id. Trimmed counts
	// the sampled tokens that DriftRealign replaced.
	Unscored, Trimmed int32

	// Truncated is true if the policy did not choose the row's end: the row was cut at the row
	// limit (FlagCut), or the engine's token limit ended the last output (FlagLength). Truncated
	// does not depend on earlier outputs, or on whether the rollout used up its steps (see
	// Sample.Status). If Truncated is false and the last element of FinishReasons is empty, the
	// cause of the row's end is unknown.
	Truncated bool

	Flags Flags

	// FirstCall and LastCall delimit the row's calls among the calls of the sample: [FirstCall,
	// LastCall).
	FirstCall, LastCall int32
	// FinishReasons and StepIDs have one entry per call. An entry is empty if the value is unknown.
	// See Call.FinishReason.
	FinishReasons, StepIDs []string
}

// Flags is a set of row flags.
type Flags uint16

// The flags. flagWords lists their names in the `flags` column.
const (
	FlagCut               Flags = 1 << iota // the Aligner cut the row at the row limit, at the end of an output
	FlagClientToolContext                   // the row has a tool result from the client that the model saw as empty text
	_                                       // censored: never set, because a sample that the tail policy cuts off has no rows
	FlagSurplusLogprobs                     // the engine sent more log-probabilities than ids; the surplus was dropped
	FlagRealigned                           // DriftRealign replaced the end of an output
	FlagReattached                          // the tokens come from the record of a server run whose answer was lost
	FlagLength                              // the engine's token limit ended the row's last output
	FlagSpliced                             // the tap sent the engine its earlier answers as it had sampled them, instead of in the server's or the client's form
	FlagAfterStop                           // an output in the row has tokens after its first stop id
	FlagPaddedID                            // the row has an id that is in the padded vocabulary but that the tokenizer does not define
)
