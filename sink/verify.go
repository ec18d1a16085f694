package sink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/rollout-rl/rollout/sink/store"
)

// DefaultMaxProblems is the default of VerifyOptions.MaxProblems.
const DefaultMaxProblems = 100

// VerifyOptions configures Verify.
type VerifyOptions struct {
	// VocabSize is the size of the vocabulary, or 0 if the size is unknown. If it is unknown,
	// only negative ids are problems.
	VocabSize int
	// RunID is the run that all entries must belong to. The default is the run of the first
	// entry.
	RunID string
	// MaxProblems limits the length of VerifyReport.Problems. The default is DefaultMaxProblems.
	MaxProblems int
	// Store contains the committed files. The default is the run's folder.
	Store store.Store
	// FS is the file system. The default is the operating system's file system.
	FS FS
}

// A VerifyReport is the result of Verify.
type VerifyReport struct {
	// Commits and Shards count the commits and shards that were checked. Bytes is the total size
	// of these shards. A merge counts as one commit, and the entries that it replaced do not
	// count.
	Commits, Shards, Bytes int64
	// Samples counts the distinct sample keys. Failed counts the keys for which no commit
	// contains a success.
	Samples, Failed int64
	// Rows, Failures and Tokens are counted from the shards. They are not copied from the log.
	Rows, Failures int64
	Tokens         Tokens
	// WAL describes the write-ahead log of a running or interrupted run.
	WAL WALReport
	// Problems contains the first MaxProblems errors. Each error is a *CorruptError. ProblemCount
	// counts all errors.
	Problems     []error
	ProblemCount int64
	// Orphans lists the files in the dataset's folders that no commit names, such as leftovers
	// from an interrupted run. Orphans are not part of the dataset, and Verify does not report
	// them as problems. Orphans has no shards if an entry is damaged or missing,
	// because the entry can name them.
	Orphans []string
}

// Verify checks every guarantee for the dataset in the run's folder dir. It does not change any
// file.
//
//   - No entry is missing from the log, except entries that a merge has replaced. Each entry has
//     the right checksum and belongs to the run.
//   - A merge contains all samples of the commits that it replaces, and no commit is in two
//     entries.
//   - Each shard exists, and its size and digest match the commit. It has the right schema, and
//     an Arrow stream has its end mark.
//   - The numbers of rows and tokens, the rewards and the policy versions match the commit.
//   - Each row follows every rule of tokenize.Row, and its reward is finite or null. It belongs
//     to the sample and group in the commit, and all segments of a sample are in order.
//   - No sample has more sampled tokens than the server counted, and no sample is done twice.
//   - The write-ahead log is readable.
//   - If no commit names a shard, all samples in the shard are also stored elsewhere.
//
// Verify returns an error if it cannot check the dataset, because the folder cannot be read, ctx is
// done, the store fails, or a newer version of the program wrote the dataset (ErrNewer).
func Verify(ctx context.Context, dir string, opts VerifyOptions) (VerifyReport, error) {
	opts.MaxProblems = cmp.Or(opts.MaxProblems, DefaultMaxProblems)
	v := &verifier{
		location: locate(opts.Store, opts.FS, dir), opts: opts,
		named: map[string]bool{}, known: newAttempts(), sums: map[int64]string{},
	}
	v.entries = Log{location: v.location, seq: sequence{runID: opts.RunID}, each: func(*Commit) {}}
	if opts.Store == nil || dir != "" {
		if _, err := v.fs.ReadDir(dir); err != nil {
			return v.report, err
		}
	}
	if err := v.log(ctx); err != nil {
		return v.report, err
	}
	v.report.Failed = v.known.onlyFailed()
	v.report.Samples = int64(len(v.known.done)) + v.report.Failed
	if err := v.wal(ctx); err != nil {
		return v.report, err
	}
	return v.report, v.orphans()
}

type verifier struct {
	location
	opts   VerifyOptions
	report VerifyReport
	named  map[string]bool // paths in commits
	known  attempts        // the samples in the checked entries, and later also in the write-ahead log

	entries Log              // checked entries, without their samples
	sums    map[int64]string // checksums of the checked entries in a bucket
	broken  bool             // an entry is damaged or missing, so the shards that it names are unknown
}

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

// log checks the entries in logical order. After a broken entry, it continues with the next
// entry.
func (v *verifier) log(ctx context.Context) error {
	if !v.folder {
		return v.bucket(ctx)
	}
	told := map[int64]bool{}
	for try := 1; ; try++ {
		again, err := v.listing(ctx, try, told)
		if !again || try == maxListings || err != nil {
			return err
		}
	}
}

// listing lists the log's folder once and checks the new entries. It returns true if the log
// changed in the meantime and the folder must be listed again. The map told contains the numbers
// of missing entries that have already been reported.
func (v *verifier) listing(ctx context.Context, try int, told map[int64]bool) (again bool, err error) {
	fresh, err := v.entries.list()
	if err != nil {
		return false, err
	}
	order, gaps, err := v.entries.order(fresh)
	if errors.Is(err, fs.ErrNotExist) || len(gaps) > 0 && try < gapListings {
		return true, nil // if a merge has another error, entry reports it
	}
	for _, g := range gaps {
		if !told[g.seq] {
			told[g.seq], v.broken = true, true
			v.problem("", -1, g.missing())
		}
	}
	for _, seq := range order {
		again, err := v.entry(ctx, seq)
		if again || err != nil {
			return again, err
		}
	}
	return false, nil
}

