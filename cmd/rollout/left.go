package main

import (
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
)

// A ledger is what the dataset holds of the samples of a run: the class of the
// failure of each that has failed, and ClassNone of those that are done.
type ledger map[string]collector.Class

// readLedger reads it off the commit log of a run's folder.
func readLedger(dir string) (ledger, error) {
	log, err := sink.ReadLog(dir)
	if err != nil {
		return nil, err
	}
	l := ledger{}
	for i := range log.Commits {
		for _, s := range log.Commits[i].Samples {
			if before, ok := l[s.Key]; s.Failed() && (!ok || before != collector.ClassNone) {
				l[s.Key] = collector.ClassInternal
			} else if !s.Failed() {
				l[s.Key] = collector.ClassNone
			}
		}
	}
	for s := range log.Shards(sink.KindFailures) {
		for f, err := range log.FailureFacts(s) {
			if err != nil {
				return nil, err
			}
			if before, ok := l[f.SampleKey]; ok && before != collector.ClassNone && f.Call < 0 {
				l[f.SampleKey] = failedClass(f.Class)
			}
		}
	}
	return l, nil
}

// failedClass is the class of a failure; one that a newer program wrote is internal
// to this one.
func failedClass(name string) collector.Class {
	if c, ok := classOf(name); ok {
		return c
	}
	return collector.ClassInternal
}

// add says of a sample what the dataset holds.
func (l ledger) add(key string, left *collector.Left) {
	if class, ok := l[key]; ok {
		left.Done, left.Failed = class == collector.ClassNone, class
	}
}

// count is how many samples the dataset holds, and how many failures.
func (l ledger) count() (committed, failed int) {
	for _, class := range l {
		if class == collector.ClassNone {
			committed++
		} else {
			failed++
		}
	}
	return committed, failed
}
