package sink

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"
)

// A SeqRange is a range of entry numbers. It contains the numbers of the first and the last entry.
type SeqRange [2]int64

// A MergedCommit describes the part of a merge that comes from one commit. With these counts, a
// reader can shuffle the rows in the same order before and after a merge. A commit with more than
// Config.RowGroupTokens tokens is never merged, because its row groups affect that order.
type MergedCommit struct {
	Seq     int64 `json:"seq"`
	Samples int   `json:"samples"`
	Tokens  int64 `json:"tokens"`
	// CreatedAt is the commit's created_at.
	CreatedAt time.Time `json:"created_at,omitzero"`
}

// IsMerge reports whether the entry is a merge. A merge does not add samples to the dataset.
func (c *Commit) IsMerge() bool { return len(c.Replaces) > 0 }

// First returns the number of the first commit whose samples the entry contains. If the entry is
// not a merge, this is c.Seq.
func (c *Commit) First() int64 {
	if len(c.Merged) > 0 {
		return c.Merged[0].Seq
	}
	return c.Seq
}

// Last returns the number of the last commit whose samples the entry contains. See First.
func (c *Commit) Last() int64 {
	if n := len(c.Merged); n > 0 {
		return c.Merged[n-1].Seq
	}
	return c.Seq
}

func (c *Commit) paths() (paths []string) {
	for _, s := range c.Shards {
		paths = append(paths, s.Path)
	}
	return paths
}

func (c *Commit) tokens() (n int64) {
	for _, s := range c.Shards {
		if s.Kind == KindData {
			n += s.Tokens.Total
		}
	}
	return n
}

func (c *Commit) merged() MergedCommit {
	return MergedCommit{Seq: c.Seq, Samples: len(c.Samples), Tokens: c.tokens(), CreatedAt: c.CreatedAt}
}

// Originals yields the commits whose samples the entry contains, in order. An entry that is not a
// merge yields only itself. If the entry is a merge, each yielded commit has its own Seq, Groups
// and Samples. Its Shards are nil, because the shards of the merge contain the rows of all its
// commits, one commit after another.
func (c *Commit) Originals() iter.Seq[*Commit] {
	return func(yield func(*Commit) bool) {
		if !c.IsMerge() {
			yield(c)
			return
		}
		samples := c.Samples
		for _, m := range c.Merged {
			o := &Commit{
				Version: commitVersion, Seq: m.Seq, RunID: c.RunID, SchemaVersion: c.SchemaVersion, CreatedAt: m.CreatedAt,
				Samples: slices.Clone(samples[:m.Samples]),
			}
			samples = samples[m.Samples:]
			places := map[int32]int32{}
			for i := range o.Samples {
				s := &o.Samples[i]
				at, ok := places[s.Group]
				if !ok {
					at = int32(len(o.Groups))
					places[s.Group] = at
					o.Groups = append(o.Groups, c.Groups[s.Group])
				}
				s.Group = at
			}
			if !yield(o) {
				return
			}
		}
	}
}

func (c *Commit) checkMerge() error {
	if !c.IsMerge() {
		if len(c.Merged) > 0 {
			return errors.New("the entry replaces no entries, but contains samples of other entries")
		}
		return nil
	}
	if len(c.Merged) == 0 {
		return errors.New("the merge contains no commits")
	}
	last := int64(0)
	for _, r := range c.Replaces {
		if r[0] <= last || r[1] < r[0] || r[1] >= c.Seq {
			return fmt.Errorf("entry %d replaces entries %d to %d after entry %d: the ranges must be in ascending order and end before the entry", c.Seq, r[0], r[1], last)
		}
		last = r[1]
	}
	var replaced seqSet = c.Replaces
	left, tokens := len(c.Samples), c.tokens()
	last = 0
	for _, m := range c.Merged {
		if m.Seq <= last || !replaced.has(m.Seq) {
			return fmt.Errorf("commit %d follows commit %d: a merge must list commits in ascending order and replace them", m.Seq, last)
		}
		if m.Samples < 1 || m.Samples > left || m.Tokens < 0 || m.Tokens > tokens {
			return fmt.Errorf("the merge counts %d samples and %d tokens for commit %d, but only %d samples and %d tokens are left", m.Samples, m.Tokens, m.Seq, left, tokens)
		}
		left -= m.Samples
		tokens -= m.Tokens
		last = m.Seq
	}
	if left > 0 || tokens > 0 {
		return fmt.Errorf("%d samples and %d tokens belong to no commit", left, tokens)
	}
	return nil
}

// A seqSet is a set of entry numbers. The ranges are in ascending order and are separated by gaps.
type seqSet []SeqRange

// find returns the index of the range that contains seq. If no range contains seq, it returns the
// index of the first range after seq, and ok is false.
func (s seqSet) find(seq int64) (at int, ok bool) {
	at, _ = slices.BinarySearchFunc(s, seq, func(r SeqRange, seq int64) int {
		if r[1] < seq {
			return -1
		}
		return 1
	})
	return at, at < len(s) && s[at][0] <= seq
}

func (s seqSet) has(seq int64) bool {
	_, ok := s.find(seq)
	return ok
}

// add returns a set that also contains all numbers in r. It reuses the memory of s.
func (s seqSet) add(r SeqRange) seqSet {
	from, _ := s.find(r[0] - 1) // a range that ends just before r is combined with r
	to := from
	for to < len(s) && s[to][0] <= r[1]+1 {
		r = SeqRange{min(r[0], s[to][0]), max(r[1], s[to][1])}
		to++
	}
	return slices.Replace(s, from, to, r)
}
