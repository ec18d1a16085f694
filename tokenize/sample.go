package tokenize

import "time"

// A Sample is one finished sample on its way to the sink: its rows, what of it
// failed, and the facts that a trainer cannot recover later. It becomes durable
// as a whole or not at all.
//
// A Sample owns all memory that it points to. Whoever appends it to a sink gives
// it away and must not touch it again.
type Sample struct {
	// Key is the identity for exactly-once: the digest of the task and Index.
	Key string
	// TaskID and GroupID name the task and the group of its repetitions.
	TaskID, GroupID string
	// RolloutID is shared by the rows of the sample: Key and Attempt.
	RolloutID string
	// Index is the repetition, 0 ≤ Index < GroupSize.
	Index, GroupSize int32
	// Attempt counts from 1.
	Attempt int32

	// Rows holds the training sequences; it may be empty.
	Rows []Row
	// Failures holds what did not become rows. A sample that failed for good has
	// no Rows and one Failure; a sample of which single calls could not be known
	// has both.
	Failures []Failure

	// Reward is finite, or nil where the sample was not scored; 0 is a score.
	Reward *float64
	// RewardDetails is a JSON object, or nil.
	RewardDetails *string

	// Unshown counts the calls of the sample that a tap saw and that no answer shows.
	Unshown Unshown

	// Status is completed, truncated, max_steps, cancelled or error.
	Status string
	// StopReason is Letta's own word for the end of the last send.
	StopReason string

	// Sampling says what the engine really used, never what was asked for.
	Sampling Sampling

	// Model is the handle that the agent was created with.
	Model   string
	AgentID string
	RunIDs  []string // server runs, in the order of the sends

	// PromptTokens, CompletionTokens and Steps are the server's own sums.
	PromptTokens, CompletionTokens int64
	Steps                          int32

	StartedAt time.Time
	// Duration is wall time; Working leaves out queueing and backoff.
	Duration, Working time.Duration

	// Messages is the conversation and Metadata the task's metadata, both JSON; nil
	// where not wanted or not given.
	Messages, Metadata *string
}

// Sampling holds the sampling parameters that were in force, nil where unknown.
type Sampling struct {
	Temperature, TopP  *float32
	TopK, MaxNewTokens *int32
}

// A Failure is a sample, or a part of one, that must not be trained on: a row of
// failures/.
type Failure struct {
	// Class is the one closed classification (collector.Class), Stage where it
	// happened, Reason the closed word for a quarantine, else empty.
	Class, Stage, Reason string
	// Error is one short line for people. It holds no secret.
	Error string
	// Call is the index of the call within the sample, or -1 for the whole sample.
	Call int32
	// OutputIDs and Logprobs are what is left of the sampled tokens, in order;
	// a missing log-probability is NaN. Text is what is left of the text.
	OutputIDs []int32
	Logprobs  []float32
	Text      string
}
