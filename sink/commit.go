package sink

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/sink/failpoint"
	"github.com/rollout-rl/rollout/tokenize"
)

// commitVersion is the format version of the entries. A reader refuses entries with a newer
// version.
const commitVersion = 1

const (
	dataDir     = "data"
	failuresDir = "failures"
	commitsDir  = "_commits"
)

// A Commit is one entry of the commit log. The entry atomically adds its shards to the dataset. The
// shards contain all rows and failures of the entry's samples. Readers ignore shards that no entry
// names.
type Commit struct {
	Version int `json:"version"`
	// Seq is the number of the entry, from 1, and determines the file name. If a number is missing
	// from the log, a merge must have replaced the entry with that number.
	Seq int64 `json:"seq"`
	// Replaces contains the numbers of all entries that a merge replaces, as disjoint ranges in
	// ascending order. It is nil if the entry is not a merge. The field comes early in the JSON, so
	// that the first bytes of an entry show whether the entry is a merge.
	Replaces []SeqRange `json:"replaces,omitempty"`
	// Kind is "claim" or "sealed" for an entry without samples, and empty for a commit or a merge.
	// See the package documentation. It comes as early as Replaces.
	Kind string `json:"kind,omitempty"`
	// RunID is the same in all entries of a log.
	RunID string `json:"run_id"`
	// Nonce is a random text of the process that wrote the entry, so that two processes never write
	// the same bytes.
	Nonce string `json:"nonce,omitempty"`
	// Worker is the name of the process in a claim.
	Worker string `json:"worker,omitempty"`
	// Epoch is the epoch of a claim, which is higher than the epochs of all earlier claims. In any
	// other entry, Epoch is the epoch of the last claim below the entry, and Claim is the number of
	// this claim. Both are 0 if there is no claim below the entry. Readers treat other values as
	// damage.
	Epoch         int64     `json:"epoch,omitempty"`
	Claim         int64     `json:"claim,omitempty"`
	SchemaVersion int       `json:"schema_version"`
	CreatedAt     time.Time `json:"created_at"`
	// Shards contains at most one shard of each kind. It is empty if no sample has a row or a
	// failure.
	Shards []Shard `json:"shards"`
	// Groups contains the groups of Samples in order of first appearance. A group can be in several
	// commits. If the size of a group was raised between two of its samples, one commit can list
	// the group twice.
	Groups []CommittedGroup `json:"groups"`
	// Samples contains every sample of the commit, in the order of the rows in Shards. Samples that
	// have neither rows nor failures are included.
	Samples []CommittedSample `json:"samples"`
	// Merged lists the commits from which a merge took its samples, in the order of their numbers.
	// The first Merged[0].Samples samples came from commit Merged[0], and so on.
	Merged []MergedCommit `json:"merged,omitempty"`
	// SHA256 is the checksum of the entry; see the package documentation.
	SHA256 string `json:"sha256,omitempty"`
}

// A Shard is one committed file.
type Shard struct {
	Kind Kind `json:"kind"`
	// Path is relative to the run's folder and uses slashes.
	Path   string `json:"path"`
	Format Format `json:"format"`
	Bytes  int64  `json:"bytes"`
	// SHA256 is the digest of the file in lower-case hex.
	SHA256 string `json:"sha256"`
	Rows   int64  `json:"rows"`
	Tokens Tokens `json:"tokens"`
	// Reward summarizes the rewards of the rows. It is nil if no row was scored or if the sums of
	// the rewards overflow.
	Reward *RewardSummary `json:"reward,omitempty"`
	// PolicyVersions is the range of the policy versions that sampled the trainable tokens. It is
	// nil if no version is known.
	PolicyVersions *Range `json:"policy_versions,omitempty"`
	// Verification counts the rows for each value of the column verification. It is nil for
	// failures.
	Verification map[string]int64 `json:"verification,omitempty"`
}

// Tokens counts the tokens of a shard.
type Tokens struct {
	// Total is Σ len(input_ids) for data, or Σ len(output_ids) for failures.
	Total int64 `json:"total"`
	// Trainable is Σ loss_mask, or 0 for failures.
	Trainable int64 `json:"trainable"`
	// Prompt is Σ prompt_length, or 0 for failures.
	Prompt int64 `json:"prompt"`
	// Unscored is Σ n_unscored, and Trimmed is Σ n_trimmed. Both are 0 for failures.
	Unscored int64 `json:"unscored,omitempty"`
	Trimmed  int64 `json:"trimmed,omitempty"`
	// Lost splits Total by the columns reason and call. It is zero for data.
	Lost tokenize.LostTokens `json:"lost,omitzero"`
}

// Balance returns the terms of the sampled tokens. The argument is the Tokens of a data shard, of a
// failure shard, or their sum.
func (t Tokens) Balance() tokenize.Balance {
	return tokenize.NewBalance(t.Trainable, t.Unscored, t.Trimmed, t.Lost)
}

// Add adds the counts of o.
func (t *Tokens) Add(o Tokens) {
	t.Total += o.Total
	t.Trainable += o.Trainable
	t.Prompt += o.Prompt
	t.Unscored += o.Unscored
	t.Trimmed += o.Trimmed
	t.Lost.Add(o.Lost)
}

