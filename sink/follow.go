package sink

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/rollout-rl/rollout/sink/store"
)

// The logical order of a dataset is the order of its commits by number, and the order of the
// samples within each commit. This order never changes, even if merges move rows. For all readers
// of the log, the code in this file determines which entries count, what their order is, and which
// numbers can be missing.

// maxListings limits how often Follow lists the log's folder if entries are moved while it reads
// the log. gapListings limits how often Follow lists the folder if an earlier entry is missing.
// In a bucket, no entry is moved or deleted, so there are no gaps.
const (
	maxListings = 20
	gapListings = 3
)

// Follow reads the entries that were added since the log was last read. A reader calls Follow
// repeatedly to follow a running collection. Follow removes entries that a merge has replaced in
// the meantime, so Commits can become shorter. [Log.Last] increases with every new entry.
func (l *Log) Follow() error {
	if !l.folder {
		return l.followBucket()
	}
	for try := 1; ; try++ {
		again, err := l.follow(try)
		if !again || try == maxListings {
			return err
		}
	}
}

// follow lists the log's folder once and reads the new entries. again is true if another listing
// might resolve the error.
func (l *Log) follow(try int) (again bool, err error) {
	fresh, err := l.list()
	if err != nil || len(fresh) == 0 {
		return false, err
	}
	order, gaps := fresh, gapsOf(l.known, fresh)
	if len(gaps) > 0 {
		if order, gaps, err = l.order(fresh); len(gaps) > 0 && err == nil {
			err = gaps[0].missing()
		}
		if len(gaps) > 0 {
			return try < gapListings || errors.Is(err, fs.ErrNotExist), err
		}
	}
	for _, seq := range order {
		c, _, err := l.readCommit(seq)
		if err == nil {
			err = l.add(&c)
		}
		if err != nil {
			return errors.Is(err, fs.ErrNotExist), err
		}
	}
	return false, nil
}

// Last returns the number of the last entry, or 0 if the log is empty. The number increases with
// every commit and every merge.
func (l *Log) Last() int64 {
	if len(l.known) == 0 {
		return 0
	}
	return l.known[len(l.known)-1][1]
}

// list returns the numbers of existing entries that are not in l.known, in ascending order.
func (l *Log) list() (fresh []int64, err error) {
	after := int64(0)
	if len(l.known) > 0 && l.known[0][0] == 1 {
		after = l.known[0][1]
	}
	numbers, err := l.commitNumbers(after)
	return slices.DeleteFunc(numbers, l.known.has), err
}

// A gap is a range of numbers, from seq to next-1. No entry has any of these numbers, and no merge
// replaces them.
type gap struct{ seq, next int64 }

func (g gap) missing() error {
	return &CorruptError{Path: entryPath(g.seq), Row: -1, Err: fmt.Errorf("the file is missing, but entry %d exists", g.next)}
}

// gapsOf returns the gaps below the last element of numbers, which must be in ascending order.
func gapsOf(known seqSet, numbers []int64) (gaps []gap) {
	next, at := int64(1), 0
	for _, seq := range numbers {
		for next < seq { // skip known numbers
			for at < len(known) && known[at][1] < next {
				at++
			}
			if at == len(known) || known[at][0] > next {
				to := seq
				if at < len(known) {
					to = min(to, known[at][0])
				}
				gaps = append(gaps, gap{next, to})
				next = to
				continue
			}
			next = known[at][1] + 1
		}
		next = max(next, seq+1)
	}
	return gaps
}

// order returns the numbers in fresh whose entries count, in logical order, and the gaps. It reads
// all merges, because a merge can replace a missing number. If numbers are missing, order must
// therefore be called before the first entry is added. If a merge cannot be read, err is the error.
func (l *Log) order(fresh []int64) (order []int64, gaps []gap, err error) {
	type place struct{ first, seq int64 }
	places := make([]place, 0, len(fresh))
	replaced := slices.Clone(l.known)
	for _, seq := range slices.Backward(fresh) { // backward, because only a later merge can replace a merge
		p, hidden := place{seq, seq}, replaced.has(seq)
		read, merr := maybeOther(l.objects, seq)
		if merr == nil && read {
			var c Commit
			if c, _, merr = l.readCommit(seq); merr == nil {
				hidden = hidden && c.Kind == "" // otherwise add refuses the merge
			}
			if merr == nil && !hidden {
				p.first = c.First()
				for _, r := range c.Replaces {
					replaced = replaced.add(r)
				}
				if c.Kind == kindClaim {
					l.seq.claim(&c)
				}
			}
		}
		if hidden {
			continue
		}
		if merr != nil && (err == nil || errors.Is(merr, fs.ErrNotExist)) {
			err = merr
		}
		places = append(places, p)
	}
	slices.SortFunc(places, func(a, b place) int { return int(a.first - b.first) })
	for _, p := range places {
		order = append(order, p.seq)
	}
	return order, gapsOf(replaced, fresh), err
}

