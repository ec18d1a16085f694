package tokenize

// A Call is one generation of the model: the prompt that it saw, as far as that
// is known, and what it sampled. One step of the server is one call.
//
// A Call points into memory that belongs to whoever made it; the Aligner copies.
type Call struct {
	// PromptIDs is the whole prompt, or nil where it is unknown. A known prompt is
	// never empty.
	PromptIDs []int32

	// Context is used by SourceLiteral only, which knows no prompt: the tokens of
	// the text between the previous call and this one, glued as they are.
	Context []int32

	// OutputIDs are the sampled tokens. Logprobs has the same length; NaN means
	// that the server gave none for that token.
	OutputIDs []int32
	Logprobs  []float32

	// After is what lies between the previous call and this one: RoleTool where a
	// tool turn does, else RoleUser. Of the first call it has no meaning.
	After Role

	// Source says where PromptIDs comes from, Grade how well it is proven. Exact and
	// SourceNone, the zero values, do not go together: Align refuses a grade that the
	// source cannot prove.
	Source PromptSource
	Grade  Grade
	// Reason is set iff Grade is Quarantined. Such a call makes no row: its tokens
	// are returned as lost, and a row never runs across it.
	Reason Reason
	// Note is for people: what was tried to find the prompt and how each try ended.
	// It is empty where there is nothing to say, and no program reads it.
	Note string
	// TakenOver reports whether Reason stands only because the rollout was taken over from
	// an earlier process: a new rollout would have what this call lacks.
	TakenOver bool

	// Flags are facts about this call that its row must carry.
	Flags Flags

	// Version is the policy version that sampled every token of the output, or -1 if it
	// is unknown or several versions sampled. The zero value is a version: set it.
	Version int32
	// Versions has the version of each output id if the weights changed during the call: -1
	// means unknown, and Version is -1. Otherwise Versions is nil.
	Versions []int32
	// VersionFrom is the source of Version or Versions. It has no meaning if both are
	// unknown.
	VersionFrom VersionSource
	// FinishReason is the engine's word for the end of the output, or empty where
	// unknown: FinishStop, FinishLength, FinishAbort, or another word of the engine.
	FinishReason string
	// StopID is the id at which the engine reports that it stopped, or nil if unknown. It
	// need not be in OutputIDs.
	StopID *int32
	// Sampling is what the engine was told, where that was seen. Nil: it was not.
	Sampling *Sampling
	// StepID is the server's name of the call, or empty where unknown.
	StepID string
}

// The finish reasons that mean something here. An engine may have more words.
const (
	FinishStop   = "stop"   // the model ended the output
	FinishLength = "length" // its limit of tokens did, or the end of the context
	FinishAbort  = "abort"  // the engine gave the call up in the middle: never data
)

// A PromptSource says where the prompt of a call comes from.
type PromptSource uint8

// The prompt sources; see the package documentation for what each proves.
const (
	SourceNone    PromptSource = iota
	SourceTurns                // input_ids on the turn itself
	SourceTap                  // seen by the tap, a proxy before the engine
	SourceStored               // rebuilt from stored messages
	SourceTrace                // rebuilt from a provider trace
	SourceLiteral              // no prompt: outputs and tool texts as given
)

// A VersionSource says who told the policy version of a call. What is proven better is
// lower.
type VersionSource uint8

// The version sources.
const (
	VersionTrace VersionSource = iota // the engine itself, in the trace of the call
	VersionTap                        // the engine itself, as the tap saw it
	VersionURL                        // a page that said the same before and after the send
	VersionFlag                       // the user: a claim about the whole process
	VersionSet                        // the trainer: a claim that holds until the next one
)

// A Grade says how well the context of a row is proven. Lower is better; the
// grade of several calls is the highest of theirs.
type Grade uint8

// The grades.
const (
	Exact         Grade = iota // the engine's own prompt ids are known
	CountVerified              // rebuilt, and every length agrees with the server's count
	Unverified                 // not proven: nothing could be checked, or not all that must be
	Quarantined                // a check failed or the prompt is unknown: never data
)

// A Reason says why a call, or a whole sample, is quarantined.
type Reason uint8

// The reasons. They are the closed list of the reason column in failures/.
const (
	ReasonNone           Reason = iota
	ReasonNoPrompt              // no source gives the prompt
	ReasonCountMismatch         // every source that was tried disagrees with the server's count
	ReasonLengthMismatch        // ids and log-probabilities differ in number
	ReasonIDMismatch            // a log-probability belongs to another token than the one sampled
	ReasonNoLogprobs            // the list of log-probabilities is null
	ReasonHole                  // the server's sums say that a turn is missing
	ReasonCompacted             // the prompt followed a compaction and cannot be known
	ReasonVocab                 // an id outside the vocabulary
	ReasonDrift                 // drift, and the configuration says reject
	ReasonNoTurns               // the server answered without turns
	ReasonGrade                 // a row is proven less well than the run requires
	ReasonToolOrder             // nothing shows in which order the model was given its tools
	ReasonClock                 // the template prints the time, and several times fit
	ReasonNoTrace               // of a recorded server run: a call has no trace, which alone held its tokens
	ReasonNotNative             // of a recorded server run: a call was not made on the native path, so it has no token ids
	ReasonDeleted               // of a recorded server run: it was deleted before it was read
	ReasonUnfinished            // of a recorded server run: it has not ended, and does nothing
	ReasonTraceLost             // the trace that would prove the prompt could not be stored: a log-probability is NaN or infinite
	ReasonContinuity            // a tap changed the prompt, or can have changed it, and only that tap has it
)
