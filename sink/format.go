package sink

import "github.com/rollout-rl/rollout/tokenize/enum"

// A Format is the file format of the data shards. Shards of failures are always Parquet.
type Format uint8

const (
	// Parquet is compressed and takes about 2.7 bytes per token. It is the default.
	Parquet Format = iota
	// Arrow is the Arrow IPC stream format, uncompressed and mappable. It takes at least 9 bytes
	// per token.
	Arrow
)

var formats = enum.List[Format]{Noun: "format", Words: []string{Parquet: "parquet", Arrow: "arrow"}}

// String returns the format's name in configurations and commits.
func (f Format) String() string { return formats.String(f) }

// MarshalText returns the name. It fails for a number that is not a format.
func (f Format) MarshalText() ([]byte, error) { return formats.Marshal(f) }

// UnmarshalText accepts only the names of the formats.
func (f *Format) UnmarshalText(text []byte) error { return formats.Unmarshal(text, f) }

// ext returns the extension of a data shard's file name. Arrow's own extension for a stream is
// .arrows, but datasets.load_dataset of Hugging Face recognizes only .arrow and accepts streams
// under that name. Readers of a dataset use the format in the entry, not the extension.
func (f Format) ext() string {
	if f == Arrow {
		return ".arrow"
	}
	return ".parquet"
}

// A Kind is the kind of the rows in a shard.
type Kind uint8

const (
	// KindData is the kind of training sequences: StoredRow.
	KindData Kind = iota
	// KindFailures is the kind of rows that must not be trained on: StoredFailure.
	KindFailures
)

var kinds = enum.List[Kind]{Noun: "kind of shard", Words: []string{KindData: "data", KindFailures: "failures"}}

// String returns the kind's name in commits. It is also the name of the shard's folder.
func (k Kind) String() string { return kinds.String(k) }

// MarshalText returns the name. It fails for a number that is not a kind.
func (k Kind) MarshalText() ([]byte, error) { return kinds.Marshal(k) }

// UnmarshalText accepts only the names of the kinds.
func (k *Kind) UnmarshalText(text []byte) error { return kinds.Unmarshal(text, k) }
