package main

import (
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
)

// A ledger is what the dataset holds of the samples of a run, by their keys.
type ledger map[string]entry

// An entry is what the dataset holds of one sample.
type entry struct {
	failed  collector.Class // ClassNone: the sample is done
	attempt int32           // the last one
}

// readLedger reads it off the commit log of a run's folder.
func readLedger(dir string) (ledger, error) {
	log, err := sink.ReadLog(dir)
	if err != nil {
		return nil, err
	}
	l := ledger{}
	unnamed := false // a commit of a program that did not say why samples failed
	for i := range log.Commits {
		for _, s := range log.Commits[i].Samples {
			e, seen := l[s.Key]
			done := seen && e.failed == collector.ClassNone
			e.attempt = max(e.attempt, s.Attempt)
			switch {
			case !s.Failed():
				e.failed = collector.ClassNone
			case !done:
				e.failed = failedClass(s.Class)
				unnamed = unnamed || s.Class == ""
			}
			l[s.Key] = e
		}
	}
	if !unnamed {
		return l, nil
	}
	for s := range log.Shards(sink.KindFailures) {
		for f, err := range log.FailureFacts(s) {
			if err != nil {
				return nil, err
			}
			if e := l[f.SampleKey]; e.failed != collector.ClassNone && f.Call < 0 {
				e.failed = failedClass(f.Class)
				l[f.SampleKey] = e
			}
		}
	}
	return l, nil
}

// failedClass is the class of a failure; one that a newer program wrote is internal
// to this one.
func failedClass(name string) collector.Class {
	if c, ok := collector.ClassNamed(name); ok {
		return c
	}
	return collector.ClassInternal
}

// add says of a sample what the dataset holds.
func (l ledger) add(key string, left *collector.Left) {
	if e, ok := l[key]; ok {
		left.Done, left.Failed = e.failed == collector.ClassNone, e.failed
		left.Attempts = max(left.Attempts, int(e.attempt))
	}
}

// count is how many samples the dataset holds, and how many failures.
func (l ledger) count() (committed, failed int) {
	for _, e := range l {
		if e.failed == collector.ClassNone {
			committed++
		} else {
			failed++
		}
	}
	return committed, failed
}

// hasRows reports whether the dataset of a run holds a row: in a shard, or in the
// write-ahead log, of which the next process makes one.
func hasRows(dir string) (bool, error) {
	has, err := sink.HasRows(dir)
	if err != nil {
		return false, openError(dir, err)
	}
	return has, nil
}
