package tokenize

// A Call is one generation by the model: the prompt, if known, and the tokens that the model
// sampled. One server step is one call.
//
// A Call points into memory that its creator owns. The Aligner copies the data.
type Call struct {
	// PromptIDs is the whole prompt, or nil if unknown. A known prompt is never empty.
	PromptIDs []int32

	// Context holds the tokens of the text between the previous call and this one. It is used only
	// with SourceLiteral, because such calls have no prompts.
	Context []int32

	// OutputIDs are the sampled tokens. Logprobs has the same length, with NaN for a missing value.
	OutputIDs []int32
	Logprobs  []float32

	// Chain is the number of the conversation that the call belongs to, and ChainKind is the kind of
	// that conversation. A Letta rollout has only chain 0, the main chain. The calls of a chain must
	// follow each other, because a row never contains calls of two chains.
	Chain     int32
	ChainKind ChainKind

	// Parent is the call that started the chain. It is the same in all calls of the chain.
	Parent Parent

	// After is RoleTool if a tool turn comes between the previous call and this one, otherwise
	// RoleUser. After is ignored for the first call.
	After Role

	// Source states where PromptIDs came from, and Grade states how well the prompt is proven.
	// Align rejects a grade that the source cannot prove. For example, it rejects a Call in which
	// neither field is set, because SourceNone cannot prove grade Exact.
	Source PromptSource
	Grade  Grade
	// Reason is set if and only if Grade is Quarantined. A quarantined call is in no row, its
	// tokens count as lost, and no row continues across it.
	Reason Reason
	// Note describes how the collector searched for the prompt and what it found. It is only for
	// display.
	Note string
	// TakenOver is true if the call is quarantined only because this process resumed the rollout of
	// an earlier process. A new rollout would provide the data that this call lacks.
	TakenOver bool

	// Flags are copied to the row of this call.
	Flags Flags

	// Version is the policy version that sampled every token of the output, or -1 if the version is
	// unknown or several versions sampled the output. Zero is a valid version, so always set this
	// field.
	Version int32
	// Versions holds the policy version of each output id if the weights changed during the call;
	// otherwise it is nil. An entry of -1 means unknown. If Versions is not nil, Version is -1.
	Versions []int32
	// VersionFrom is the source of Version or Versions. It is ignored if no version is known.
	VersionFrom VersionSource
	// WeightVersion and WeightSpans are the engine's weight_version and weight_versions with the
	// engine's own names, as in the arguments of OutputVersions. They become Row.WeightVersions.
	WeightVersion string
	WeightSpans   []VersionSpan
	// Experts holds the routed experts of PromptIDs and OutputIDs, except the last output id: an engine
	// routes a token when it computes the next one. Experts.IDs is nil if they are unknown.
	Experts Experts
	// MaskLengths holds, for each output id, the number of ids among which the engine sampled, or 0 if
	// they are unknown. SamplingMask holds these ids, one list after the other. Both are nil if the
	// engine returned no masks.
	SamplingMask, MaskLengths []int32
	// FinishReason is the engine's finish reason for the output: FinishStop, FinishLength,
	// FinishAbort or another word that the engine uses. It is empty if unknown.
	FinishReason string
	// StopID is the stop id that the engine reported, or nil. OutputIDs need not contain this id.
	StopID *int32
	// Sampling holds the sampling parameters that the engine received, or nil if they were not
	// observed.
	Sampling *Sampling
	// StepID is the server's id for the call, or empty if unknown.
	StepID string
}

// The finish reasons that this package uses. Engines also report others.
const (
	FinishStop   = "stop"   // the model ended the output
	FinishLength = "length" // the output reached the token limit or the end of the context
	FinishAbort  = "abort"  // the engine aborted the call, so the output is never data
)

// A Parent identifies the call that started a subagent. The zero value means that the chain is not
// the chain of a subagent, or that the call is not proven.
type Parent struct {
	// Chain is the chain of the call. It is less than the number of the chain that the call started.
	Chain int32
	// Step is the StepID of the call as a number, at least 1.
	Step int32
}

