package sink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"strings"

	"github.com/rollout-rl/rollout/tokenize"
)

// DefaultMaxProblems is the default of VerifyOptions.MaxProblems.
const DefaultMaxProblems = 100

// VerifyOptions says how Verify works.
type VerifyOptions struct {
	// VocabSize is the number of ids of the vocabulary; 0 means unknown, and only
	// negative ids are problems.
	VocabSize int
	// RunID is the run that all entries must be of. Empty: that of the first entry.
	RunID string
	// MaxProblems bounds VerifyReport.Problems. Default DefaultMaxProblems.
	MaxProblems int
	// FS is the file system. Default: the operating system's.
	FS FS
}

// A VerifyReport is what Verify found.
type VerifyReport struct {
	// Commits and Shards count what was checked, Bytes the shards' sizes.
	Commits, Shards, Bytes int64
	// Samples counts different keys, Failed those of them that failed for good:
	// without a success in any commit.
	Samples, Failed int64
	// Rows, Failures and Tokens were counted in the shards, not taken from the log.
	Rows, Failures int64
	Tokens         Tokens
	// WAL is what the write-ahead log holds: of a run that is at work, or was
	// interrupted.
	WAL WALReport
	// Problems are *CorruptError, the first MaxProblems of ProblemCount.
	Problems     []error
	ProblemCount int64
	// Orphans are files in the dataset's folders that no commit names, such as
	// those of an interrupted run. They are not data, and no problem.
	Orphans []string
}

// Verify checks every promise that the dataset in the run's folder dir makes: the
// log has no gap; each entry has its checksum and is of the run; each shard is there with the size and digest that its commit
// says; its schema is that of its version; an Arrow stream has its end mark; rows,
// tokens, rewards and policy versions are those that the commit sums up; each row keeps every rule of tokenize.Row and belongs to the
// sample that the commit says, with all segments in order; no sample has more
// sampled tokens than the server counted; no sample is done twice; the write-ahead
// log can be read; no shard without a commit holds samples that are nowhere else. It changes nothing.
//
// It returns an error when it cannot do so: the folder cannot be read, ctx is
// done, or a newer version of the program wrote it (ErrNewer).
func Verify(ctx context.Context, dir string, opts VerifyOptions) (VerifyReport, error) {
	if opts.MaxProblems == 0 {
		opts.MaxProblems = DefaultMaxProblems
	}
	if opts.FS == nil {
		opts.FS = OS()
	}
	v := &verifier{
		fs: opts.FS, dir: dir, opts: opts,
		named: map[string]bool{}, done: map[string]bool{}, known: newAttempts(),
		seq: sequence{runID: opts.RunID},
	}
	if _, err := v.fs.ReadDir(dir); err != nil {
		return v.report, err
	}
	if err := v.log(ctx); err != nil {
		return v.report, err
	}
	for _, done := range v.done {
		v.report.Samples++
		if !done {
			v.report.Failed++
		}
	}
	if err := v.wal(ctx); err != nil {
		return v.report, err
	}
	return v.report, v.orphans()
}

type verifier struct {
	fs     FS
	dir    string
	opts   VerifyOptions
	report VerifyReport
	named  map[string]bool // paths that a commit names
	done   map[string]bool // by sample key: done, or failed so far
	known  attempts        // the same, for what the write-ahead log holds
	seq    sequence        // what the entries have to agree on
}

// problem notes what is wrong with a file, or with one row of it.
func (v *verifier) problem(path string, row int64, err error) {
	v.report.ProblemCount++
	if len(v.report.Problems) >= v.opts.MaxProblems {
		return
	}
	if _, ok := errors.AsType[*CorruptError](err); !ok {
		err = &CorruptError{Path: path, Row: row, Err: err}
	}
	v.report.Problems = append(v.report.Problems, err)
}

