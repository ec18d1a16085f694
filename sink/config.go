package sink

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Defaults of Config.
const (
	// DefaultMaxShardBytes is what readers like: big enough that opening costs
	// nothing, small enough that a few hundred shards feed many workers evenly.
	DefaultMaxShardBytes = 256 << 20
	// DefaultMaxShardAge bounds how long a trainer that follows the commit log
	// waits, and how much of the write-ahead log recovery may have to read.
	DefaultMaxShardAge = 5 * time.Minute
	// DefaultMaxBytesInFlight holds a hundred samples of 8k tokens: enough that
	// nobody waits while a writer compresses its pages.
	DefaultMaxBytesInFlight = 8 << 20
	// DefaultWriters is one: a writer takes more than 25 million tokens per second.
	DefaultWriters = 1
	// DefaultRowGroupTokens costs some 20 MB of memory per writer of Parquet; speed
	// and size are the same from 250 thousand to 10 million.
	DefaultRowGroupTokens = 1_000_000

	// DefaultMergeAt is eight: a row is written again once for each factor of eight by which
	// its shard grows.
	DefaultMergeAt = 8

	// minRowGroupTokens keeps the footer small: a row group costs 5 KB of it.
	minRowGroupTokens = 1000
	// maxRowGroupTokens keeps every list of an Arrow batch far below 2^31 values,
	// also when the last row before the border is a long one.
	maxRowGroupTokens = 100_000_000
	maxWriters        = 256
)

// A Config says how a Dataset writes. The zero value of every field is its
// documented default.
type Config struct {
	// Format of the data shards. Default Parquet.
	Format Format

	// MaxShardBytes closes a data shard once its file has grown to that many
	// bytes. The shard may exceed it by what is still open in memory, at most one
	// row group. Default DefaultMaxShardBytes.
	MaxShardBytes int64

	// MaxShardAge closes a shard that long after its first sample came, those included
	// that were held for their group. Default DefaultMaxShardAge.
	MaxShardAge time.Duration

	// MaxBytesInFlight bounds the memory of samples that Append accepted and that
	// were not yet encoded; Append blocks beyond it. A sample larger than the
	// bound passes alone. Default DefaultMaxBytesInFlight.
	MaxBytesInFlight int64

	// Writers is the number of shards open at once, each with its own goroutine.
	// More than there are cores cost memory and gain nothing. Default
	// DefaultWriters.
	Writers int

	// RowGroupTokens closes a Parquet row group once it holds that many tokens, before
	// the first row of another group: a reader decodes a whole row group, and so needs
	// one for a group and not two. In the middle of a group it is closed at twice as
	// many. Much text beside the tokens closes it earlier, at 16 MiB of the file, or 32
	// in the middle of a group. Nothing is decoded of an Arrow batch: it is closed at that
	// many tokens, or at 128 MiB of text, wherever that is. Default DefaultRowGroupTokens.
	RowGroupTokens int

	// CommitGroups commits a group as soon as it is whole: at once where nothing else waits
	// for the writer, and 20 ms later at most, so that several groups may share a commit. A
	// group is held until then, however long that is, and is in one commit: what there is of it
	// at Close, or after a kill, stays in the write-ahead log, and the next process with
	// CommitGroups goes on with it. MaxShardAge has no effect. The small commits that come of
	// it are merged while Run goes on.
	CommitGroups bool

	// Judge is told of each group that is whole, before its rows are written, and may say
	// which samples are to be trained on (SampleFacts.Keep). It is called once for a group, by
	// Create for groups that it recovers, and by the goroutines of Run. It must not block, must
	// be safe for concurrent use where there are several Writers, and must not keep the facts.
	//
	// A group of which a part is in a commit already, because that was made without CommitGroups
	// or after CommitParts, is not judged: where that part was left out, the rest is left out
	// for the same reason. So is a sample that comes for a group that was left out. Groups without an id, and those of
	// more than 16,384 samples, are not judged. Nil: nothing is judged.
	Judge func(*GroupFacts)

	// MergeAt is how many small commits that follow each other become one, at least. With more,
	// rows are written again less often, and more files are there. Default DefaultMergeAt, with
	// which the program always works: another one is for tests and measurements.
	MergeAt int

	// VocabSize is the number of ids of the model's vocabulary; a row with an id
	// beyond it is refused. 0 means unknown: only negative ids are refused.
	VocabSize int

	// Meta holds key-values for the footer of each shard (the schema's metadata in
	// Arrow), such as rollout.config_sha256. The keys rollout.schema_version,
	// rollout.run_id and rollout.kind are written by the package itself.
	Meta map[string]string

	// RunID names the run in file names and commits: letters, digits, dot, dash
	// and underscore. Default "run".
	RunID string

	// Now is the clock that dates commits. Default time.Now.
	Now func() time.Time

	// Logger receives one line per commit. Default: none.
	Logger *slog.Logger

	// Events are told what happens.
	Events Events

	// FS is the file system. Default: the operating system's.
	FS FS
}

