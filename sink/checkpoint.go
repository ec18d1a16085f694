package sink

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"slices"

	kzstd "github.com/klauspost/compress/zstd"
)

// A checkpoint saves a reader of a bucket one request per entry. There are two objects, both
// compressed with zstd. The first line of the log checkpoint is a checkpointHead. The other lines
// are the entries up to its number that no merge has replaced, in logical order. The tail
// checkpoint contains all later entries, or the first of them, by number.
//
// Both are copies of entries, so any process can write them at any time. If one is missing, old or
// damaged, a reader reads the entries themselves. Verify always reads the entries.
const (
	logCheckpoint  = "_checkpoints/log.zst"
	tailCheckpoint = "_checkpoints/tail.zst"

	// The tail is written after tailEvery entries, and the log after logEvery entries. A reader
	// then requests at most tailEvery-1 entries, so that Create makes at most 10 requests. A writer
	// makes one more request for 3 commits.
	tailEvery = 3
	logEvery  = 63
)

type checkpointHead struct {
	Version int   `json:"version"`
	To      int64 `json:"to"` // number of the last entry
	// Replaced contains the paths of the shards of replaced entries.
	Replaced []string `json:"replaced"`
}

// eachEntry calls yield with the entries in a compressed checkpoint and their bytes. If head is not
// nil, eachEntry decodes the first line into head.
func eachEntry(body []byte, head *checkpointHead, yield func(c *Commit, line []byte) error) error {
	z, err := kzstd.NewReader(bytes.NewReader(body), kzstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer z.Close()
	for r := bufio.NewReader(z); ; head = nil {
		line, err := r.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			return nil
		}
		if err == nil && head != nil {
			err = json.Unmarshal(line, head)
		} else if err == nil {
			var c Commit
			if c, err = decodeCommit(line); err == nil {
				err = c.check(c.Seq)
			}
			if err == nil {
				err = yield(&c, line)
			}
		}
		if err != nil {
			return err
		}
	}
}

// readCheckpoint returns the log checkpoint, its head and its claims. The body is nil if there is
// no valid checkpoint. An entry that is missing from it makes it invalid.
func (p *location) readCheckpoint() (body []byte, head checkpointHead, claims []Commit) {
	body, err := p.objects.Get(logCheckpoint)
	var known seqSet
	if err == nil {
		err = eachEntry(body, &head, func(c *Commit, _ []byte) error {
			known = known.add(SeqRange{c.Seq, c.Seq})
			for _, r := range c.Replaces {
				known = known.add(r)
			}
			if c.Kind == kindClaim {
				claims = append(claims, *c)
			}
			return nil
		})
	}
	if err != nil || head.Version != 1 || len(known) != 1 || known[0] != (SeqRange{1, head.To}) {
		return nil, checkpointHead{}, nil
	}
	return body, head, claims
}

// load adds the entries of the checkpoints. The log must be empty.
func (l *Log) load() error {
	body, head, claims := l.readCheckpoint()
	for i := range claims {
		l.seq.claim(&claims[i])
	}
	if body != nil {
		if err := eachEntry(body, new(checkpointHead), func(c *Commit, _ []byte) error { return l.add(c) }); err != nil {
			return err
		}
		if l.checkpoints != nil {
			l.checkpoints.to = head.To
		}
		if l.replaced != nil {
			for _, path := range head.Replaced {
				l.replaced = append(l.replaced, Commit{Shards: []Shard{{Path: path}}})
			}
		}
	}
	body, err := l.objects.Get(tailCheckpoint)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return asPath(err)
	}
	// Check all lines first: a damaged checkpoint is not damage of the log.
	if eachEntry(body, nil, func(*Commit, []byte) error { return nil }) != nil {
		return nil //nolint:nilerr // the reader reads the entries
	}
	return eachEntry(body, nil, func(c *Commit, line []byte) error {
		if c.Seq != l.Last()+1 { // known, or the first entries are missing
			return nil
		}
		l.checkpoints.keep(c, line)
		return l.add(c)
	})
}

// A checkpointer contains the entries of the next checkpoints. Dataset.logMu guards it.
type checkpointer struct {
	to   int64       // the entries up to this number are in the log checkpoint
	tail []entryLine // the later entries
}

// An entryLine is an entry without its samples, and the bytes of the whole entry.
type entryLine struct {
	Commit
	line []byte
}

// keep adds the next entry. If k is nil, it does nothing.
func (k *checkpointer) keep(c *Commit, line []byte) {
	if k != nil {
		own := *c
		own.Shards, own.Groups, own.Samples = slices.Clone(c.Shards), nil, nil // the callback Committed owns c
		k.tail = append(k.tail, entryLine{own, line})
	}
}

// checkpoint adds an entry that is durable, and writes a checkpoint if one is due.
func (d *Dataset) checkpoint(c *Commit, line []byte) {
	k := d.checkpoints
	k.keep(c, line)
	var err error
	switch n := len(k.tail); {
	case c.Kind == kindSealed, n >= logEvery && n%tailEvery == 0:
		err = d.putCheckpoint(c.Seq)
	case n%tailEvery == 0:
		err = d.putLines(tailCheckpoint, nil, k.tail)
	}
	if err != nil {
		d.cfg.Logger.Warn("cannot write a checkpoint of the log; readers need more requests", "error", err)
	}
}

// putCheckpoint writes the log checkpoint up to the entry with the number to.
func (d *Dataset) putCheckpoint(to int64) error {
	k, all := d.checkpoints, new(checkpointer)
	body, head, _ := d.readCheckpoint() // another process can have written another one
	if head.To >= to {
		return nil
	}
	if body != nil {
		if err := eachEntry(body, new(checkpointHead), func(c *Commit, line []byte) error { all.keep(c, line); return nil }); err != nil {
			return err
		}
	}
	for seq := head.To + 1; seq <= k.to; seq++ {
		c, line, err := d.readCommit(seq)
		if err != nil {
			return err
		}
		all.keep(&c, line)
	}
	for _, e := range k.tail {
		if e.Seq > head.To {
			all.tail = append(all.tail, e)
		}
	}
	var replaced seqSet
	for i := range all.tail {
		for _, r := range all.tail[i].Replaces {
			replaced = replaced.add(r)
		}
	}
	all.tail = slices.DeleteFunc(all.tail, func(e entryLine) bool {
		if !replaced.has(e.Seq) {
			return false
		}
		for _, s := range e.Shards {
			head.Replaced = append(head.Replaced, s.Path)
		}
		return true
	})
	slices.SortFunc(all.tail, func(a, b entryLine) int { return cmp.Compare(a.First(), b.First()) })
	head.Version, head.To = 1, to
	line, err := json.Marshal(head)
	if err != nil {
		return err // cannot happen, because all fields can be encoded as JSON
	}
	if err := d.putLines(logCheckpoint, append(line, '\n'), all.tail); err != nil {
		return err
	}
	k.to, k.tail = to, nil
	return nil
}

// putLines writes a compressed object: the head, and the lines of the entries.
func (d *Dataset) putLines(name string, head []byte, entries []entryLine) error {
	var b bytes.Buffer
	z, err := kzstd.NewWriter(&b, kzstd.WithEncoderConcurrency(1), kzstd.WithWindowSize(zstdWindow))
	if err != nil {
		return err
	}
	_, err = z.Write(head)
	for i := range entries {
		if err == nil {
			_, err = z.Write(entries[i].line)
		}
	}
	if closeInto(z, &err); err != nil {
		return err
	}
	return d.objects.Put(name, b.Bytes())
}
