package sink

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sort"
)

// bucket checks the log in a bucket, and then the shards of all entries that no merge has replaced.
func (v *verifier) bucket(ctx context.Context) error {
	v.entries.replaced = []string{}
	checked := int64(0) // all commits up to this number were checked
	for again := true; ; {
		if again {
			if err := v.readEntries(); err != nil {
				return err
			}
		}
		list := v.entries.Commits
		at := sort.Search(len(list), func(i int) bool { return list[i].Last() > checked })
		if at == len(list) {
			return v.checkpoints()
		}
		e, err := v.fetchOne(list[at].Seq) // the samples were dropped
		if err != nil {
			return err // it was read before
		}
		files, missing := v.openShards(&e.Commit)
		if missing && !again { // a new merge can have replaced the entry
			closeShards(files)
			again = true
			continue
		}
		err = v.commit(ctx, &e.Commit, files, checked)
		closeShards(files)
		if err != nil {
			return err
		}
		checked, again = e.Last(), false
	}
}

// readEntries reads and checks the new entries.
func (v *verifier) readEntries() error {
	listed, err := v.entries.list()
	if err != nil {
		return err
	}
	order, err := v.entries.newEntries(listed)
	if err != nil {
		v.problem("", -1, err)
		v.broken = true
	}
	for e, err := range v.fetch(order) {
		if errors.Is(err, ErrNewer) || unread(err) {
			return err
		}
		v.named[entryPath(e.Seq)] = true
		if err != nil {
			err = v.inCheckpoint(e.Seq, err)
		}
		if v.add(e.Seq, &e.Commit, err) {
			v.sums[e.Seq] = e.SHA256
		}
	}
	return nil
}

// inCheckpoint returns the error from reading an entry. If a checkpoint contains the entry, the error
// names the checkpoint, because it can be the only intact copy.
func (v *verifier) inCheckpoint(seq int64, err error) error {
	c, cerr := v.readCheckpoints()
	if cerr != nil {
		return err // the method checkpoints returns cerr, too
	}
	name := ""
	find := func(in string) func(*Commit, []byte) error {
		return func(c *Commit, _ []byte) error {
			if c.Seq == seq {
				name = in
			}
			return nil
		}
	}
	_ = eachEntry(c.tail, nil, find(c.tailName)) // a damaged checkpoint contains the entries before the damage
	_ = eachEntry(c.log, new(checkpointHead), find(c.logName))
	if name == "" {
		return err
	}
	if corrupt, ok := errors.AsType[*CorruptError](err); ok {
		err = corrupt.Err
	}
	return &CorruptError{Path: entryPath(seq), Row: -1, Err: fmt.Errorf("%w; %s contains this entry: keep it, and restore the entry from its line there", err, name)}
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
				other = fmt.Sprintf("entry %d of the checkpoint differs from the entry in the log: keep copies of both; readers use the checkpoint", c.Seq)
			}
			return nil
		})
		if end > v.entries.Last() { // a new entry, or a lost one
			if _, err := v.fetchOne(end); errors.Is(err, fs.ErrNotExist) {
				v.broken = true
				other = fmt.Sprintf("the checkpoint contains entry %d, but the log ends at entry %d", end, v.entries.Last())
			} else if err != nil {
				return err
			}
		}
		if other != "" {
			v.problem(name, -1, errors.New(other))
		}
		return nil
	}
	return errors.Join(compare(c.logName, c.log, new(checkpointHead)), compare(c.tailName, c.tail, nil))
}
