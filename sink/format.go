package sink

import "github.com/rollout-rl/rollout/tokenize/enum"

// A Format is the file format of the data shards. Failure shards are always Parquet.
type Format uint8

const (
	// Parquet files are compressed and take about 2.7 bytes per token. Parquet is the default.
	Parquet Format = iota
	// Arrow is the Arrow IPC stream format. It is uncompressed, can be memory-mapped, and takes at
	// least 9 bytes per token.
	Arrow
)

var formats = enum.List[Format]{Noun: "format", Words: []string{Parquet: "parquet", Arrow: "arrow"}}

// String returns the format's name as it appears in configurations and commits.
func (f Format) String() string { return formats.String(f) }

// MarshalText returns the format's name. It returns an error if f is not a known format.
func (f Format) MarshalText() ([]byte, error) { return formats.Marshal(f) }

// UnmarshalText accepts only the names of the formats.
func (f *Format) UnmarshalText(text []byte) error { return formats.Unmarshal(text, f) }

// ext returns the extension of a data shard's file name. Arrow's own extension for a stream is
// .arrows. However, load_dataset from Hugging Face's datasets library recognizes only .arrow, and
// it accepts streams in .arrow files. To determine the format, readers of a dataset use the log
// entry and not the extension.
func (f Format) ext() string {
	if f == Arrow {
		return ".arrow"
	}
	return ".parquet"
}

// A Kind is the kind of rows that a shard contains: data, failures or scores.
type Kind uint8

const (
	// KindData means that the rows are training sequences, of type StoredRow.
	KindData Kind = iota
	// KindFailures means that the rows must not be trained on. Their type is StoredFailure.
	KindFailures
	// KindScores means that the rows are scores of samples, of type StoredScore. Only the log of a
	// scores set names such shards.
	KindScores
)

var kinds = enum.List[Kind]{Noun: "kind of shard", Words: []string{KindData: "data", KindFailures: "failures", KindScores: "scores"}}

// String returns the kind's name as it appears in commits. The folder that contains shards of this
// kind has the same name.
func (k Kind) String() string { return kinds.String(k) }

// MarshalText returns the kind's name. It returns an error if k is not a known kind.
func (k Kind) MarshalText() ([]byte, error) { return kinds.Marshal(k) }

// UnmarshalText accepts only the names of the kinds.
func (k *Kind) UnmarshalText(text []byte) error { return kinds.Unmarshal(text, k) }
