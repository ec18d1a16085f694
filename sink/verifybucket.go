package sink

import (
	"context"
	"errors"
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
			return nil
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
	for e, err := range v.fetch(v.entries.Last()) {
		if e.Seq == 0 || errors.Is(err, ErrNewer) || unread(err) {
			return err
		}
		v.named[entryPath(e.Seq)] = true
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
