package sink

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/sink/store"
)

// A claim gives the log to one process, and a sealed entry ends the log. Both are entries without
// samples. No merge replaces them, and [Log.Commits] excludes them.
const (
	kindClaim  = "claim"
	kindSealed = "sealed"
)

// ErrSealed means that the log has ended. All samples of the dataset are committed.
var ErrSealed = errors.New("sink: the dataset is complete, and its log is sealed")

// Sealed reports whether the log has ended, so that it cannot get any more samples.
func (l *Log) Sealed() bool { return l.seq.sealed > 0 }

// An End describes the last entry of a log. The zero End is the end of an empty log.
type End struct {
	Seq    int64  // number of the last entry
	Epoch  int64  // of the last claim
	Worker string // of the last claim; only its process can write to the log
	Sealed bool   // see [Log.Sealed]
}

// ReadEnd returns the current end of a log in a bucket. It needs a list and at most two more
// requests. known is the end as it was known before, or the zero End. A store can omit the newest
// entries from a list, so the result can be old. The errors are the same as in [ReadLogIn].
func ReadEnd(objects store.Store, known End) (End, error) {
	p := locate(objects, nil, "")
	listed, err := p.commitNumbers(known.Seq)
	if err != nil || len(listed) == 0 {
		return known, err
	}
	e, err := p.fetchOne(listed[len(listed)-1])
	end := End{Seq: e.Seq, Epoch: e.Epoch, Worker: e.Worker, Sealed: e.Kind == kindSealed}
	switch {
	case err != nil, e.Claim == 0: // the entry is a claim
	case e.Epoch == known.Epoch:
		end.Worker = known.Worker
	default:
		e, err = p.fetchOne(e.Claim)
		end.Worker = e.Worker
	}
	if err != nil {
		return known, err
	}
	return end, nil
}

// A sequence checks that the entries of a log are consistent with each other.
type sequence struct {
	runID  string   // if empty, add sets it to the run id of the first entry
	scores bool     // whether it is the log of a scores set
	claims []Commit // in the order of their numbers
	last   int64    // highest number
	sealed int64    // number of the sealed entry, or 0
}

// find returns the index of the first claim that is not below an entry. ok is true if it is the
// entry.
func (s *sequence) find(seq int64) (at int, ok bool) {
	return slices.BinarySearchFunc(s.claims, seq, func(c Commit, seq int64) int { return cmp.Compare(c.Seq, seq) })
}

// latest returns the number and the epoch of the last claim below an entry, or 0 if there is none.
func (s *sequence) latest(seq int64) (claim, epoch int64) {
	if at, _ := s.find(seq); at > 0 {
		claim, epoch = s.claims[at-1].Seq, s.claims[at-1].Epoch
	}
	return claim, epoch
}

// add checks the next entry. It returns an error if the entry is inconsistent with the earlier
// entries. All claims below the entry must have been added.
func (s *sequence) add(c *Commit) error {
	if s.runID == "" {
		s.runID = c.RunID
	}
	if c.RunID != s.runID {
		return fmt.Errorf("the entry belongs to run %q, but the log belongs to run %q", c.RunID, s.runID)
	}
	for _, of := range c.Shards {
		if (of.Kind == KindScores) != s.scores {
			return fmt.Errorf("the entry names the shard %s, but the log cannot have a shard of kind %s", of.Path, of.Kind)
		}
	}
	claim, epoch := s.latest(c.Seq)
	for _, r := range c.Replaces {
		at, _ := s.find(r[0])
		if at < len(s.claims) && s.claims[at].Seq <= r[1] || s.sealed >= r[0] && s.sealed <= r[1] {
			return fmt.Errorf("the entry replaces entries %d to %d, but one of them is a claim or the end of the log", r[0], r[1])
		}
	}
	switch {
	case s.sealed > 0 && c.Seq > s.sealed:
		return fmt.Errorf("the entry follows entry %d, which ends the log", s.sealed)
	case c.Kind == kindClaim && c.Epoch <= epoch:
		return fmt.Errorf("a claim of epoch %d follows claim %d of epoch %d", c.Epoch, claim, epoch)
	case c.Kind == kindClaim:
		s.claim(c)
	case c.Claim != claim || c.Epoch != epoch:
		return fmt.Errorf("the entry depends on claim %d of epoch %d, but the last claim is %d of epoch %d: its process no longer owned the log", c.Claim, c.Epoch, claim, epoch)
	case c.Kind == kindSealed && s.last > c.Seq:
		return fmt.Errorf("the entry ends the log, but entry %d follows it", s.last)
	case c.Kind == kindSealed:
		s.sealed = c.Seq
	}
	s.last = max(s.last, c.Seq)
	return nil
}