// A ChainKind is the role of a conversation in its rollout.
type ChainKind uint8

// The kinds of chains.
const (
	ChainMain      ChainKind = iota // the conversation about the task
	ChainSubagent                   // a conversation that the agent started with another agent
	ChainAuxiliary                  // a conversation of the harness with itself, such as a title or a summary
)

// A PromptSource states where the prompt of a call came from.
type PromptSource uint8

// The prompt sources. The package documentation lists what each source proves.
const (
	SourceNone    PromptSource = iota
	SourceTurns                // input_ids on the turn
	SourceTap                  // recorded by the tap, a proxy in front of the engine
	SourceStored               // rebuilt from stored messages
	SourceTrace                // rebuilt from a provider trace
	SourceLiteral              // no prompt: only outputs and tool results, in order
)

// A VersionSource states where the policy version of a call came from. A lower value is stronger
// proof.
type VersionSource uint8

// The version sources.
const (
	VersionTrace VersionSource = iota // reported by the engine, in the trace of the call
	VersionTap                        // reported by the engine and recorded by the tap
	VersionURL                        // read from a URL that returned the same version before and after the send
	VersionFlag                       // claimed by the user for the whole process
	VersionSet                        // claimed by the trainer; valid until the trainer's next claim
)

// A Grade states how well the context of a call or a row is proven. A lower grade is better. A row
// has the worst grade of its calls.
type Grade uint8

// The grades.
const (
	Exact         Grade = iota // the engine's own prompt ids are known
	CountVerified              // the prompt was rebuilt, and every length equals the server's count
	Unverified                 // not proven: nothing could be checked, or a required check is missing
	Quarantined                // a check failed or the prompt is unknown, so the call is never data
)

// A Reason states why a call or a whole sample is quarantined.
type Reason uint8

// The reasons. The `reason` column in failures/ contains only these words.
const (
	ReasonNone           Reason = iota
	ReasonNoPrompt              // no source has the prompt
	ReasonCountMismatch         // no source that was tried provides a prompt with the length that the server counted
	ReasonLengthMismatch        // the numbers of ids and log-probabilities differ, or routed experts or sampling masks do not fit the ids
	ReasonIDMismatch            // a log-probability does not belong to the sampled token
	ReasonNoLogprobs            // the list of log-probabilities is null
	ReasonHole                  // the server's sums show that a turn is missing
	ReasonCompacted             // the call followed a compaction, so its prompt cannot be known
	ReasonVocab                 // an id is outside the vocabulary
	ReasonDrift                 // a prompt drifted, and the configuration rejects drift
	ReasonNoTurns               // the server replied without turns
	ReasonGrade                 // a row has a grade that the run does not accept
	ReasonToolOrder             // the order of the tools in the prompt is unknown
	ReasonClock                 // the template prints the time, and several times match the server's counts
	ReasonNoTrace               // a call in a recorded server run has no trace, and no other source has its tokens
	ReasonNotNative             // a call in a recorded server run did not use the server's native path, so it has no token ids
	ReasonDeleted               // a recorded server run was deleted before it could be read
	ReasonUnfinished            // a recorded server run has not ended and makes no progress
	ReasonTraceLost             // the server could not store the trace that would prove the prompt, because a log-probability is NaN or infinite
	ReasonContinuity            // a tap changed or could have changed the prompt, and no other source has the prompt
	ReasonNoIDs                 // the engine's answer has no ids, or their number differs from the engine's count
	ReasonAuxiliary             // the call belongs to an auxiliary chain
	ReasonSuperseded            // the harness did not read the answer, and repeated the call
	ReasonCutAnswer             // the answer is incomplete, and no later prompt contains it
	ReasonAmbiguousRetry        // it is unknown whether the harness read the answer or repeated the call
)
