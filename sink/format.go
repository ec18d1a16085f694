package sink

import "github.com/rollout-rl/rollout/tokenize/enum"

// A Format is the file format of the data shards. Shards of failures are
// Parquet whatever the format.
type Format uint8

// The formats.
const (
	// Parquet is compressed, some 2.7 bytes per token: the default.
	Parquet Format = iota
	// Arrow is the Arrow IPC stream format, uncompressed, 9 bytes per token or
	// more: readers map it into memory without a copy.
	Arrow
)

var formats = enum.List[Format]{Noun: "format", Words: []string{Parquet: "parquet", Arrow: "arrow"}}

// String returns the name as it is written in a configuration and in a commit.
func (f Format) String() string { return formats.String(f) }

// MarshalText returns the name, and fails for a number that is not a format.
func (f Format) MarshalText() ([]byte, error) { return formats.Marshal(f) }

// UnmarshalText accepts the names of the formats and nothing else.
func (f *Format) UnmarshalText(text []byte) error { return formats.Unmarshal(text, f) }

// ext is the ending of a data shard's file name. Arrow's own ending for a stream is .arrows,
// which older shards have; datasets.load_dataset of Hugging Face knows .arrow only,
// and takes a stream behind it. An entry names its shards, so readers go by neither.
func (f Format) ext() string {
	if f == Arrow {
		return ".arrow"
	}
	return ".parquet"
}

// A Kind says what the rows of a shard are.
type Kind uint8

// The kinds.
const (
	// KindData rows are training sequences: StoredRow.
	KindData Kind = iota
	// KindFailures rows must not be trained on: StoredFailure.
	KindFailures
)

var kinds = enum.List[Kind]{Noun: "kind of shard", Words: []string{KindData: "data", KindFailures: "failures"}}

// String returns the name as it is written in a commit; it is the folder of the
// shard as well.
func (k Kind) String() string { return kinds.String(k) }

// MarshalText returns the name, and fails for a number that is not a kind.
func (k Kind) MarshalText() ([]byte, error) { return kinds.Marshal(k) }

// UnmarshalText accepts the names of the kinds and nothing else.
func (k *Kind) UnmarshalText(text []byte) error { return kinds.Unmarshal(text, k) }
