package sink

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/rollout-rl/rollout/sink/store"
	"github.com/rollout-rl/rollout/tokenize"
)

const (
	// MaxStoredShard leaves room below store.MaxPut for pages that are still open, and for the
	// footer.
	MaxStoredShard = store.MaxPut - 64<<20

	// DefaultMaxShardBytes is large enough to make the cost of opening a file negligible. It is
	// small enough that many workers can share a few hundred shards evenly.
	DefaultMaxShardBytes = 256 << 20
	// DefaultMaxShardAge limits how long a trainer that follows the commit log waits for a sample.
	// It also limits how much of the write-ahead log recovery has to read.
	DefaultMaxShardAge = 5 * time.Minute
	// DefaultMaxBytesInFlight is enough for a hundred samples of 8,000 tokens each, so that Append
	// does not block while the writer compresses pages.
	DefaultMaxBytesInFlight = 8 << 20
	// DefaultRowGroupTokens tokens take about 20 MB of memory with Parquet. Speed and file size are
	// the same for all values from 250,000 to 10 million.
	DefaultRowGroupTokens = 1_000_000

	// DefaultMergeAt is the merge size at which a row is rewritten only once each time its shard
	// grows eightfold.
	DefaultMergeAt = 8

	// minRowGroupTokens keeps the footer small, because each row group adds 5 KB to it.
	minRowGroupTokens = 1000
	// maxRowGroupTokens keeps the number of values in each list column of an Arrow batch far below
	// 2^31, even if the last row of the batch is long.
	maxRowGroupTokens = 100_000_000
)

// A Config configures a Dataset. The zero value of a field selects the default.
type Config struct {
	// Format is the format of the data shards. Default Parquet.
	Format Format

	// MaxShardBytes is the file size at which a data shard is closed. The file can exceed this size
	// by at most the row group that is still in memory. Default DefaultMaxShardBytes.
	//
	// With Store, the default and the maximum are MaxStoredShard, and Append refuses larger samples.
	// A shard is closed before a sample that does not fit, even within a group and with CommitGroups.
	MaxShardBytes int64

	// MaxShardAge is the age at which a shard is closed, counted from the arrival of its first
	// sample. The age includes the time for which the sample was held until its group was whole.
	// Default DefaultMaxShardAge.
	MaxShardAge time.Duration

	// MaxBytesInFlight limits the memory for samples that Append has accepted but that have not yet
	// been encoded. At the limit, Append blocks. If a sample is larger than the limit, Append waits
	// until no other sample is in flight. Default DefaultMaxBytesInFlight.
	MaxBytesInFlight int64

	// RowGroupTokens is the number of tokens after which a Parquet row group is closed. The row
	// group is closed before the first row of the next group of samples. A reader can decode only
	// complete row groups. Because of this rule, it usually decodes one row group per group of
	// samples instead of two. If the row group reaches twice this limit, it is closed within the
	// group of samples. A row group with a lot of text is closed earlier, when its size in the file
	// reaches 16 MiB at the end of a group or 32 MiB within a group. An Arrow batch needs no
	// decoding, so it is closed at RowGroupTokens tokens or 128 MiB of text, even within a group.
	// Default DefaultRowGroupTokens.
	RowGroupTokens int

	// CommitGroups commits each group as soon as it is whole, in a single commit. If other samples
	// are waiting for the writer, the commit is delayed by up to 20 ms, so that several groups can
	// share a commit. Samples of an incomplete group are held without a time limit. At Close or
	// after a kill, these samples stay in the write-ahead log, and the next process with
	// CommitGroups completes the group. With CommitGroups, MaxShardAge has no effect, and Run
	// merges the small commits in the background.
	CommitGroups bool

	// Judge is called with each whole group before the group's rows are written. It can decide
	// which samples are trained on (SampleFacts.Keep). Judge is called once per group, either by
	// Create for a recovered group or by a goroutine of Run. It must not block, and it must not
	// keep references to the facts.
	//
	// Groups without an id, groups of more than 16,384 samples and partly committed groups are not
	// judged. A group can be partly committed if an earlier process ran without CommitGroups or
	// called CommitParts. If the committed part was filtered out, the rest of the group is filtered
	// out for the same reason. The same is true for a late sample whose group was filtered out.
	Judge func(*GroupFacts)

	// MergeAt is the smallest number of neighboring small commits that a merge combines. With a
	// higher number, rows are rewritten less often and there are more files. Default
	// DefaultMergeAt; other values are for tests and measurements.
	MergeAt int

	// VocabSize is the number of ids in the model's vocabulary. Append refuses a row with an id
	// outside the vocabulary. If VocabSize is 0, the size is unknown, and Append refuses only
	// negative ids.
	VocabSize int

	// Experts is the shape of the routed experts in the rows, or zero if the rows have none. Append
	// refuses a row with another shape. The metadata of each shard has it as the pair
	// rollout.routed_experts.
	Experts tokenize.ExpertShape

	// Meta contains key-value pairs for the metadata of each shard, such as rollout.config_sha256.
	// Parquet stores these pairs in the footer, and Arrow stores them in the schema. The package
	// itself adds rollout.schema_version, rollout.run_id, rollout.kind and rollout.routed_experts.
	Meta map[string]string

	// RunID is the run's name in file names and commits. It can contain letters, digits, '.', '-'
	// and '_'. Default "run".
	RunID string

	// Now returns the current time, which commits record as created_at. Default time.Now.
	Now func() time.Time

	// Logger receives one message per commit and per merge, and warnings. Default: none.
	Logger *slog.Logger

	Events Events

	// Store contains the shards and the entries, for example in a bucket. Replaced files stay in
	// place. The write-ahead log and files that are being written stay in the run's folder. The
	// store has neither a dataset card nor an ack.json. If the store is away, the writer waits
	// (Dataset.Committing), and Append blocks at MaxBytesInFlight. Only the end of the store's context
	// ends this wait, so cancel it together with the context of Run. Default: the run's folder.
	Store store.Store

	// Epoch is the epoch that Create claims for this process in Store. It must be higher than the
	// epoch of the last claim, which ReadEnd returns. If another process has claimed the same or
	// a higher epoch, the error wraps ErrFenced. From then on, the processes of lower epochs can no
	// longer commit. It must be at least 1 with Store, and 0 without.
	Epoch int64

	// Worker is the name of this process in its claim.
	Worker string

	// FS is the file system of the run's folder. Default: the operating system's file system.
	FS FS
}

