package journal

import (
	"iter"

	"github.com/rollout-rl/rollout/collector"
)

// A Dataset reports which samples the dataset of a run contains. *sink.Ledger implements it.
type Dataset interface {
	// Len returns the number of samples in the dataset.
	Len() int
	// Find returns the number of the last attempt that is stored for a sample, and the name of its
	// failure class. The name is empty if the sample is done. ok is false if the dataset does not
	// have the sample.
	Find(key string) (attempt int, class string, ok bool)
}

// Resume returns the collector.Config.Left of a resumed run, from the journal and the dataset. It
// returns nil if both are empty, as in a new run. A Collector without Left reads its tasks only
// once.
func (j *Journal) Resume(held Dataset) func(key string) collector.SampleState {
	if held.Len() == 0 && len(j.left.samples) == 0 {
		return nil
	}
	return func(key string) collector.SampleState {
		left := j.Left(key)
		if attempt, class, ok := held.Find(key); ok {
			left.Done, left.Failed = class == "", failedClass(class)
			left.Attempts = max(left.Attempts, attempt)
			if left.Open != nil && left.Open.N <= attempt { // the failure was stored, but not its End
				left.Open = nil
			}
		}
		return left
	}
}

// failedClass returns the class with that name, or ClassInternal for a name from a newer version.
func failedClass(name string) collector.Class {
	if name == "" {
		return collector.ClassNone
	}
	if c, ok := collector.ParseClass(name); ok && c != collector.ClassNone {
		return c
	}
	return collector.ClassInternal
}

// OpenAttempts returns the keys and the open attempts of all samples with an open attempt. An
// attempt is open if neither the journal nor the dataset shows that it ended. The order is
// arbitrary.
func (j *Journal) OpenAttempts(held Dataset) iter.Seq2[string, collector.OpenAttempt] {
	return func(yield func(string, collector.OpenAttempt) bool) {
		for k, open := range j.left.open {
			key := k.String()
			if attempt, class, ok := held.Find(key); ok && (class == "" || open.N <= attempt) {
				continue
			}
			if !yield(key, *open) {
				return
			}
		}
	}
}
