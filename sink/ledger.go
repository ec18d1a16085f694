package sink

import (
	"cmp"
	"math"
	"os"
	"slices"

	"github.com/rollout-rl/rollout/sink/mapped"
	"github.com/rollout-rl/rollout/sink/store"
)

// unknownClass is the class of a failed sample if its failure has no class.
const unknownClass = "unknown"

// A Ledger contains the outcome of every sample in a dataset: success or failure. A Ledger takes 32
// bytes of memory per sample. If there are many samples, this memory is mapped from a file. A
// Ledger is immutable and safe for concurrent use. A nil Ledger is empty.
type Ledger struct {
	entries *mapped.Sorted[ledgerEntry]
	classes []string // indexed by ledgerEntry.class
}

type ledgerEntry struct {
	key     KeyID
	nth     uint32 // position in the log; used only while the log is read
	attempt int32  // number of the last attempt
	class   uint16 // index in Ledger.classes; 0 means that the sample is done

	filtered bool // whether the sample is done but must not be trained on
	waits    bool // whether the sample is done but not yet in a commit
}

func (e *ledgerEntry) done() bool { return e.class == 0 }

// ReadLedger reads the commit log, and the uncommitted samples in the write-ahead log. It has the
// same arguments as [ReadLogIn], and returns the same errors as [ReadLog] and [Log.Waiting].
func ReadLedger(objects store.Store, spool string) (*Ledger, error) {
	b := newLedgerBuilder()
	log, err := ReadLogIn(objects, spool, b.add)
	if err != nil {
		return nil, err
	}
	for w, err := range log.Waiting() {
		if err != nil {
			return nil, err
		}
		b.wait(&w)
	}
	return b.ledger(spool), nil
}

// Len returns the number of samples in the dataset.
func (l *Ledger) Len() int {
	if l == nil {
		return 0
	}
	return l.entries.Len()
}

func (l *Ledger) find(id KeyID) (e ledgerEntry, ok bool) {
	if l == nil {
		return e, false
	}
	return l.entries.Search(func(e *ledgerEntry) int { return e.key.Compare(id) })
}

// Find returns the number of the last attempt at a sample, and the class of the sample's failure.
// If the sample is done, the class is empty. If the dataset does not contain the sample, ok is
// false.
func (l *Ledger) Find(key string) (attempt int, class string, ok bool) {
	e, ok := l.find(IDOf(key))
	if !ok {
		return 0, "", false
	}
	return int(e.attempt), l.classes[e.class], true
}

func (l *Ledger) count(is func(*ledgerEntry) bool) (n int) {
	if l == nil {
		return 0
	}
	l.entries.Each(func(e *ledgerEntry) {
		if is(e) {
			n++
		}
	})
	return n
}

// Counts returns the numbers of done and failed samples.
func (l *Ledger) Counts() (done, failed int) {
	done = l.count((*ledgerEntry).done)
	return done, l.Len() - done
}

// Filtered returns the number of done samples whose rows have keep=false.
func (l *Ledger) Filtered() int {
	return l.count(func(e *ledgerEntry) bool { return e.filtered })
}

// Waits reports whether a sample is done but waits for its group in the write-ahead log and is not
// yet committed.
func (l *Ledger) Waits(key string) bool {
	e, _ := l.find(IDOf(key))
	return e.waits
}

// Waiting returns the number of samples for which [Ledger.Waits] returns true.
func (l *Ledger) Waiting() int { return l.count(func(e *ledgerEntry) bool { return e.waits }) }

type ledgerBuilder struct {
	entries []ledgerEntry
	classes []string
	index   map[string]uint16 // index of a class in classes
}

func newLedgerBuilder() *ledgerBuilder {
	return &ledgerBuilder{classes: []string{""}, index: map[string]uint16{}}
}

// ledger returns a Ledger of all entries. If there are many entries, they are mapped from a file in
// dir, or in the folder for temporary files.
func (b *ledgerBuilder) ledger(dir string) *Ledger {
	b.fold()
	return &Ledger{entries: mapped.New(cmp.Or(dir, os.TempDir()), b.entries), classes: b.classes}
}

func (b *ledgerBuilder) add(c *Commit) {
	b.entries = slices.Grow(b.entries, len(c.Samples))
	for i := range c.Samples {
		b.addSample(&c.Samples[i], false)
	}
}

func (b *ledgerBuilder) wait(w *WaitingSample) {
	s := CommittedSample{Key: w.Key, Attempt: w.Attempt, Rows: int32(len(w.Rows)), Failures: int32(len(w.Failures))}
	if s.Failed() {
		s.Class = w.Failures[0].Class
	}
	b.addSample(&s, true)
}

func (b *ledgerBuilder) addSample(s *CommittedSample, waits bool) {
	e := ledgerEntry{key: IDOf(s.Key), nth: uint32(len(b.entries)), attempt: s.Attempt, filtered: s.Filtered != "" && !s.Failed(), waits: waits && !s.Failed()}
	if s.Failed() {
		e.class = b.classOf(s.Class)
	}
	b.entries = append(b.entries, e)
}

func (b *ledgerBuilder) classOf(name string) uint16 {
	name = cmp.Or(name, unknownClass)
	n, ok := b.index[name]
	if !ok {
		if len(b.classes) >= math.MaxUint16 && name != unknownClass {
			return b.classOf(unknownClass) // no real program uses so many classes
		}
		n = uint16(len(b.classes))
		b.index[name] = n
		b.classes = append(b.classes, name)
	}
	return n
}

// fold sorts the entries and combines the entries of each sample into one. A success supersedes
// failures. If all attempts failed, the last failure counts.
func (b *ledgerBuilder) fold() {
	l := b.entries
	slices.SortFunc(l, func(a, b ledgerEntry) int {
		if c := a.key.Compare(b.key); c != 0 {
			return c
		}
		return cmp.Compare(a.nth, b.nth)
	})
	n := 0
	for _, e := range l {
		if n > 0 && l[n-1].key == e.key {
			last := &l[n-1]
			last.attempt = max(last.attempt, e.attempt)
			if !last.done() {
				last.class, last.filtered, last.waits = e.class, e.filtered, e.waits
			}
			continue
		}
		l[n] = e
		n++
	}
	b.entries = l[:n]
}
