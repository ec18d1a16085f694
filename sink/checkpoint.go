package sink

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"

	kzstd "github.com/klauspost/compress/zstd"

	"github.com/rollout-rl/rollout/sink/store"
)

// A checkpoint saves a reader of a bucket one request per entry. Each epoch has two objects, both
// compressed with zstd. The first line of the log checkpoint is a checkpointHead. The other lines
// are the entries up to its number that no merge has replaced: the claims, and then the others in
// logical order. The tail checkpoint contains the entries after a log checkpoint, by number.
//
// Readers use the checkpoints with the highest epochs. A process that no longer owns the log can
// therefore not replace a newer checkpoint with an older one. Checkpoints are copies of entries. If
// one is missing, old or damaged, a reader reads the entries themselves. If the log lacks the last
// entry of a checkpoint, entries were deleted: readers ignore the checkpoint, Verify reports a
// problem, and Create returns an error. Verify always reads the entries.
const (
	checkpointsDir = "_checkpoints"
	logCheckpoint  = ".log.zst"
	tailCheckpoint = ".tail.zst"

	// The tail is written after tailEvery entries. A reader then requests at most tailEvery-1
	// entries, so that Create makes at most 9 requests. A writer makes one more request for 2
	// commits. A tail of n entries is written after n/tailShare entries instead, and the log after
	// logEvery entries, when the tail has 1/logShare of the log's size. So the cost per commit does
	// not grow with the log.
	tailEvery = 2
	tailShare = 64
	logEvery  = 63
	logShare  = 8
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

// checkpoints contains a log checkpoint and a tail checkpoint. A body is nil if there is none.
type checkpoints struct {
	logName, tailName string
	log, tail         []byte
}

// readCheckpoints returns the newest checkpoints.
func (p *location) readCheckpoints() (c checkpoints, err error) {
	files, err := p.filesIn(checkpointsDir, "")
	for _, i := range files {
		if strings.HasSuffix(i.Name, logCheckpoint) {
			c.logName = i.Name
		} else if strings.HasSuffix(i.Name, tailCheckpoint) {
			c.tailName = i.Name
		}
	}
	get := func(name string) (body []byte) {
		if err == nil && name != "" {
			if body, err = p.objects.Get(name); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		}
		return body
	}
	c.log, c.tail = get(c.logName), get(c.tailName)
	return c, asPath(err)
}

// load adds the entries of the checkpoints to an empty log. It returns the numbers of the later
// entries, as the bucket lists them.
func (l *Log) load() (listed []int64, err error) {
	all, err := l.readCheckpoints()
	if err != nil {
		return nil, err
	}
	for _, c := range []checkpoints{all, {log: all.log}, {tail: all.tail}} {
		check := &Log{location: l.location, seq: sequence{runID: l.seq.runID}, each: func(*Commit) {}}
		if check.addAll(c) != nil || check.Last() == 0 {
			continue // damage of a checkpoint is not damage of the log
		}
		last := check.Last()
		if listed, err = l.commitNumbers(last - 1); err != nil {
			return nil, err
		}
		if len(listed) == 0 { // the list omits the last entry, or someone has deleted the entries
			_, err = l.fetchOne(last)
		}
		switch {
		case err == nil:
			return listed, l.addAll(c)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		case l.checkpoints != nil: // Create would begin the log again
			return nil, &CorruptError{Path: entryPath(last), Row: -1, Err: fmt.Errorf("the entry is missing, but a checkpoint contains it; restore it, or delete %s/ to do without it", checkpointsDir)}
		}
	}
	return l.commitNumbers(0)
}

// addAll adds the entries of checkpoints.
func (l *Log) addAll(c checkpoints) error {
	if c.log != nil {
		var head checkpointHead
		size := int64(0)
		err := eachEntry(c.log, &head, func(c *Commit, line []byte) error {
			size += int64(len(line))
			return l.add(c)
		})
		if err == nil && (head.Version != 1 || len(l.known) != 1 || l.known[0] != SeqRange{1, head.To}) {
			err = errors.New("entries are missing")
		}
		if err != nil {
			return err
		}
		if l.checkpoints != nil {
			l.checkpoints.log, l.checkpoints.size = c.log, size
		}
		if l.replaced != nil {
			l.replaced = append(l.replaced, head.Replaced...)
		}
	}
	if c.tail == nil {
		return nil
	}
	err := eachEntry(c.tail, nil, func(c *Commit, line []byte) error {
		if c.Seq != l.Last()+1 { // known, or the first entries are missing
			return nil
		}
		l.checkpoints.keep(c, line)
		return l.add(c)
	})
	if l.checkpoints != nil {
		l.checkpoints.saved = len(l.checkpoints.tail)
	}
	return err
}

// A checkpointer contains the entries of the next checkpoints.
type checkpointer struct {
	saving sync.Mutex // held while a checkpoint is written

	// Dataset.logMu guards these fields.
	log   []byte      // the last log checkpoint
	size  int64       // of log, without compression
	tail  []entryLine // the later entries
	saved int         // number of entries in the tail when a checkpoint was last written
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

// due reports whether the log or the tail must be written.
func (k *checkpointer) due() (log, tail bool) {
	n := len(k.tail)
	if n == 0 {
		return false, false
	}
	sealed := k.tail[n-1].Kind == kindSealed
	tail = sealed || n-k.saved >= max(tailEvery, n/tailShare)
	return tail && (sealed || n >= logEvery && sizeOf(k.tail) >= k.size/logShare), tail
}

func sizeOf(entries []entryLine) (n int64) {
	for i := range entries {
		n += int64(len(entries[i].line))
	}
	return n
}

// checkpoint writes the checkpoints that are due, unless another goroutine is writing one. The caller
// must not have locked logMu, so that commits can continue.
func (d *Dataset) checkpoint() {
	if k := d.checkpoints; k != nil && k.saving.TryLock() {
		defer k.saving.Unlock()
		for d.saveCheckpoint() { // the log can have grown in the meantime
		}
	}
}

// saveCheckpoint writes a checkpoint if one is due, and reports whether it was due.
func (d *Dataset) saveCheckpoint() bool {
	k := d.checkpoints
	d.logMu.Lock()
	whole, due := k.due()
	if !due {
		d.logMu.Unlock()
		return false
	}
	log, tail := k.log, slices.Clone(k.tail)
	d.logMu.Unlock()
	entries, suffix := tail, tailCheckpoint
	var head, body []byte
	var err error
	if whole {
		suffix = logCheckpoint
		head, entries, err = withTail(log, tail)
	}
	if err == nil {
		body, err = compressed(head, entries)
	}
	if len(body) > store.MaxPut {
		err = fmt.Errorf("%d bytes are more than a reader can get at once", len(body))
	}
	if err == nil {
		err = d.objects.Put(fmt.Sprintf("%s/%020d%s", checkpointsDir, d.cfg.Epoch, suffix), body)
	}
	d.logMu.Lock()
	defer d.logMu.Unlock()
	k.saved = len(tail) // also after an error: try again later
	if err != nil {
		d.cfg.Logger.Warn("cannot write a checkpoint of the log; readers need more requests", "error", err)
	}
	switch {
	case whole && err != nil:
		k.size = 2 * logShare * sizeOf(tail) // try again when the tail is twice as large
	case whole:
		k.log, k.size, k.tail, k.saved = body, sizeOf(entries), slices.Clone(k.tail[len(tail):]), 0
	}
	return true
}

// withTail returns the head and the entries of the next log checkpoint.
func withTail(log []byte, tail []entryLine) (_ []byte, _ []entryLine, err error) {
	var head checkpointHead
	var all checkpointer
	if log != nil {
		err = eachEntry(log, &head, func(c *Commit, line []byte) error { all.keep(c, line); return nil })
	}
	if err != nil {
		return nil, nil, err // cannot happen, because addAll has read it
	}
	head.Version = 1
	list := append(all.tail, tail...)
	var replaced seqSet
	for i := range list {
		head.To = max(head.To, list[i].Seq)
		for _, r := range list[i].Replaces {
			replaced = replaced.add(r)
		}
	}
	list = slices.DeleteFunc(list, func(e entryLine) bool {
		gone := replaced.has(e.Seq)
		if gone {
			head.Replaced = append(head.Replaced, e.paths()...)
		}
		return gone
	})
	slices.SortFunc(list, func(a, b entryLine) int {
		if claim := b.Kind == kindClaim; claim != (a.Kind == kindClaim) {
			if claim {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.First(), b.First())
	})
	line, err := json.Marshal(head)
	return append(line, '\n'), list, err
}

var checkpointEncoders = encoders{options: []kzstd.EOption{kzstd.WithEncoderConcurrency(1), kzstd.WithWindowSize(zstdWindow)}}

// compressed returns a compressed object: the head, and the lines of the entries.
func compressed(head []byte, entries []entryLine) ([]byte, error) {
	z := checkpointEncoders.take()
	defer checkpointEncoders.give(z)
	var b bytes.Buffer
	z.Reset(&b)
	defer z.Reset(nil) // drops b
	_, err := z.Write(head)
	for i := range entries {
		if err == nil {
			_, err = z.Write(entries[i].line)
		}
	}
	closeInto(z, &err)
	return b.Bytes(), err
}