// log goes through the entries; a broken one does not end it.
func (v *verifier) log(ctx context.Context) error {
	names, err := v.fs.ReadDir(filepath.Join(v.dir, commitsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	next := int64(1)
	for _, name := range names {
		seq, ok := commitSeq(name)
		if !ok {
			continue
		}
		path := commitsDir + "/" + name
		v.named[path] = true
		if seq != next {
			v.problem(commitsDir+"/"+commitName(next), -1, fmt.Errorf("missing, but there is entry %d", seq))
		}
		next = seq + 1
		c, err := readCommit(v.fs, v.dir, name)
		if errors.Is(err, ErrNewer) {
			return err
		}
		if err != nil {
			v.problem(path, -1, err)
			continue
		}
		if err := v.seq.add(&c); err != nil {
			v.problem(path, -1, err)
			continue // its samples are not this run's
		}
		if err := v.commit(ctx, path, &c); err != nil {
			return err
		}
	}
	return nil
}

// commit checks one entry and its shards. Its error is that of ctx.
func (v *verifier) commit(ctx context.Context, path string, c *Commit) error {
	v.report.Commits++
	for _, s := range c.Samples {
		v.known.add(s.Key, s.Attempt, s.Failed())
		done, seen := v.done[s.Key]
		switch {
		case done:
			v.problem(path, -1, fmt.Errorf("sample %s is done already", s.Key))
		case !seen || !s.Failed():
			v.done[s.Key] = !s.Failed()
		}
	}
	for _, s := range c.Shards {
		if v.named[s.Path] {
			v.problem(path, -1, fmt.Errorf("shard %s is named twice", s.Path))
			continue
		}
		v.named[s.Path] = true
		if err := v.shard(ctx, c, s); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			v.problem(s.Path, -1, err)
		}
	}
	return nil
}

func (v *verifier) shard(ctx context.Context, c *Commit, s Shard) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	f, err := v.fs.Open(filepath.Join(v.dir, filepath.FromSlash(s.Path)))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was read only
	v.report.Shards++
	v.report.Bytes += s.Bytes
	// The digest first: what it vouches for, the readers can take.
	if err := checkBytes(f, s.Bytes, s.SHA256); err != nil {
		return err
	}
	check := &shardCheck{v: v, shard: s, kind: s.Kind, samples: c.Samples}
	if s.Kind == KindFailures {
		err = readParquet(f, s.Bytes, s.Rows, func(row *StoredFailure) bool {
			check.failure(row)
			return ctx.Err() == nil
		})
	} else {
		scan := scanParquet
		if s.Format == Arrow {
			scan = readArrow
		}
		err = scan(f, s.Bytes, s.Rows, func(row *StoredRow) bool {
			check.row(row)
			return ctx.Err() == nil
		})
	}
	if s.Kind == KindData {
		v.report.Tokens.add(check.sums.tokens)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	return check.end()
}

// orphans lists the files that no commit names.
func (v *verifier) orphans() error {
	for _, sub := range []string{dataDir, failuresDir, commitsDir, walDir} {
		names, err := v.fs.ReadDir(filepath.Join(v.dir, sub))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			if path := sub + "/" + name; !v.named[path] {
				v.report.Orphans = append(v.report.Orphans, path)
			}
		}
	}
	log, err := readLog(v.fs, v.dir, v.opts.RunID, nil)
	if err != nil {
		return nil //nolint:nilerr // it was told of; what a broken log names is not known
	}
	lost, err := log.lostShards()
	for _, path := range lost {
		v.problem(path, -1, lostCommit(path))
	}
	return err
}

// A shardCheck goes through the rows of one shard along the samples of its commit.
type shardCheck struct {
	v       *verifier
	shard   Shard
	kind    Kind
	samples []CommittedSample // the first of them is the current one
	seen    int32             // rows of the current sample so far
	rollout string            // rollout_id of the current sample
	sampled int64             // tokens sampled in the current sample
	n       int64
	sums    shardSums
}

// next says which sample the next row belongs to, and which row of how many it is.
func (s *shardCheck) next() (of CommittedSample, i, n int32) {
	for len(s.samples) > 0 {
		n = s.samples[0].Rows
		if s.kind == KindFailures {
			n = s.samples[0].Failures
		}
		if s.seen < n {
			s.seen++
			return s.samples[0], s.seen - 1, n
		}
		s.samples = s.samples[1:]
		s.seen = 0
	}
	return CommittedSample{}, 0, 0
}

func (s *shardCheck) row(r *StoredRow) {
	of, i, n := s.next()
	if i == 0 {
		s.rollout, s.sampled = r.RolloutID, 0
	}
	if err := s.checkRow(r, of, int(i), int(n)); err != nil {
		s.v.problem(s.shard.Path, s.n, err)
	}
	s.n++
	s.v.report.Rows++
	s.sums.tokens.Total += int64(len(r.InputIDs))
	s.sums.add(r)
}

// owns returns an error if a row is of another sample or attempt.
func (s CommittedSample) owns(key string, attempt int32) error {
	if key != s.Key {
		return fmt.Errorf("sample_key %q, the commit says %q", key, s.Key)
	}
	if attempt != s.Attempt {
		return fmt.Errorf("attempt %d, the commit says %d", attempt, s.Attempt)
	}
	return nil
}

