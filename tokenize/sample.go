package tokenize

import "time"

// A Sample is one finished sample for the sink: its rows, its failures, and the facts that a
// trainer cannot recover later. It becomes durable as a whole or not at all.
//
// A Sample owns all memory that it points to. Appending it to a sink transfers ownership.
type Sample struct {
	// Key identifies the sample for exactly-once. It consists of the digest of the task and Index.
	Key             string
	TaskID, GroupID string
	// RolloutID consists of Key and Attempt. All rows of the sample share it.
	RolloutID string
	// Index is the number of the repetition, 0 ≤ Index < GroupSize.
	Index, GroupSize int32
	// Attempt counts from 1.
	Attempt int32

	// Rows holds the training sequences; it can be empty.
	Rows []Row
	// Failures holds everything that did not become rows. A sample that finally failed has no Rows
	// and one Failure. A sample with some quarantined calls has both.
	Failures []Failure

	// Reward is finite, or nil if the sample was not scored; 0 is a score.
	Reward *float64
	// RewardDetails is a JSON object, or nil.
	RewardDetails *string

	// Unshown counts the calls of the sample that a tap saw and that no answer shows.
	Unshown Unshown

	// Status is completed, truncated, max_steps, cancelled or error.
	Status string
	// StopReason is Letta's stop reason of the last send.
	StopReason string

	// Sampling has the parameters that the engine used, never the requested ones.
	Sampling Sampling

	// Model is the handle that the agent was created with.
	Model   string
	AgentID string
	RunIDs  []string // server runs, in the order of the sends

	// PromptTokens, CompletionTokens and Steps are the server's own sums.
	PromptTokens, CompletionTokens int64
	Steps                          int32

	StartedAt time.Time
	// Duration is the wall-clock time. Working excludes queueing and backoff.
	Duration, Working time.Duration

	// Messages is the conversation and Metadata the task's metadata, as JSON; nil if absent.
	Messages, Metadata *string
}

// Sampling holds the sampling parameters that the engine used. A parameter is nil if unknown.
type Sampling struct {
	Temperature, TopP  *float32
	TopK, MaxNewTokens *int32
}

// A Failure is a sample, or a part of one, that must not be trained on: a row of failures/.
type Failure struct {
	// Class is a collector.Class, Stage is the stage in which the failure happened, and Reason is a
	// Reason or empty.
	Class, Stage, Reason string
	// Error is one short line for people, without secrets.
	Error string
	// Call is the index of the call within the sample, or -1 for the whole sample.
	Call int32
	// OutputIDs and Logprobs are the remaining sampled tokens, in order; a missing log-probability
	// is NaN. Text is the remaining text.
	OutputIDs []int32
	Logprobs  []float32
	Text      string
}