// Events contains callbacks. Each callback can be nil. The goroutines of Run call the callbacks. A
// callback must not block or call the Dataset's Close.
type Events struct {
	// Committed is called once per commit, after the commit's entry is durable and before the done
	// functions of its samples are called. It is not called for merges or for commits that Create
	// makes.
	Committed func(Commit)
	// Sealed is called just before Committed, with the durations of the commit's steps.
	Sealed func(SealTimes)
	// Synced is called after each sync that made samples in the write-ahead log durable. It
	// receives the duration of the sync and the number of samples and bytes.
	Synced func(took time.Duration, samples int, bytes int64)
}

// SealTimes contains the durations of the steps of one commit, summed over its shards.
type SealTimes struct {
	// Encode is the time spent on finishing the encoding. Sync is the time spent on syncing files.
	// Check is the time spent on checking the written files. Commit is the time spent on moving the
	// files into the store and on writing the log entry.
	Encode, Sync, Check, Commit time.Duration
}

func (*SealTimes) add(sum *time.Duration, start time.Time) time.Time {
	now := time.Now()
	*sum += now.Sub(start)
	return now
}

func (c Config) withDefaults() Config {
	if c.Store != nil {
		c.MaxShardBytes = cmp.Or(c.MaxShardBytes, MaxStoredShard)
	}
	c.MaxShardBytes = cmp.Or(c.MaxShardBytes, DefaultMaxShardBytes)
	c.MaxShardAge = cmp.Or(c.MaxShardAge, DefaultMaxShardAge)
	c.MaxBytesInFlight = cmp.Or(c.MaxBytesInFlight, DefaultMaxBytesInFlight)
	c.RowGroupTokens = cmp.Or(c.RowGroupTokens, DefaultRowGroupTokens)
	c.MergeAt = cmp.Or(c.MergeAt, DefaultMergeAt)
	c.RunID = cmp.Or(c.RunID, "run")
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.FS == nil {
		c.FS = OS()
	}
	return c
}

// Validate joins and returns all errors that it finds in c. Create accepts c if and only if
// Validate returns nil.
func (c Config) Validate() error {
	var errs []error
	complain := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("sink."+format, args...))
	}
	if _, err := c.Format.MarshalText(); err != nil {
		complain("format is %d, but must be parquet or arrow", c.Format)
	}
	if c.MaxShardBytes < 0 {
		complain("max_shard_bytes is %d, but must be > 0", c.MaxShardBytes)
	}
	if c.Store != nil && c.MaxShardBytes > MaxStoredShard {
		complain("max_shard_bytes is %d, but must be ≤ %d with a store", c.MaxShardBytes, int64(MaxStoredShard))
	}
	if c.MaxShardAge < 0 {
		complain("max_shard_age is %v, but must be > 0", c.MaxShardAge)
	}
	if c.MaxBytesInFlight < 0 {
		complain("max_bytes_in_flight is %d, but must be > 0", c.MaxBytesInFlight)
	}
	if c.RowGroupTokens != 0 && (c.RowGroupTokens < minRowGroupTokens || c.RowGroupTokens > maxRowGroupTokens) {
		complain("row_group_tokens is %d, but must be between %d and %d", c.RowGroupTokens, minRowGroupTokens, maxRowGroupTokens)
	}
	if c.MergeAt < 0 || c.MergeAt == 1 {
		complain("merge_at is %d, but must be ≥ 2", c.MergeAt)
	}
	if c.Epoch < 0 || (c.Epoch > 0) != (c.Store != nil) {
		complain("epoch is %d, but must be ≥ 1 with a store, and 0 without", c.Epoch)
	}
	if c.VocabSize < 0 {
		complain("vocab_size is %d, but must be ≥ 0", c.VocabSize)
	}
	if !isName(c.RunID) {
		complain("run_id is %q, but must consist of at most %d letters, digits, '.', '-' or '_', and must not begin with '.'", c.RunID, maxNameLen)
	}
	for key := range c.Meta {
		switch key {
		case "":
			complain("meta: empty key")
		case metaSchemaVersion, metaRunID, metaKind, metaExperts:
			complain("meta: the key %s is reserved for the sink", key)
		}
	}
	return errors.Join(errs...)
}

// maxNameLen keeps a shard's file name far below 255 bytes, the usual limit of file systems.
const maxNameLen = 100

// isName reports whether s can be part of a file name.
func isName(s string) bool {
	if len(s) > maxNameLen || (s != "" && s[0] == '.') {
		return false
	}
	for _, r := range []byte(s) {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '.', r == '-', r == '_':
		default:
			return false
		}
	}
	return true
}