// maybeOther reports whether an entry might be a merge, a claim or the end of the log. An entry of a
// newer version might be one. The first bytes are enough to determine this, because encodeCommit
// writes version, seq, replaces and kind first.
func maybeOther(objects store.Store, seq int64) (bool, error) {
	head, err := readHead(objects, entryPath(seq), 64)
	version, ok := bytes.CutPrefix(head, []byte(`{"version":`))
	return ok && (!bytes.HasPrefix(version, []byte("1,")) || bytes.Contains(version, []byte(`,"replaces":`)) || bytes.Contains(version, []byte(`,"kind":`))), err
}

// add adds the next entry in logical order. The entry can also be a merge of entries that have
// already been added.
func (l *Log) add(c *Commit) error {
	if c.Kind == "" && l.known.has(c.Seq) { // a merge has replaced it; see newEntries
		if l.replaced != nil {
			l.replaced = append(l.replaced, c.paths()...)
		}
		return nil
	}
	err := l.seq.add(c)
	from, to := 0, 0
	if err == nil && c.Kind == "" {
		from, to, err = l.place(c)
	}
	if err != nil {
		return &CorruptError{Path: entryPath(c.Seq), Row: -1, Err: err}
	}
	if c.Kind != "" {
		l.known = l.known.add(SeqRange{c.Seq, c.Seq})
		return nil
	}
	if l.replaced != nil {
		for i := range l.Commits[from:to] {
			l.replaced = append(l.replaced, l.Commits[from+i].paths()...)
		}
	}
	if l.each != nil {
		for o := range c.Originals() {
			if o.Seq > l.given {
				l.each(o)
			}
		}
		c.Groups, c.Samples = nil, nil
	}
	l.given = max(l.given, c.Last())
	l.Commits = slices.Replace(l.Commits, from, to, *c)
	l.known = l.known.add(SeqRange{c.Seq, c.Seq})
	for _, r := range c.Replaces {
		l.known = l.known.add(r)
	}
	return nil
}

// place returns the range of entries in l.Commits that c replaces. It returns an error if another
// entry already contains one of the commits in c, or if c replaces a commit but does not contain
// it.
func (l *Log) place(c *Commit) (from, to int, err error) {
	from, _ = slices.BinarySearchFunc(l.Commits, c.First(), func(o Commit, seq int64) int { return int(o.First() - seq) })
	if from > 0 && l.Commits[from-1].Last() >= c.First() {
		return 0, 0, fmt.Errorf("the entry begins with commit %d, but entry %d already contains that commit", c.First(), l.Commits[from-1].Seq)
	}
	var replaced seqSet = c.Replaces
	for to = from; to < len(l.Commits) && l.Commits[to].First() <= c.Last(); to++ {
		o := &l.Commits[to]
		if !replaced.has(o.Seq) {
			return 0, 0, fmt.Errorf("the entry contains samples of entry %d but does not replace that entry", o.Seq)
		}
		if err := o.heldBy(c); err != nil {
			return 0, 0, err
		}
	}
	if c.IsMerge() {
		for i := range l.Commits {
			if seq := l.Commits[i].Seq; (i < from || i >= to) && replaced.has(seq) {
				return 0, 0, fmt.Errorf("the entry replaces entry %d but does not contain its samples", seq)
			}
		}
	}
	return from, to, nil
}

// heldBy checks the merge that replaces c. It returns an error if the merge does not contain all
// commits of c.
func (c *Commit) heldBy(merge *Commit) error {
	merged := c.Merged
	if !c.IsMerge() {
		merged = []MergedCommit{c.merged()} // has 0 samples, because l.add has dropped the samples
	}
	for _, m := range merged {
		at, ok := slices.BinarySearchFunc(merge.Merged, m.Seq, func(o MergedCommit, seq int64) int { return int(o.Seq - seq) })
		if !ok || m.Samples > 0 && merge.Merged[at].Samples != m.Samples || merge.Merged[at].Tokens != m.Tokens {
			return fmt.Errorf("the entry replaces entry %d but does not contain the %d samples and %d tokens of commit %d", c.Seq, m.Samples, m.Tokens, m.Seq)
		}
	}
	return nil
}
