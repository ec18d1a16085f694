package sink

import "github.com/rollout-rl/rollout/tokenize/enum"

// A Format is the file format of the data shards. Shards of failures are always Parquet.
type Format uint8

const (
	// Parquet is compressed, some 2.7 bytes per token. It is the default.
	Parquet Format = iota
	// Arrow is the uncompressed, mappable Arrow IPC stream format, 9 bytes per token or more.
	Arrow
)

var formats = enum.List[Format]{Noun: "format", Words: []string{Parquet: "parquet", Arrow: "arrow"}}

// String returns the name in configurations and commits.
func (f Format) String() string { return formats.String(f) }

// MarshalText returns the name. It fails for a number that is not a format.
func (f Format) MarshalText() ([]byte, error) { return formats.Marshal(f) }

// UnmarshalText accepts only the names of the formats.
func (f *Format) UnmarshalText(text []byte) error { return formats.Unmarshal(text, f) }

// ext returns the extension of a data shard's file name. Arrow's own extension for a stream is .arrows,
// but datasets.load_dataset of Hugging Face recognizes only .arrow, and accepts a stream with it.
// Readers of a dataset use the format in the entry, not the extension.
func (f Format) ext() string {
	if f == Arrow {
		return ".arrow"
	}
	return ".parquet"
}

// A Kind is the kind of the rows in a shard.
type Kind uint8

const (
	// KindData is for training sequences: StoredRow.
	KindData Kind = iota
	// KindFailures is for rows that must not be trained on: StoredFailure.
	KindFailures
)

var kinds = enum.List[Kind]{Noun: "kind of shard", Words: []string{KindData: "data", KindFailures: "failures"}}

// String returns the name in commits. It is also the folder of the shard.
func (k Kind) String() string { return kinds.String(k) }

// MarshalText returns the name. It fails for a number that is not a kind.
func (k Kind) MarshalText() ([]byte, error) { return kinds.Marshal(k) }

// UnmarshalText accepts only the names of the kinds.
func (k *Kind) UnmarshalText(text []byte) error { return kinds.Unmarshal(text, k) }
