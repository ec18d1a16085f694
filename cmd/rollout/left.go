package main

import (
	"cmp"
	"slices"
	"sort"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/mapped"
)

// A ledger is what the dataset holds of the samples of a run, sorted by their keys and
// mapped where they are many.
type ledger struct{ *mapped.Sorted[entry] }

// An entry is what the dataset holds of one sample, in 32 bytes.
type entry struct {
	key     sink.KeyID
	nth     uint32 // of the log, while it is read
	attempt int32  // the last one
	failed  uint8  // a collector.Class; ClassNone: the sample is done
	unnamed bool   // a commit of a program that did not say why samples failed
}

// class is why the sample failed; ClassNone: it is done.
func (e *entry) class() collector.Class { return collector.Class(e.failed) }

// readLedger reads it off the commit log of a run's folder.
func readLedger(dir string) (ledger, error) {
	var l entries
	log, err := sink.ReadLogEach(dir, func(c *sink.Commit) {
		l = slices.Grow(l, len(c.Samples))
		for _, s := range c.Samples {
			e := entry{key: sink.IDOf(s.Key), nth: uint32(len(l)), attempt: s.Attempt}
			if s.Failed() {
				e.failed, e.unnamed = uint8(failedClass(s.Class)), s.Class == ""
			}
			l = append(l, e)
		}
	})
	if err != nil {
		return ledger{}, err
	}
	slices.SortFunc(l, func(a, b entry) int {
		if c := a.key.Compare(b.key); c != 0 {
			return c
		}
		return cmp.Compare(a.nth, b.nth)
	})
	l, unnamed := l.fold()
	if !unnamed {
		return ledger{mapped.New(dir, l)}, nil
	}
	for s := range log.Shards(sink.KindFailures) {
		for f, err := range log.FailureFacts(s) {
			if err != nil {
				return ledger{}, err
			}
			if e := l.find(f.SampleKey); e != nil && e.class() != collector.ClassNone && f.Call < 0 {
				e.failed = uint8(failedClass(f.Class))
			}
		}
	}
	return ledger{mapped.New(dir, l)}, nil
}

// entries are those of a ledger that is being read.
type entries []entry

// fold makes one entry of all that are of one sample: a success stays one, and of
// failures the last counts.
func (l entries) fold() (_ entries, unnamed bool) {
	n := 0
	for _, e := range l {
		if n > 0 && l[n-1].key == e.key {
			last := &l[n-1]
			last.attempt = max(last.attempt, e.attempt)
			if last.class() != collector.ClassNone {
				last.failed, last.unnamed = e.failed, e.unnamed
			}
			continue
		}
		l[n] = e
		n++
	}
	for i := range l[:n] {
		unnamed = unnamed || l[i].unnamed
	}
	return l[:n], unnamed
}

// find is the entry of a sample, or nil.
func (l entries) find(key string) *entry {
	id := sink.IDOf(key)
	i := sort.Search(len(l), func(i int) bool { return l[i].key.Compare(id) >= 0 }) // copies no entry
	if i == len(l) || l[i].key != id {
		return nil
	}
	return &l[i]
}

// find is the entry of a sample, if there is one.
func (l ledger) find(key string) (entry, bool) {
	id := sink.IDOf(key)
	return l.Search(func(e *entry) int { return e.key.Compare(id) })
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
	if e, ok := l.find(key); ok {
		left.Done, left.Failed = e.class() == collector.ClassNone, e.class()
		left.Attempts = max(left.Attempts, int(e.attempt))
	}
}

// count is how many samples the dataset holds, and how many failures.
func (l ledger) count() (committed, failed int) {
	l.Each(func(e *entry) {
		if e.class() == collector.ClassNone {
			committed++
		} else {
			failed++
		}
	})
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
