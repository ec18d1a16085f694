package tokenize

// A Call is one generation of the model: its prompt, if known, and the tokens that it sampled. One
// step of the server is one call.
//
// A Call points into memory that its creator owns. The Aligner copies the data.
type Call struct {
	// PromptIDs is the whole prompt, or nil if unknown. A known prompt is never empty.
	PromptIDs []int32

	// Context holds the tokens of the text between the previous call and this one. Only
	// SourceLiteral uses it, because it has no prompts.
	Context []int32

	// OutputIDs are the sampled tokens. Logprobs has the same length, with NaN for a missing value.
	OutputIDs []int32
	Logprobs  []float32

	// After is RoleTool if a tool turn comes between the previous call and this one, otherwise
	// RoleUser. It is ignored for the first call.
	After Role

	// Source is the source of PromptIDs, and Grade is how well the prompt is proven. Align rejects
	// a grade that the source cannot prove. For example, it rejects the zero values together: grade
	// Exact with SourceNone.
	Source PromptSource
	Grade  Grade
	// Reason is set if and only if Grade is Quarantined. A quarantined call is in no row: its
	// tokens count as lost, and no row continues across it.
	Reason Reason
	// Note lists, for display only, the attempts to find the prompt and their results.
	Note string
	// TakenOver reports whether the call is quarantined only because this process resumed the
	// rollout of an earlier process. A new rollout would have the data that this call lacks.
	TakenOver bool

	// Flags are copied to the row of this call.
	Flags Flags

	// Version is the policy version that sampled every token of the output, or -1 if the version is
	// unknown or several versions sampled the output. Zero is a valid version, so always set this
	// field.
	Version int32
	// Versions is the version of each output id if the weights changed during the call; -1 means
	// unknown, and Version is then -1. Otherwise Versions is nil.
	Versions []int32
	// VersionFrom is the source of Version or Versions. It is ignored if both are unknown.
	VersionFrom VersionSource
	// FinishReason is the engine's finish reason of the output: FinishStop, FinishLength,
	// FinishAbort or another word of the engine. It is empty if unknown.
	FinishReason string
	// StopID is the id at which the engine stopped, as reported by the engine, or nil. OutputIDs
	// need not contain it.
	StopID *int32
	// Sampling holds the parameters that the engine received, or nil if they were not observed.
	Sampling *Sampling
	// StepID is the server's id of the call, or empty if unknown.
	StepID string
}

// The finish reasons that this package uses. Engines have others.
const (
	FinishStop   = "stop"   // the model ended the output
	FinishLength = "length" // the token limit or the end of the context ended it
	FinishAbort  = "abort"  // the engine aborted the call: never data
)

// A PromptSource is the source of a call's prompt.
type PromptSource uint8

// The prompt sources. The package documentation lists what each one proves.
const (
	SourceNone    PromptSource = iota
	SourceTurns                // input_ids on the turn
	SourceTap                  // recorded by the tap, a proxy in front of the engine
	SourceStored               // rebuilt from stored messages
	SourceTrace                // rebuilt from a provider trace
	SourceLiteral              // no prompt: outputs and tool texts in order
)

// A VersionSource is the source of a call's policy version. A lower value is a stronger proof.
type VersionSource uint8

// The version sources.
const (
	VersionTrace VersionSource = iota // the engine, in the trace of the call
	VersionTap                        // the engine, as recorded by the tap
	VersionURL                        // a URL that returned the same version before and after the send
	VersionFlag                       // the user: a claim about the whole process
	VersionSet                        // the trainer: a claim that holds until the trainer's next claim
)

// A Grade is how well the context of a row is proven. Lower is better. A row has the worst grade of
// its calls.
type Grade uint8

// The grades.
const (
	Exact         Grade = iota // the engine's own prompt ids are known
	CountVerified              // rebuilt, and every length equals the server's count
	Unverified                 // not proven: nothing could be checked, or a required check is missing
	Quarantined                // a check failed or the prompt is unknown: never data
)

// A Reason is why a call or a whole sample is quarantined.
type Reason uint8

// The reasons: the closed list of the `reason` column in failures/.
const (
	ReasonNone           Reason = iota
	ReasonNoPrompt              // no source has the prompt
	ReasonCountMismatch         // the prompts from all sources that were tried differ in length from the server's count
	ReasonLengthMismatch        // different numbers of ids and log-probabilities
	ReasonIDMismatch            // a log-probability belongs to a token other than the sampled one
	ReasonNoLogprobs            // the list of log-probabilities is null
	ReasonHole                  // the server's sums show that a turn is missing
	ReasonCompacted             // the prompt followed a compaction and cannot be known
	ReasonVocab                 // an id outside the vocabulary
	ReasonDrift                 // a prompt drifted, and the configuration rejects drift
	ReasonNoTurns               // the server replied without turns
	ReasonGrade                 // a row has a worse grade than the run requires
	ReasonToolOrder             // the order in which the tools were in the prompt is unknown
	ReasonClock                 // the template prints the time, and several times match
	ReasonNoTrace               // a call of a recorded server run has no trace, and only the trace held its tokens
	ReasonNotNative             // a call of a recorded server run did not use the native path, so it has no token ids
	ReasonDeleted               // a recorded server run was deleted before it was read
	ReasonUnfinished            // a recorded server run has not ended and does not progress
	ReasonTraceLost             // the trace that would prove the prompt could not be stored: a log-probability is NaN or infinite
	ReasonContinuity            // a tap changed or could have changed the prompt, and no other source has the prompt
)
