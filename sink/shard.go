package sink

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"path/filepath"
	"time"

	"github.com/rollout-rl/rollout/sink/failpoint"
	"github.com/rollout-rl/rollout/sink/store"
)

// tempPrefix is the prefix of the temporary name that a file has while it is being written.
// Readers ignore these files.
const tempPrefix = ".tmp-"

// An openShard is a shard that is being written under a temporary name. It belongs to one goroutine.
type openShard[T any] struct {
	location
	kind   Kind
	format Format
	temp   string // path
	file   File   // nil once it is closed
	hash   hash.Hash
	bytes  int64
	enc    encoder[T]
	check  func(f io.ReaderAt, size, rows int64) error

	rows int64
	sums shardSums
}

// newOpenShard creates the temporary file in the folder for shards of this kind. The caller must
// set the fields enc and check before it appends the first row. At the end, it must call seal or
// abandon.
func newOpenShard[T any](d *Dataset, kind Kind, format Format) (*openShard[T], error) {
	temp := filepath.Join(d.dir, kind.String(), tempPrefix+rand.Text()+format.ext())
	f, err := d.fs.Create(temp)
	if err != nil {
		return nil, &ShardError{Path: temp, Op: "create", Err: err}
	}
	failpoint.Hit(failpoint.ShardCreated)
	return &openShard[T]{location: d.location, kind: kind, format: format, temp: temp, file: f, hash: sha256.New()}, nil
}

func (s *openShard[T]) Write(p []byte) (int, error) {
	n, err := s.file.Write(p)
	s.hash.Write(p[:n])
	s.bytes += int64(n)
	return n, err
}

// append writes a row. See encoder.encode for the arguments.
func (s *openShard[T]) append(row *T, tokens int, first bool) error {
	if err := s.enc.encode(row, tokens, first); err != nil {
		return &ShardError{Path: s.temp, Op: "write", Err: err}
	}
	s.rows++
	s.sums.tokens.Total += int64(tokens)
	return nil
}

// seal completes, syncs and checks the file. Then it moves the file into the store, under a name
// that begins with base. No commit names the shard yet. If seal fails, it abandons the shard.
func (s *openShard[T]) seal(base string, took *SealTimes) (_ Shard, err error) {
	op, start := "write", time.Now()
	defer func() {
		if err != nil {
			s.abandon()
			if _, stored := errors.AsType[*store.Error](err); stored {
				err = shardError("put", err)
			} else {
				err = &ShardError{Path: s.temp, Op: op, Err: err}
			}
		}
	}()
	if err := s.enc.close(); err != nil {
		return Shard{}, err
	}
	failpoint.Hit(failpoint.ShardWritten)
	start = took.add(&took.Encode, start)
	op = "sync"
	if err := s.file.Sync(); err != nil {
		return Shard{}, err
	}
	failpoint.Hit(failpoint.ShardSynced)
	start = took.add(&took.Sync, start)
	op = "close"
	f := s.file
	s.file = nil
	if err := f.Close(); err != nil {
		return Shard{}, err
	}
	op = "check"
	digest := [sha256.Size]byte(s.hash.Sum(nil))
	sum := hex.EncodeToString(digest[:])
	if err := s.readBack(sum); err != nil {
		return Shard{}, err
	}
	failpoint.Hit(failpoint.ShardVerified)
	start = took.add(&took.Check, start)
	name := fmt.Sprintf("%s/%s-%s%s", s.kind, base, sum[:8], s.format.ext())
	if err := s.objects.PutFile(name, s.temp, digest); err != nil {
		_ = s.objects.Delete(name) // no entry names it
		return Shard{}, err
	}
	took.add(&took.Commit, start)
	return Shard{
		Kind: s.kind, Path: name, Format: s.format,
		Bytes: s.bytes, SHA256: sum, Rows: s.rows, Tokens: s.sums.tokens,
		Reward: s.sums.rewards.summary(), PolicyVersions: s.sums.versions,
		Verification: s.sums.graded,
	}, nil
}

func (s *openShard[T]) readBack(sum string) (err error) {
	f, err := s.fs.Open(s.temp)
	if err != nil {
		return err
	}
	defer closeInto(f, &err)
	size, err := f.Size()
	if err != nil {
		return err
	}
	if err := copyChecked(io.Discard, f, size, Shard{Bytes: s.bytes, SHA256: sum}, readChunk); err != nil {
		return err
	}
	return s.check(f, s.bytes, s.rows)
}

