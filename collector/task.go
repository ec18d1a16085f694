package collector

import "encoding/json"

// A Task says what to do. It is immutable once it was read.
type Task struct {
	// ID is unique among the tasks of a run.
	ID string
	// Messages are the user messages, sent one after the other; at least one.
	Messages []string
	// Answer is what scorers compare with, or nil.
	Answer *string
	// Metadata is carried to the rows as it is: a JSON value, or nil.
	Metadata json.RawMessage
	// Samples overrides the run's number of samples; 0 means the run's.
	Samples int
	// Agent overrides parts of the run's agent: a JSON object, or nil.
	Agent json.RawMessage
	// Source and Line say where the task was read, for messages to people.
	Source string
	Line   int
}

// An Attempt is one try at one sample.
type Attempt struct {
	Task *Task
	// Key is the sample key, Index the repetition within the group of GroupSize.
	Key              string
	Index, GroupSize int
	// N counts attempts from 1.
	N int
	// RunID is the id of this run of the collector.
	RunID string
	// ServerRun, where set, is told of each server run that the attempt starts, as
	// soon as its id is known. It must not block.
	ServerRun func(id string)
}