func (s *shardCheck) checkRow(r *StoredRow, of CommittedSample, i, n int) error {
	if err := of.owns(r.SampleKey, r.Attempt); err != nil {
		return err
	}
	if r.RolloutID != s.rollout {
		return fmt.Errorf("rollout_id %q, the rows before of the sample have %q", r.RolloutID, s.rollout)
	}
	if r.SampleIndex < 0 || r.SampleIndex >= r.GroupSize {
		return fmt.Errorf("sample_index %d in a group of %d", r.SampleIndex, r.GroupSize)
	}
	if r.Attempt < 1 {
		return fmt.Errorf("attempt %d: attempts count from 1", r.Attempt)
	}
	if err := oneOf("status", r.Status, dataStatuses); err != nil {
		return err
	}
	row, err := r.tokens()
	if err != nil {
		return err
	}
	if err := checkRow(&row, i, n, s.v.opts.VocabSize); err != nil {
		return err
	}
	s.sampled += sampledTokens(&row)
	if err := checkSampled(s.sampled, r.CompletionTokens); err != nil {
		return err
	}
	return errors.Join(checkJSON(r.RewardDetails, r.Messages, r.Metadata))
}

// tokens is the inverse of set, as far as a tokenize.Row has rules of its own. The
// slices are shared.
func (r *StoredRow) tokens() (tokenize.Row, error) {
	row := tokenize.Row{
		InputIDs: r.InputIDs, LossMask: r.LossMask, Logprobs: r.Logprobs, Versions: r.Versions,
		TurnOffsets: r.TurnOffsets, TurnRoles: r.TurnRoles, PromptLength: r.PromptLength,
		SegmentIndex: r.SegmentIndex, SegmentCount: r.SegmentCount,
		Unscored: r.Unscored, Trimmed: r.Trimmed, Truncated: r.Truncated,
		FinishReasons: r.FinishReasons, StepIDs: r.StepIDs, LastCall: int32(len(r.FinishReasons)),
	}
	err := errors.Join(
		row.Grade.UnmarshalText([]byte(r.Verification)),
		row.Source.UnmarshalText([]byte(r.PromptSource)),
		row.Flags.UnmarshalText([]byte(strings.Join(r.Flags, ","))),
		r.realigned(&row),
	)
	return row, err
}

// realigned reads the places that the divergence column says were realigned, and
// that its fork, if it is one, can be read.
func (r *StoredRow) realigned(row *tokenize.Row) error {
	if r.Divergence == nil {
		return nil
	}
	if err := isJSON("divergence", r.Divergence); err != nil {
		return err
	}
	var d struct {
		tokenize.Divergence
		Realigned []tokenize.Divergence
	}
	if err := json.Unmarshal([]byte(*r.Divergence), &d); err != nil {
		return fmt.Errorf("divergence: %w", err)
	}
	row.Realigned = d.Realigned
	return nil
}

func (s *shardCheck) failure(f *StoredFailure) {
	of, _, _ := s.next()
	if err := of.owns(f.SampleKey, f.Attempt); err != nil {
		s.v.problem(s.shard.Path, s.n, err)
	} else if f.Call < -1 {
		s.v.problem(s.shard.Path, s.n, fmt.Errorf("call %d", f.Call))
	}
	s.n++
	s.v.report.Failures++
	s.sums.tokens.Total += int64(len(f.OutputIDs))
}

// end compares the sums with those of the commit.
func (s *shardCheck) end() error {
	got, want := &s.sums, &s.shard
	if got.tokens != want.Tokens {
		return fmt.Errorf("tokens %+v, the commit says %+v", got.tokens, want.Tokens)
	}
	if !got.rewards.summary().near(want.Reward) {
		return fmt.Errorf("rewards %+v, the commit says %+v", got.rewards.summary(), want.Reward)
	}
	if (got.versions == nil) != (want.PolicyVersions == nil) || got.versions != nil && *got.versions != *want.PolicyVersions {
		return fmt.Errorf("policy versions %+v, the commit says %+v", got.versions, want.PolicyVersions)
	}
	return nil
}

// near compares summaries that may be of different machines: these round sums of
// products differently.
func (r *RewardSummary) near(o *RewardSummary) bool {
	if r == nil || o == nil {
		return r == o
	}
	within := 1e-6 * (math.Abs(r.Mean) + r.Std)
	return r.Rows == o.Rows && math.Abs(r.Mean-o.Mean) <= within && math.Abs(r.Std-o.Std) <= within
}
