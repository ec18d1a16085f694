package sink

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rollout-rl/rollout/sink/failpoint"
	"github.com/rollout-rl/rollout/tokenize"
)

// CommitVersion is the version of the commit entries that are written, but for merges.
// Version 2 added the checksum, version 3 the groups; entries of versions 1 and 2 are still
// read. MergeVersion is the version of merges, and of nothing else: a reader that does not
// know merges refuses them. A reader refuses newer versions.
const (
	CommitVersion = 3
	MergeVersion  = 4
)

// The folders of a dataset within the run's folder.
const (
	dataDir     = "data"
	failuresDir = "failures"
	commitsDir  = "_commits"
)

// A Commit is one entry of the commit log. It makes its shards, and all rows and
// failures of its samples, exist at once; a file that no commit names is not
// there for any reader.
type Commit struct {
	Version int `json:"version"`
	// Seq counts from 1; it is the file's name. A number is missing only where a merge
	// that is there replaces it.
	Seq int64 `json:"seq"`
	// RunID is the same in all entries of a log.
	RunID string `json:"run_id"`
	// Writer is the number of the writer, from 0.
	Writer int `json:"writer"`
	// Epoch counts how often the writer's place was taken by another process, for logs
	// with several writing processes. This program writes 0. In the order of the log the
	// epoch of one writer never falls: an entry of a lower one comes from a process that
	// had lost its place, and is damage.
	Epoch         int64     `json:"epoch,omitempty"`
	SchemaVersion int       `json:"schema_version"`
	CreatedAt     time.Time `json:"created_at"`
	// Shards holds at most one shard of each kind. It is empty when no sample of
	// the commit has a row or a failure.
	Shards []Shard `json:"shards"`
	// Groups holds the groups that Samples belong to, in the order in which they begin
	// there. Nil before version 3. A group may be in several commits, and twice in one
	// where the size of the group was raised between two of its samples.
	Groups []CommittedGroup `json:"groups"`
	// Samples holds every sample whose rows and failures are in Shards, in the
	// order of the rows.
	Samples []CommittedSample `json:"samples"`
	// Replaces are the numbers of all earlier entries that no longer count because this one
	// holds their samples: rising and disjoint. Only a merge has it.
	Replaces []SeqRange `json:"replaces,omitempty"`
	// Merged are the commits that the samples of a merge came from, by rising number: the
	// first Merged[0].Samples are those of the first, and so on.
	Merged []MergedCommit `json:"merged,omitempty"`
	// SHA256 is the checksum of the entry; see the package documentation. Empty in
	// version 1.
	SHA256 string `json:"sha256,omitempty"`
}

// A Shard is one committed file.
type Shard struct {
	Kind Kind `json:"kind"`
	// Path is relative to the run's folder and has slashes.
	Path   string `json:"path"`
	Format Format `json:"format"`
	Bytes  int64  `json:"bytes"`
	// SHA256 is the digest of the file in lower-case hex.
	SHA256 string `json:"sha256"`
	Rows   int64  `json:"rows"`
	Tokens Tokens `json:"tokens"`
	// Reward sums up the rewards of the rows; nil where none was scored.
	Reward *RewardSummary `json:"reward,omitempty"`
	// PolicyVersions spans the policy versions of sampled tokens; nil where none
	// is known.
	PolicyVersions *Range `json:"policy_versions,omitempty"`
	// Verification counts the rows by their verification. Nil in failures, and in entries
	// that were written before it was counted.
	Verification map[string]int64 `json:"verification,omitempty"`
}

// Tokens counts the tokens of a shard.
type Tokens struct {
	// Total is Σ len(input_ids), or Σ len(output_ids) of failures.
	Total int64 `json:"total"`
	// Trainable is Σ loss_mask; 0 in failures.
	Trainable int64 `json:"trainable"`
	// Prompt is Σ prompt_length; 0 in failures.
	Prompt int64 `json:"prompt"`
}

func (t *Tokens) add(o Tokens) {
	t.Total += o.Total
	t.Trainable += o.Trainable
	t.Prompt += o.Prompt
}

func (t Tokens) negative() Tokens { return Tokens{-t.Total, -t.Trainable, -t.Prompt} }

// A RewardSummary is over the rows with a finite reward.
type RewardSummary struct {
	Rows int64   `json:"rows"`
	Mean float64 `json:"mean"`
	Std  float64 `json:"std"` // of the population
}

// A Range holds both its ends.
type Range struct {
	Min int32 `json:"min"`
	Max int32 `json:"max"`
}

// A CommittedGroup is a group of which a commit holds samples.
type CommittedGroup struct {
	ID string `json:"id"` // group_id of the rows and failures
	// Size is group_size of them: the number of samples that were planned for the group.
	Size int32 `json:"size"`
}

