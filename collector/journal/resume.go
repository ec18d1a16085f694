package journal

import (
	"iter"

	"github.com/rollout-rl/rollout/collector"
)

// A Dataset says what the dataset of a run holds of its samples. *sink.Ledger is one.
type Dataset interface {
	// Len is how many samples it holds.
	Len() int
	// Find returns the last attempt that it holds of a sample, and the name of the class
	// of its failure: empty where the sample is done. ok is false where it holds nothing.
	Find(key string) (attempt int, class string, ok bool)
}

// Resume returns the collector.Config.Left of a run that is continued: what the journal
// and the dataset know of a sample. It returns nil where neither knows of any sample, as
// in a new run: without Left a collector reads its tasks only once.
func (j *Journal) Resume(held Dataset) func(key string) collector.Left {
	if held.Len() == 0 && len(j.left.samples) == 0 {
		return nil
	}
	return func(key string) collector.Left {
		left := j.Left(key)
		if attempt, class, ok := held.Find(key); ok {
			left.Done, left.Failed = class == "", failedClass(class)
			left.Attempts = max(left.Attempts, attempt)
			if left.Open != nil && left.Open.N <= attempt { // its failure was stored, the note of its end was not
				left.Open = nil
			}
		}
		return left
	}
}

// failedClass returns the class of that name. One that this program does not know is
// internal to it; a newer one may have written it.
func failedClass(name string) collector.Class {
	if name == "" {
		return collector.ClassNone
	}
	if c, ok := collector.ClassNamed(name); ok && c != collector.ClassNone {
		return c
	}
	return collector.ClassInternal
}

// OpenAttempts returns the key and the open attempt of every sample that has one: the
// journal does not say how it ended, and neither does the dataset. The order is arbitrary.
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