// claim adds a claim, unless it was added before.
func (s *sequence) claim(c *Commit) {
	if at, ok := s.find(c.Seq); !ok {
		s.claims = slices.Insert(s.claims, at, *c)
	}
}

// isNew reports whether the store lists no objects, so that the log does not have to be read. If the
// list is wrong, the claim fails. Epoch 1 needs a log without claims, so if the log begins with a
// claim, isNew returns ErrFenced without reading the rest.
func (l *Log) isNew(epoch int64) (bool, error) {
	if l.folder || epoch > 1 {
		return false, nil
	}
	for _, err := range l.objects.List("", "") {
		if err != nil {
			return false, shardError("open", err)
		}
		if c, _, err := l.readCommit(1); err == nil && c.Kind == kindClaim {
			return false, l.fenced(1)
		}
		return false, nil
	}
	l.shards = []store.Info{}
	return true, nil
}

func (p *location) fenced(by int64) error {
	return &ShardError{Path: p.objects.String() + "/" + entryPath(by), Op: "commit", Err: ErrFenced}
}

// claimLog makes this process the only one that can write to the log, which must have been read.
// With Config.Store, it appends a claim.
func (d *Dataset) claimLog(log *Log) error {
	claim, epoch := log.seq.latest(d.nextSeq)
	switch {
	case log.Sealed():
		return ErrSealed
	case d.cfg.Epoch <= epoch && epoch > 0:
		return d.fenced(claim)
	case d.folder:
		return nil
	}
	c := &Commit{Kind: kindClaim, Worker: d.cfg.Worker}
	if err := d.put(c); err != nil {
		return err
	}
	d.claimed = c.Seq
	d.checkpoint()
	return log.add(c)
}

// Seal ends the log durably: no process can add samples afterwards. The caller must call it when
// all samples of the dataset are committed, after Run has returned nil. Seal returns ErrWaiting if
// samples wait for the rest of their group. After an error of the store, Seal can be called again.
func (d *Dataset) Seal() error {
	select {
	case <-d.ended:
	default:
		return errors.New("sink: Seal must be called after Run")
	}
	d.mu.Lock()
	err, pending := d.err, d.stats.Pending
	d.mu.Unlock()
	if err != nil {
		return err
	}
	if pending > 0 {
		return ErrWaiting
	}
	defer d.beginCommit()()
	defer d.checkpoint()
	d.logMu.Lock()
	defer d.logMu.Unlock()
	if d.end == nil {
		d.end = &Commit{Kind: kindSealed}
	} else if d.end.Seq < d.nextSeq {
		return nil // the log is sealed
	}
	return d.put(d.end)
}

// base returns the beginning of the names of new shards. n must be new in this epoch.
func (d *Dataset) base(mark string, n int64) string {
	epoch := strconv.FormatInt(d.cfg.Epoch, 10)
	if mark != "" && d.cfg.Epoch == 0 {
		epoch = ""
	}
	return fmt.Sprintf("%s%s-%s%s-%d", shardPrefix, d.cfg.RunID, epoch, mark, n)
}

// shardName matches the end of a shard's name, after the run id: the epoch and the number.
var shardName = regexp.MustCompile(`^-(\d+)m?-\d+-[0-9a-f]{8}\.(parquet|arrow)$`)

// epochOf returns the epoch in the path of a shard of a run.
func epochOf(runID, path string) (epoch int64, ok bool) {
	_, name, _ := strings.Cut(path, "/")
	rest, own := strings.CutPrefix(name, shardPrefix+runID)
	part := shardName.FindStringSubmatch(rest)
	if !own || part == nil {
		return 0, false
	}
	epoch, err := strconv.ParseInt(part[1], 10, 64)
	return epoch, err == nil
}

// sweep deletes the shards of earlier epochs that no entry names. Their processes can no longer
// commit them. A shard of this epoch or a later one must not be deleted, because its entry can
// follow.
func (d *Dataset) sweep(log *Log) error {
	left, err := log.unnamed()
	if err != nil {
		return shardError("open", err)
	}
	for _, path := range left {
		if epoch, ok := epochOf(d.cfg.RunID, path); ok && epoch < d.cfg.Epoch {
			if err := d.objects.Delete(path); err != nil {
				return shardError("remove", err)
			}
			d.recovered.Deleted++
		}
	}
	return nil
}