// entry checks one entry and its shards. It returns true if a merge has replaced the entry in the
// meantime.
func (v *verifier) entry(ctx context.Context, seq int64) (again bool, err error) {
	c, _, err := v.readCommit(seq)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if errors.Is(err, ErrNewer) {
		return false, err
	}
	v.named[entryPath(seq)] = true
	files, again := v.openShards(&c)
	defer closeShards(files)
	checked := v.entries.given
	if again || !v.add(seq, &c, err) || c.Kind != "" {
		return again, nil
	}
	return false, v.commit(ctx, &c, files, checked)
}

// add adds the next entry and returns true. If the entry is not valid, or if err is the error from
// reading it, add reports a problem and returns false. The shards of such an entry are not checked.
func (v *verifier) add(seq int64, c *Commit, err error) bool {
	if err == nil {
		kept := *c // Log.add drops the samples
		err = v.entries.add(&kept)
	}
	if err != nil {
		v.problem(entryPath(seq), -1, err)
		v.broken = true
		v.entries.known = v.entries.known.add(SeqRange{seq, seq})
	}
	return err == nil
}

// openShards opens all shards of an entry. Until they are closed, they stay readable in a folder,
// even if a merge replaces them. again is true if a shard is missing and a merge can have replaced
// it.
func (v *verifier) openShards(c *Commit) (files []openFile, again bool) {
	one := Log{location: v.location}
	if v.folder { // in a bucket, the caller reads the log again
		one.Commits = []Commit{*c}
	}
	for _, s := range c.Shards {
		o, err := one.openShard(s)
		files = append(files, openFile{o, err})
		again = again || errors.Is(err, ErrReplaced) || !v.folder && errors.Is(err, fs.ErrNotExist)
	}
	return files, again
}

func closeShards(files []openFile) {
	for _, f := range files {
		if f.err == nil {
			_ = f.file.Close() // read-only
		}
	}
}

// An openFile is an open shard, or the error from opening the shard.
type openFile struct {
	file store.Object
	err  error
}

// commit checks one entry and its shards. It counts only samples from commits with a number above
// checked, because earlier samples were already counted in other shards. It returns an error only
// if ctx is done or a bucket cannot be read.
func (v *verifier) commit(ctx context.Context, c *Commit, files []openFile, checked int64) error {
	path := entryPath(c.Seq)
	v.report.Commits++
	before := 0
	for _, m := range c.Merged {
		if m.Seq <= checked {
			before += m.Samples
		}
	}
	seen := make(map[CommittedGroup]bool, len(c.Groups))
	for _, g := range c.Groups {
		if seen[g] {
			v.problem(path, -1, fmt.Errorf("group %q of size %d is listed twice", g.ID, g.Size))
		}
		seen[g] = true
	}
	for _, s := range c.Samples[before:] {
		if _, done := v.known.done[IDOf(s.Key)]; done {
			v.problem(path, -1, fmt.Errorf("sample %s was already committed", s.Key))
		}
		v.known.add(s.Key, s.Attempt, s.Failed())
	}
	for i, s := range c.Shards {
		if v.named[s.Path] {
			v.problem(path, -1, fmt.Errorf("shard %s is listed twice", s.Path))
			continue
		}
		v.named[s.Path] = true
		err := files[i].err
		if err == nil {
			err = v.shard(ctx, c, s, files[i].file, before)
		}
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err = v.readError(s.Path, err); unread(err) {
				return err
			}
			v.problem(s.Path, -1, err)
		}
	}
	return nil
}

func (v *verifier) shard(ctx context.Context, c *Commit, s Shard, o store.Object, before int) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	v.report.Shards++
	v.report.Bytes += s.Bytes
	// Check the digest first, because the Parquet and Arrow libraries do not protect against
	// damaged bytes.
	return v.checked(o, s, func(f io.ReaderAt) (err error) {
		check := &shardCheck{v: v, shard: s, kind: s.Kind, groups: c.Groups, samples: c.Samples, left: len(c.Samples) - before}
		if c.IsMerge() && s.Kind == KindData {
			check.setMerged(c.Merged)
		}
		if check.experts, err = expertsIn(f, s); err != nil {
			return err
		}
		if s.Kind == KindFailures {
			err = wholeFailures().read(f, rowRange{shard: s}, func(row *StoredFailure) bool {
				check.failure(row)
				return ctx.Err() == nil
			})
		} else {
			err = readRows(f, rowRange{shard: s}, func(row *StoredRow) bool {
				check.row(row)
				return ctx.Err() == nil
			})
		}
		if s.Kind == KindData {
			v.report.Tokens.Add(check.sums.tokens)
			v.report.Tokens.Add(check.before.negative())
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		return errors.Join(check.end(), check.endMerged(c.Merged))
	})
}