// negative returns the counts of a data shard with the opposite sign.
func (t Tokens) negative() Tokens {
	return Tokens{Total: -t.Total, Trainable: -t.Trainable, Prompt: -t.Prompt, Unscored: -t.Unscored, Trimmed: -t.Trimmed}
}

// A RewardSummary summarizes the rewards of the rows with a finite reward.
type RewardSummary struct {
	Rows int64   `json:"rows"`
	Mean float64 `json:"mean"`
	Std  float64 `json:"std"` // population standard deviation
}

// A Range is a range of numbers. It includes both Min and Max.
type Range struct {
	Min int32 `json:"min"`
	Max int32 `json:"max"`
}

// A CommittedGroup describes a group that has samples in a commit.
type CommittedGroup struct {
	ID string `json:"id"` // group_id
	// Size is group_size: the planned number of samples.
	Size int32 `json:"size"`
}

// A CommittedSample describes one sample of a commit. A sample with failures and no rows has
// failed, and a later success can supersede it. All other samples are done.
type CommittedSample struct {
	Key      string `json:"key"`
	Attempt  int32  `json:"attempt"`
	Rows     int32  `json:"rows"`
	Failures int32  `json:"failures"`
	// Group is the index of the sample's group in Commit.Groups. Index is sample_index.
	Group int32 `json:"group"`
	Index int32 `json:"index"`
	// Class is the class of the first failure if the sample has failed, and empty otherwise.
	Class string `json:"class,omitempty"`
	// If keep is false in the sample's rows, Filtered is their keep_reason. It is empty for all
	// other samples, including failed samples.
	Filtered string `json:"filtered,omitempty"`
	// Unshown counts calls of the sample that a tap recorded but that the server's answer does not
	// show. It is omitted if all counts are 0.
	Unshown tokenize.Unshown `json:"unshown,omitzero"`
}

// Failed reports whether the sample has failures and no rows.
func (s CommittedSample) Failed() bool { return s.Rows == 0 && s.Failures > 0 }

func commitName(seq int64) string { return fmt.Sprintf("%020d.json", seq) }

// entryPath returns the name of an entry in the store.
func entryPath(seq int64) string { return commitsDir + "/" + commitName(seq) }

// commitSeq is the inverse of commitName. ok is false if the name does not belong to an entry.
func commitSeq(name string) (seq int64, ok bool) {
	digits, found := strings.CutSuffix(name, ".json")
	if !found || len(digits) != 20 {
		return 0, false
	}
	seq, err := strconv.ParseInt(digits, 10, 64)
	return seq, err == nil && seq > 0 && name == commitName(seq)
}

// closeInto closes c. If the close fails and *err is nil, closeInto sets *err.
func closeInto(c io.Closer, err *error) {
	if cerr := c.Close(); *err == nil {
		*err = cerr
	}
}

// put durably writes c as the next entry of the log. If another process has already written an
// entry with this number, put returns ErrFenced. A second call with c writes the same bytes. The
// caller must have locked logMu.
func (d *Dataset) put(c *Commit) error {
	if c.Seq == 0 {
		c.Version, c.SchemaVersion, c.RunID, c.CreatedAt = commitVersion, SchemaVersion, d.cfg.RunID, d.cfg.Now().UTC()
		c.Seq, c.Nonce, c.Epoch, c.Claim = d.nextSeq, d.nonce, d.cfg.Epoch, d.claimed
	}
	body, err := encodeCommit(c)
	if err != nil {
		return err // cannot happen, because all fields can be encoded as JSON
	}
	if !d.folder {
		failpoint.Hit(failpoint.CommitWritten)
	}
	if err := d.objects.PutNew(entryPath(c.Seq), body); err != nil {
		failed := shardError("commit", err)
		if errors.Is(err, fs.ErrExist) {
			failed.Err = ErrFenced
		}
		return failed
	}
	if !d.folder {
		failpoint.Hit(failpoint.CommitLinked)
		failpoint.Hit(failpoint.CommitSynced)
	}
	d.nextSeq++
	d.checkpoints.keep(c, body)
	return nil
}

// commit durably writes c as the next entry of the log.
func (d *Dataset) commit(c *Commit) error {
	d.logMu.Lock()
	defer d.logMu.Unlock()
	if err := d.put(c); err != nil {
		return err
	}
	d.card.add(c)
	if d.known != nil {
		d.known.Add(c)
	}
	d.merger.add(c, 0)
	d.merger.wakeUp()

	d.mu.Lock()
	defer d.mu.Unlock()
	d.stats.Commits++
	for _, s := range c.Shards {
		d.stats.Shards++
		d.stats.Bytes += s.Bytes
		if s.Kind == KindFailures {
			d.stats.Failures += s.Rows
			continue
		}
		d.stats.Rows += s.Rows
		d.stats.Tokens.Add(s.Tokens)
	}
	d.stats.Samples += int64(len(c.Samples))
	d.stats.Pending -= int64(len(c.Samples))
	for _, s := range c.Samples {
		if s.Failed() {
			d.stats.Failed++
		}
	}
	return nil
}
