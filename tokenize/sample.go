package tokenize

import "time"

// A Sample is one finished sample for the sink: its rows, its failures, and the facts that a
// trainer cannot recover later. A sink stores a Sample completely or not at all.
//
// A Sample owns all memory that it points to. Appending it to a sink transfers ownership.
type Sample struct {
	// Key identifies the sample, so that the sample is stored exactly once. It consists of the
	// task's digest and Index.
	Key             string
	TaskID, GroupID string
	// RolloutID consists of Key and Attempt. All rows of the sample share it.
	RolloutID string
	// Index is the number of this repetition of the task, 0 ≤ Index < GroupSize.
	Index, GroupSize int32
	// Attempt is the number of the attempt, counted from 1.
	Attempt int32

	// Rows holds the training sequences; it can be empty.
	Rows []Row
	// Failures holds everything that did not become a row. A sample whose last attempt failed has
	// one Failure and no Rows. A sample with some quarantined calls has both Rows and Failures.
	Failures []Failure

	// Reward is finite, or nil if the sample was not scored. A reward of 0 is a score.
	Reward *float64
	// RewardDetails is a JSON object, or nil.
	RewardDetails *string

	// Unshown counts the sample's calls that a tap recorded but that no answer from the server
	// shows.
	Unshown Unshown

	// Status is completed, truncated, max_steps, cancelled or error.
	Status string
	// StopReason is Letta's stop reason for the last send.
	StopReason string

	// Sampling holds the sampling parameters that the engine used, not the parameters that were
	// requested.
	Sampling Sampling

	// Model is the model handle with which the agent was created.
	Model   string
	AgentID string
	RunIDs  []string // ids of the server runs, in the order of the sends

	// PromptTokens, CompletionTokens and Steps are the server's own sums.
	PromptTokens, CompletionTokens int64
	Steps                          int32

	StartedAt time.Time
	// Duration is the wall-clock time of the sample. Working is Duration without the time spent on
	// queueing and backoff.
	Duration, Working time.Duration

	// Messages is the conversation and Metadata is the task's metadata, both as JSON, or nil if
	// absent.
	Messages, Metadata *string
}

// Sampling holds the sampling parameters that the engine used. A parameter is nil if unknown.
type Sampling struct {
	Temperature, TopP  *float32
	TopK, MaxNewTokens *int32
}

// A Failure is a sample, or a part of a sample, that must not be used for training. It becomes a
// row in failures/.
type Failure struct {
	// Class is the string form of a collector.Class. Stage is the stage in which the failure
	// happened. Reason is the string form of a Reason, or empty.
	Class, Stage, Reason string
	// Error is a one-line message for people. It contains no secrets.
	Error string
	// Call is the index of the call within the sample, or -1 for the whole sample.
	Call int32
	// OutputIDs are the known sampled tokens, in order. Logprobs are their log-probabilities, with
	// NaN for a missing value. Text is the known text.
	OutputIDs []int32
	Logprobs  []float32
	Text      string
}
