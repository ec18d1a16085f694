package sink

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"iter"
	"slices"

	kzstd "github.com/klauspost/compress/zstd"
)

// A checkpoint saves a reader of a bucket one request per entry. There are two objects, both compressed
// with zstd. The first line of the log checkpoint is a checkpointHead. The other lines are the entries up
// to its number that no merge has replaced, in logical order. The tail checkpoint contains all later
// entries, or the first of them, by number.
//
// Both are copies of entries, so any process can write them at any time. If one is missing, old or
// damaged, a reader reads the entries themselves. Verify always reads the entries.
const (
	logCheckpoint  = "_checkpoints/log.zst"
	tailCheckpoint = "_checkpoints/tail.zst"

	// The tail is written after tailEvery entries, and the log after logEvery entries. A reader then
	// requests at most tailEvery-1 entries, so that Create makes at most 10 requests. A writer makes one
	// more request for 3 commits.
	tailEvery = 3
	logEvery  = 63
)

type checkpointHead struct {
	Version int   `json:"version"`
	To      int64 `json:"to"` // number of the last entry
	// Replaced contains the paths of the shards of replaced entries.
	Replaced []string `json:"replaced"`
}

// An entryHead contains the members of an entry that determine its place in the log.
type entryHead struct {
	Seq      int64          `json:"seq"`
	Kind     string         `json:"kind"`
	Replaces []SeqRange     `json:"replaces"`
	Merged   []MergedCommit `json:"merged"`
	Shards   []Shard        `json:"shards"`
}

func (h *entryHead) first() int64 { return (&Commit{Seq: h.Seq, Merged: h.Merged}).First() }

var errCheckpoint = errors.New("the checkpoint has other entries than the log: delete it")

// checkpointLines calls yield with each line of a compressed checkpoint.
func checkpointLines(body []byte, yield func(line []byte) error) error {
	z, err := kzstd.NewReader(bytes.NewReader(body), kzstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer z.Close()
	r := bufio.NewReader(z)
	for {
		line, err := r.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			return nil
		}
		if err == nil {
			err = yield(line)
		}
		if err != nil {
			return err
		}
	}
}

// headOf verifies the checksum of an entry and returns its head.
func headOf(line []byte) (h entryHead, err error) {
	if err = checkSum(line); err == nil {
		err = json.Unmarshal(line, &h)
	}
	return h, err
}

// readCheckpoint returns the log checkpoint, its head and its claims. The body is nil if there is no valid
// checkpoint. An entry that is missing from it makes it invalid.
func (p *location) readCheckpoint() (body []byte, head checkpointHead, claims []Commit) {
	body, err := p.objects.Get(logCheckpoint)
	var known seqSet
	if err == nil {
		err = checkpointLines(body, func(line []byte) error {
			if head.To == 0 {
				return json.Unmarshal(line, &head)
			}
			h, err := headOf(line)
			if err != nil {
				return err
			}
			known = known.add(SeqRange{h.Seq, h.Seq})
			for _, r := range h.Replaces {
				known = known.add(r)
			}
			if h.Kind == kindClaim {
				var c Commit
				err = json.Unmarshal(line, &c)
				claims = append(claims, c)
			}
			return err
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
		first := true
		err := checkpointLines(body, func(line []byte) error {
			if first {
				first = false
				return nil
			}
			return l.addLine(line)
		})
		if err != nil {
			return err
		}
		l.checkpointed = head.To
		if l.old != nil {
			for _, path := range head.Replaced {
				l.old = append(l.old, Commit{Shards: []Shard{{Path: path}}})
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
	if checkpointLines(body, func(line []byte) error { _, err := headOf(line); return err }) != nil {
		return nil //nolint:nilerr // the reader reads the entries
	}
	return checkpointLines(body, func(line []byte) error {
		h, err := headOf(line)
		if err != nil || h.Seq != l.Last()+1 { // known, or the first entries are missing
			return err
		}
		l.keepLine(line)
		return l.addLine(line)
	})
}

func (l *Log) addLine(line []byte) error {
	c, err := decodeCommit(line)
	if err == nil {
		err = c.check(c.Seq)
	}
	if err == nil {
		err = l.add(&c)
	}
	return err
}

// keepLine keeps an entry for the next checkpoint, if the log is read by Create.
func (l *Log) keepLine(line []byte) {
	if l.tail != nil {
		l.tail = append(l.tail, line)
	}
}

// A checkpointer writes checkpoints of the log. Dataset.logMu guards it.
type checkpointer struct {
	to   int64    // the entries up to this number are in the log checkpoint
	tail [][]byte // the later entries
}

// checkpoint adds an entry that is durable, and writes a checkpoint if one is due.
func (d *Dataset) checkpoint(c *Commit, body []byte) {
	k := &d.checkpoints
	k.tail = append(k.tail, body)
	var err error
	switch n := len(k.tail); {
	case c.Kind == kindSealed, n >= logEvery && n%tailEvery == 0:
		err = d.putCheckpoint(c.Seq)
	case n%tailEvery == 0:
		err = d.putLines(tailCheckpoint, slices.Values(k.tail))
	}
	if err != nil {
		d.cfg.Logger.Warn("cannot write a checkpoint of the log; readers need more requests", "error", err)
	}
}

// putCheckpoint writes the log checkpoint up to an entry.
func (d *Dataset) putCheckpoint(to int64) error {
	k := &d.checkpoints
	body, head, _ := d.readCheckpoint() // another process can have written an older one
	var lines [][]byte
	var heads []entryHead
	add := func(line []byte) error {
		h, err := headOf(line)
		lines, heads = append(lines, line), append(heads, h)
		return err
	}
	first := true
	if err := checkpointLines(body, func(line []byte) error {
		if first {
			first = false
			return nil
		}
		return add(line)
	}); body != nil && err != nil {
		return err
	}
	for seq := head.To + 1; seq <= to; seq++ {
		if i := int(seq - k.to - 1); i >= 0 {
			if err := add(k.tail[i]); err != nil {
				return err
			}
			continue
		}
		line, err := d.objects.Get(entryPath(seq))
		if err == nil {
			err = add(line)
		}
		if err != nil {
			return err
		}
	}
	var replaced seqSet
	for i := range heads {
		for _, r := range heads[i].Replaces {
			replaced = replaced.add(r)
		}
	}
	order := make([]int, 0, len(heads))
	for i, h := range heads {
		if !replaced.has(h.Seq) {
			order = append(order, i)
			continue
		}
		for _, s := range h.Shards {
			head.Replaced = append(head.Replaced, s.Path)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(heads[a].first(), heads[b].first()) })
	head.Version, head.To = 1, to
	line, err := json.Marshal(head)
	if err != nil {
		return err // cannot happen, because all fields can be encoded as JSON
	}
	err = d.putLines(logCheckpoint, func(yield func([]byte) bool) {
		if !yield(append(line, '\n')) {
			return
		}
		for _, i := range order {
			if !yield(lines[i]) {
				return
			}
		}
	})
	if err == nil {
		k.to, k.tail = to, nil
	}
	return err
}

// putLines writes lines into a compressed object.
func (d *Dataset) putLines(name string, lines iter.Seq[[]byte]) error {
	var b bytes.Buffer
	z, err := kzstd.NewWriter(&b, kzstd.WithEncoderConcurrency(1), kzstd.WithWindowSize(zstdWindow))
	if err != nil {
		return err
	}
	for line := range lines {
		if _, err := z.Write(line); err != nil {
			return err
		}
	}
	if err := z.Close(); err != nil {
		return err
	}
	return d.objects.Put(name, b.Bytes())
}
