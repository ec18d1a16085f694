package journal

import (
	"iter"

	"github.com/rollout-rl/rollout/collector"
)

// A Dataset reports which samples the dataset of a run contains. *sink.Ledger implements it.
type Dataset interface {
	// Len returns the number of samples in the dataset.
	Len() int
	// Find returns the number of the last stored attempt at a sample, and the name of its failure
	// class. The name is empty if the sample is done. If the dataset does not contain the sample,
	// ok is false.
	Find(key string) (attempt int, class string, ok bool)
}

// Resume returns the function for collector.Config.Left when a run is resumed. The function uses
// the journal and the dataset. Resume returns nil if the journal and the dataset are empty, because
// the run is then new. A Collector whose Config.Left is nil reads its tasks only once.
func (j *Journal) Resume(held Dataset) func(key string) collector.SampleState {
	if held.Len() == 0 && len(j.left.samples) == 0 {
		return nil
	}
	return func(key string) collector.SampleState {
		left := j.Left(key)
		if attempt, class, ok := held.Find(key); ok {
			left.Done, left.Failed = class == "", failedClass(class)
			left.Attempts = max(left.Attempts, attempt)
			if left.Open != nil && left.Open.N <= attempt { // the failure was stored, but the end was not journaled
				left.Open = nil
			}
		}
		return left
	}
}

// failedClass returns the class called name, or ClassInternal if only a newer version has that
// class.
func failedClass(name string) collector.Class {
	if name == "" {
		return collector.ClassNone
	}
	if c, ok := collector.ParseClass(name); ok && c != collector.ClassNone {
		return c
	}
	return collector.ClassInternal
}

// OpenAttempts yields every open attempt with its sample key, in arbitrary order. An attempt is
// open if neither the journal nor the dataset shows that it ended.
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
