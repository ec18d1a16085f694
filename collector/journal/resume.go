package journal

import (
	"iter"

	"github.com/rollout-rl/rollout/collector"
)

// A Dataset reports which samples the dataset of a run contains. *sink.Ledger implements it.
type Dataset interface {
	// Len returns the number of its samples.
	Len() int
	// Find returns the last attempt stored for a sample and the name of its failure class, which
	// is empty if the sample is done. ok is false if the dataset has no row of it.
	Find(key string) (attempt int, class string, ok bool)
}

// Resume returns the collector.Config.Left of a resumed run, from the journal and the dataset. It
// returns nil if both are empty, as in a new run: without Left a collector reads its tasks only
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

// failedClass returns the class of that name, or ClassInternal for a name of a newer version.
func failedClass(name string) collector.Class {
	if name == "" {
		return collector.ClassNone
	}
	if c, ok := collector.ParseClass(name); ok && c != collector.ClassNone {
		return c
	}
	return collector.ClassInternal
}

// OpenAttempts returns the key and the open attempt of every sample that has one: neither the
// journal nor the dataset has its end. The order is arbitrary.
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