// A CommittedSample says what a commit holds of one sample. A sample with rows,
// or with neither rows nor failures, is done; one with failures only has failed,
// and a later commit may hold a success that supersedes it.
type CommittedSample struct {
	Key      string `json:"key"`
	Attempt  int32  `json:"attempt"`
	Rows     int32  `json:"rows"`
	Failures int32  `json:"failures"`
	// Group is the place in Commit.Groups of the group that the sample belongs to, Index
	// the sample's index in it (sample_index). Both are -1 before version 3.
	Group int32 `json:"group"`
	Index int32 `json:"index"`
	// Class is why a sample failed as a whole: that of its first failure. Empty for
	// others.
	Class string `json:"class,omitempty"`
	// Filtered is why the sample is not to be trained on: keep_reason of its rows, where
	// keep is false in them. Empty for others, and for samples that failed as a whole.
	Filtered string `json:"filtered,omitempty"`
	// Unshown counts the calls of the sample that a tap saw and that no answer shows. It is
	// missing in the entry where all counts are 0.
	Unshown tokenize.Unshown `json:"unshown,omitzero"`
}

// Failed reports whether the sample failed as a whole.
func (s CommittedSample) Failed() bool { return s.Rows == 0 && s.Failures > 0 }

// commitName is the file name of an entry.
func commitName(seq int64) string { return fmt.Sprintf("%020d.json", seq) }

// commitSeq is the inverse of commitName; ok is false for names of other files.
func commitSeq(name string) (seq int64, ok bool) {
	digits, found := strings.CutSuffix(name, ".json")
	if !found || len(digits) != 20 {
		return 0, false
	}
	seq, err := strconv.ParseInt(digits, 10, 64)
	return seq, err == nil && seq > 0 && name == commitName(seq)
}

// putCommit makes c the first free entry from c.Seq on, durably, and sets c.Seq.
// Other processes may write to the same log.
//
// The entry is written under a temporary name first and linked to its own, so a
// torn entry cannot be seen and an existing one is never replaced.
func putCommit(fsys FS, dir string, c *Commit) error {
	for {
		body, err := encodeCommit(c)
		if err != nil {
			return err // a struct of plain fields: cannot happen
		}
		name := filepath.Join(dir, commitsDir, commitName(c.Seq))
		err = putIfAbsent(fsys, name, body, failpoint.Hit)
		if errors.Is(err, fs.ErrExist) {
			// Over a network the answer to a link that was made can be lost, and the name
			// exists when it is asked for again. Only we write such an entry: it names our
			// shards.
			var ours bool
			if ours, err = holds(fsys, name, body); err == nil && !ours {
				c.Seq++
				continue
			}
			if err == nil {
				err = fsys.SyncDir(filepath.Dir(name))
			}
		}
		if err != nil {
			return &ShardError{Path: name, Op: "commit", Err: err}
		}
		return nil
	}
}

// holds reports whether the file has exactly that content.
func holds(fsys FS, name string, body []byte) (bool, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return false, err
	}
	got, err := readAll(f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return bytes.Equal(got, body), err
}

func readAll(f File) ([]byte, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(f, 0, size))
}

// checkLinks makes sure that commits can be made in dir, before anything is
// collected for them. There is no other way: a file made under its final name can
// be seen half-written after a crash, and a rename replaces what is there.
func checkLinks(fsys FS, dir string) error {
	name := filepath.Join(dir, tempPrefix+rand.Text())
	err := putIfAbsent(fsys, name, nil, func(failpoint.Name) {})
	if rerr := fsys.Remove(name); err == nil {
		err = rerr
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EPERM), errors.Is(err, errors.ErrUnsupported): // the first is Linux's word for it
		// Not wrapped: permission is what it is not about.
		err = fmt.Errorf("%w (%s): choose a folder on a file system that has them", ErrNoLinks, err.Error())
	}
	return &ShardError{Path: dir, Op: "link", Err: err}
}

// putIfAbsent makes a file of that name and content, durably, or fails with
// fs.ErrExist. hit is told how far it is.
func putIfAbsent(fsys FS, name string, body []byte, hit func(failpoint.Name)) error {
	dir := filepath.Dir(name)
	temp := filepath.Join(dir, tempPrefix+rand.Text()+".json")
	f, err := fsys.Create(temp)
	if err != nil {
		return err
	}
	_, err = f.Write(body)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		hit(failpoint.CommitWritten)
		err = fsys.Link(temp, name)
	}
	if err == nil {
		hit(failpoint.CommitLinked)
	}
	_ = fsys.Remove(temp) // a leftover is an orphan that no reader looks at
	if err != nil {
		return err
	}
	if err := fsys.SyncDir(dir); err != nil {
		return err
	}
	hit(failpoint.CommitSynced)
	return nil
}