// abandon closes and removes the temporary file. If the removal fails, readers ignore the file. If s is
// nil, abandon does nothing.
func (s *openShard[T]) abandon() {
	if s == nil {
		return
	}
	if s.file != nil {
		_ = s.file.Close() // its content is no longer needed
		s.file = nil
	}
	_ = s.fs.Remove(s.temp)
}

// checkSize compares the size of a file with its size in the log.
func (s Shard) checkSize(size int64) error {
	if size != s.Bytes {
		return fmt.Errorf("%d bytes, want %d", size, s.Bytes)
	}
	return nil
}

// copyChecked copies a file of size bytes. It returns an error if the log has another size or
// digest.
func copyChecked(to io.Writer, f io.ReaderAt, size int64, s Shard, chunk int64) error {
	if err := s.checkSize(size); err != nil {
		return err
	}
	sum, err := copyDigest(to, f, size, chunk)
	if err == nil && sum != s.SHA256 {
		err = fmt.Errorf("the file has sha256 %s, but the commit log lists %s", sum, s.SHA256)
	}
	return err
}

// copyDigest copies the first size bytes of a file and returns their SHA-256 in lower-case hex. It
// reads at most chunk bytes at a time.
func copyDigest(to io.Writer, f io.ReaderAt, size, chunk int64) (string, error) {
	h := sha256.New()
	if _, err := io.CopyBuffer(io.MultiWriter(h, to), io.NewSectionReader(f, 0, size), make([]byte, max(1, min(size, chunk)))); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// shardSums contains sums over the rows of a shard, for the log entry.
type shardSums struct {
	tokens   Tokens
	rewards  rewardSum
	versions *Range
	graded   map[string]int64
}

// add adds a row to the sums, except for its number of tokens.
func (s *shardSums) add(r *StoredRow) {
	if s.graded == nil {
		s.graded = map[string]int64{}
	}
	s.graded[r.Verification]++
	s.tokens.Prompt += int64(r.PromptLength)
	s.tokens.Unscored += int64(r.Unscored)
	s.tokens.Trimmed += int64(r.Trimmed)
	s.rewards.add(r.Reward)
	var trainable int64
	for _, m := range r.LossMask {
		trainable += int64(m)
	}
	s.tokens.Trainable += trainable
	for i, v := range r.Versions[:min(len(r.Versions), len(r.LossMask))] {
		if v >= 0 && r.LossMask[i] == 1 {
			s.versions = s.versions.with(v)
		}
	}
}

// Extend r to include v, and return the result. r can be nil.
func (r *Range) with(v int32) *Range {
	if r == nil {
		return &Range{Min: v, Max: v}
	}
	r.Min, r.Max = min(r.Min, v), max(r.Max, v)
	return r
}

// rewardSum contains the sums over the finite rewards of rows.
type rewardSum struct {
	n         int64
	sum, sqrs float64
}

func (r *rewardSum) add(v *float64) {
	if v == nil || math.IsNaN(*v) || math.IsInf(*v, 0) {
		return
	}
	r.n++
	r.sum += *v
	r.sqrs += *v * *v
}

// summary returns the summary of the rewards, or nil if no row was scored or the sums overflowed.
func (r *rewardSum) summary() *RewardSummary {
	if r.n == 0 {
		return nil
	}
	mean := r.sum / float64(r.n)
	std := math.Sqrt(max(0, r.sqrs/float64(r.n)-mean*mean))
	if math.IsInf(mean, 0) || math.IsNaN(std) || math.IsInf(std, 0) {
		return nil
	}
	return &RewardSummary{Rows: r.n, Mean: mean, Std: std}
}

// near compares summaries with a tolerance, because sums of products are rounded differently on
// different processors.
func (r *RewardSummary) near(o *RewardSummary) bool {
	if r == nil || o == nil {
		return r == o
	}
	within := 1e-6 * (math.Abs(r.Mean) + r.Std)
	return r.Rows == o.Rows && math.Abs(r.Mean-o.Mean) <= within && math.Abs(r.Std-o.Std) <= within
}
