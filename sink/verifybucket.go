package sink

import (
	"context"
	"errors"
	"fmt"
	"sort"
)

// bucket checks the log in a bucket and the shards of all entries that no merge has replaced. It
// keeps these entries in memory, so that it requests each entry once.
func (v *verifier) bucket(ctx context.Context) error {
	entries := map[int64]*Commit{} // that were not checked
	checked := int64(0)            // all commits up to this number were checked
	v.entries.replaced = []Commit{}
	again, tries := true, 0
	for {
		if again {
			if err := v.fetchAll(entries); err != nil {
				return err
			}
		}
		list := v.entries.Commits
		at := sort.Search(len(list), func(i int) bool { return list[i].Last() > checked })
		if at == len(list) {
			return v.checkpoints()
		}
		c := entries[list[at].Seq]
		var files []openFile
		if files, again = v.openShards(c); again && tries < maxListings {
			tries++
			closeShards(files)
			continue // a new entry has replaced c
		}
		err := v.commit(ctx, c, files, checked)
		closeShards(files)
		if err != nil {
			return err
		}
		checked = c.Last()
		delete(entries, c.Seq)
	}
}

// fetchAll reads the new entries.
func (v *verifier) fetchAll(entries map[int64]*Commit) error {
	last, err := v.highest(v.entries.Last())
	if err != nil {
		return err
	}
	for e, err := range v.fetch(v.entries.Last(), last) {
		if errors.Is(err, ErrNewer) || unread(err) {
			return err
		}
		v.named[entryPath(e.Seq)] = true
		v.sums[e.Seq] = e.SHA256
		if !v.add(e.Seq, &e.Commit, err) || e.Kind != "" {
			continue
		}
		entries[e.Seq] = &e.Commit
		for _, r := range e.Replaces {
			for seq := r[0]; seq <= r[1]; seq++ {
				delete(entries, seq)
			}
		}
	}
	return nil
}

// checkpoints compares the newest checkpoints with the entries. A damaged checkpoint is not a
// problem, because readers ignore it.
func (v *verifier) checkpoints() error {
	c, err := v.readCheckpoints()
	if err != nil {
		return err
	}
	compare := func(name string, body []byte, head *checkpointHead) error {
		other, end := "", v.entries.Last()
		_ = eachEntry(body, head, func(c *Commit, _ []byte) error {
			end = max(end, c.Seq)
			if sum, ok := v.sums[c.Seq]; ok && sum != c.SHA256 {
				other = fmt.Sprintf("entry %d of the checkpoint does not match the log: delete the checkpoint", c.Seq)
			}
			return nil
		})
		if end > v.entries.Last() { // a new entry, or a lost one
			last, err := v.highest(end - 1)
			if err != nil {
				return err
			}
			if last < end {
				other = fmt.Sprintf("the checkpoint contains entry %d, but the log ends at entry %d", end, v.entries.Last())
			}
		}
		if other != "" {
			v.problem(name, -1, errors.New(other))
		}
		return nil
	}
	return errors.Join(compare(c.logName, c.log, new(checkpointHead)), compare(c.tailName, c.tail, nil))
}
