package collector

import (
	"encoding/json"
	"fmt"
)

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
	// N counts attempts from 1, over all processes of a run.
	N int
	// Kind says why it is made.
	Kind Kind
	// RunID is the id of this run of the collector.
	RunID string
	// ServerRun, where set, is told of each server run that the attempt starts, as
	// soon as its id is known. It must not block.
	ServerRun func(id string)
	// Away is closed when the server is taken to be down and another can make the
	// sample: what waits for the server to be back gives up then. Nil: never.
	Away <-chan struct{}
}

// A Kind says why an attempt is made. Its name is the label of metrics.
type Kind uint8

// The kinds. A retry that an earlier process left to do is an infra_retry, unless
// its sample is one that failed by its data.
const (
	KindFirst      Kind = iota // the first of its sample
	KindInfraRetry             // after a failure of the infrastructure
	KindDataRetry              // after a failure of the data: a re-roll
	KindReattach               // takes over an attempt of an earlier process
)

var kindNames = [...]string{"first", "infra_retry", "data_retry", "reattach"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Kinds lists every kind of attempt.
func Kinds() []Kind { return []Kind{KindFirst, KindInfraRetry, KindDataRetry, KindReattach} }
