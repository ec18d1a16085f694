package sink

import (
	"fmt"
	"strconv"
)

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

var formatNames = [...]string{Parquet: "parquet", Arrow: "arrow"}

// String returns the name as it is written in a configuration and in a commit.
func (f Format) String() string { return enumName("Format", formatNames[:], uint8(f)) }

// MarshalText returns the name, and fails for a number that is not a format.
func (f Format) MarshalText() ([]byte, error) {
	return marshalEnum("format", formatNames[:], uint8(f))
}

// UnmarshalText accepts the names of the formats and nothing else.
func (f *Format) UnmarshalText(text []byte) error {
	return unmarshalEnum("format", formatNames[:], text, (*uint8)(f))
}

// ext is the ending of a data shard's file name.
func (f Format) ext() string {
	if f == Arrow {
		return ".arrows"
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

var kindNames = [...]string{KindData: "data", KindFailures: "failures"}

// String returns the name as it is written in a commit; it is the folder of the
// shard as well.
func (k Kind) String() string { return enumName("Kind", kindNames[:], uint8(k)) }

// MarshalText returns the name, and fails for a number that is not a kind.
func (k Kind) MarshalText() ([]byte, error) { return marshalEnum("kind", kindNames[:], uint8(k)) }

// UnmarshalText accepts the names of the kinds and nothing else.
func (k *Kind) UnmarshalText(text []byte) error {
	return unmarshalEnum("kind", kindNames[:], text, (*uint8)(k))
}

func enumName(typ string, names []string, v uint8) string {
	if int(v) < len(names) {
		return names[v]
	}
	return typ + "(" + strconv.Itoa(int(v)) + ")"
}

func marshalEnum(what string, names []string, v uint8) ([]byte, error) {
	if int(v) >= len(names) {
		return nil, fmt.Errorf("sink: unknown %s %d", what, v)
	}
	return []byte(names[v]), nil
}

func unmarshalEnum(what string, names []string, text []byte, v *uint8) error {
	for i, name := range names {
		if string(text) == name {
			*v = uint8(i)
			return nil
		}
	}
	return fmt.Errorf("sink: unknown %s %q: must be one of %q", what, text, names)
}