// Events holds functions that are told what happens; each may be nil. They are
// called from the goroutines of Run, must not block, and must not call
// the Dataset's Close.
type Events struct {
	// Committed is called once per commit, after its entry is durable and before
	// the done functions of its samples are called. Commits that Create made are
	// not told: Recovered counts them. Nor are merges.
	Committed func(Commit)
	// Sealed is called before Committed, with what the commit took.
	Sealed func(SealTimes)
	// Synced is called after each sync of the write-ahead log that made samples
	// durable, with the time that it took and what it wrote.
	Synced func(took time.Duration, samples int, bytes int64)
}

// SealTimes says what the steps of one commit took, its shards together.
type SealTimes struct {
	// Encode is the end of the shards' encoding, Sync the syncs of files and
	// folders, Check the reading back, Commit the names and the entry of the log.
	Encode, Sync, Check, Commit time.Duration
}

// add adds the time since start to one of the sums, and returns the time.
func (*SealTimes) add(sum *time.Duration, start time.Time) time.Time {
	now := time.Now()
	*sum += now.Sub(start)
	return now
}

// withDefaults returns a copy with every zero field set to its default.
func (c Config) withDefaults() Config {
	if c.MaxShardBytes == 0 {
		c.MaxShardBytes = DefaultMaxShardBytes
	}
	if c.MaxShardAge == 0 {
		c.MaxShardAge = DefaultMaxShardAge
	}
	if c.MaxBytesInFlight == 0 {
		c.MaxBytesInFlight = DefaultMaxBytesInFlight
	}
	if c.Writers == 0 {
		c.Writers = DefaultWriters
	}
	if c.RowGroupTokens == 0 {
		c.RowGroupTokens = DefaultRowGroupTokens
	}
	if c.MergeAt == 0 {
		c.MergeAt = DefaultMergeAt
	}
	if c.RunID == "" {
		c.RunID = "run"
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.FS == nil {
		c.FS = OS()
	}
	return c
}

// Validate returns every complaint about c, joined; nil means that Create will
// accept it. Zero fields are defaults and therefore right.
func (c Config) Validate() error {
	var errs []error
	complain := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("sink."+format, args...))
	}
	if _, err := c.Format.MarshalText(); err != nil {
		complain("format: %d: must be parquet or arrow", c.Format)
	}
	if c.MaxShardBytes < 0 {
		complain("max_shard_bytes: %d: must be > 0", c.MaxShardBytes)
	}
	if c.MaxShardAge < 0 {
		complain("max_shard_age: %v: must be > 0", c.MaxShardAge)
	}
	if c.MaxBytesInFlight < 0 {
		complain("max_bytes_in_flight: %d: must be > 0", c.MaxBytesInFlight)
	}
	if c.Writers < 0 || c.Writers > maxWriters {
		complain("writers: %d: must be between 1 and %d", c.Writers, maxWriters)
	}
	if c.RowGroupTokens != 0 && (c.RowGroupTokens < minRowGroupTokens || c.RowGroupTokens > maxRowGroupTokens) {
		complain("row_group_tokens: %d: must be between %d and %d", c.RowGroupTokens, minRowGroupTokens, maxRowGroupTokens)
	}
	if c.MergeAt < 0 || c.MergeAt == 1 {
		complain("merge_at: %d: must be ≥ 2", c.MergeAt)
	}
	if c.VocabSize < 0 {
		complain("vocab_size: %d: must be ≥ 0", c.VocabSize)
	}
	if !isName(c.RunID) {
		complain("run_id: %q: must be made of letters, digits, '.', '-' and '_', at most %d, and not begin with '.'", c.RunID, maxNameLen)
	}
	for key := range c.Meta {
		switch key {
		case "":
			complain("meta: empty key")
		case metaSchemaVersion, metaRunID, metaKind:
			complain("meta: %s: is written by the sink itself", key)
		}
	}
	return errors.Join(errs...)
}

// maxNameLen keeps a shard's file name far below the 255 bytes of file systems.
const maxNameLen = 100

// isName reports whether s may be a part of a file name.
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
