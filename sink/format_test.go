package sink_test

import (
	"bytes"
	"encoding/base64"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/rollout-rl/rollout/sink"
)

// These tests cover what parquet-go silently does wrong, and what it would break.

// TestNullableFieldsArePointers tests that nullable scalars are pointers. For plain values `optional`
// writes zeros as null, and zeros after other values only sometimes: 0, 1, 0 reads as null, 1, 0.
func TestNullableFieldsArePointers(t *testing.T) {
	t.Parallel()
	for _, typ := range []reflect.Type{reflect.TypeFor[sink.StoredRow](), reflect.TypeFor[sink.StoredFailure]()} {
		for f := range typ.Fields() {
			tag := f.Tag.Get("parquet")
			optional := strings.Contains(tag, ",optional")
			pointer := f.Type.Kind() == reflect.Pointer
			list := strings.Contains(tag, ",list")
			switch {
			case pointer != (optional && !list):
				t.Errorf("%s.%s: %s with the tag %q", typ, f.Name, f.Type, tag)
			case (f.Type.Kind() == reflect.Slice) != list:
				t.Errorf("%s.%s: a slice without list is a bare repeated field: %q", typ, f.Name, tag)
			case f.Type == reflect.TypeFor[[]uint8]():
				t.Errorf("%s.%s: []uint8 is written as empty lists", typ, f.Name)
			case strings.Contains(tag, "zstd") || strings.Contains(tag, "snappy"):
				t.Errorf("%s.%s: a codec in a tag means its default level", typ, f.Name)
			case strings.Contains(tag, "timestamp") && !strings.Contains(tag, "timestamp(microsecond:utc)"):
				t.Errorf("%s.%s: a timestamp without argument is in milliseconds", typ, f.Name)
			}
		}
	}
}

// TestParquetFile tests that shards use the struct's schema, or parquet-go uses reflection, that a reused
// writer names the columns, and that encodings and codec are the best measured ones that all readers
// support: ids plain (others refuse byte stream split on integers), no RLE booleans (not in the
// specification), no dictionary on token lists.
func TestParquetFile(t *testing.T) {
	t.Parallel()
	if w := parquet.NewGenericWriter[sink.StoredRow](new(bytes.Buffer)); !parquet.EqualNodes(w.Schema(), sink.RowSchema()) {
		t.Error("the writer's schema is not SchemaOf(StoredRow)")
	}
	rows, _ := bulkRows(50_000)
	var pool sink.EncoderPool
	for range 2 {
		var body bytes.Buffer
		enc := pool.NewEncoder(&body, sink.Parquet, 1_000_000, nil)
		for i := range rows {
			must(t, enc.Encode(&rows[i]))
		}
		must(t, enc.Close())
		file, err := parquet.OpenFile(bytes.NewReader(body.Bytes()), int64(body.Len()))
		must(t, err)
		if !parquet.EqualNodes(file.Schema(), sink.RowSchema()) {
			t.Error("the file's schema is not SchemaOf(StoredRow)")
		}
		want := map[string]string{
			"input_ids.list.element": "PLAIN", "loss_mask.list.element": "DELTA_BINARY_PACKED", "logprobs.list.element": "BYTE_STREAM_SPLIT",
			"versions.list.element": "PLAIN", "turn_offsets.list.element": "DELTA_BINARY_PACKED", "truncated": "PLAIN", "status": "RLE_DICTIONARY",
		}
		for i, c := range file.Metadata().RowGroups[0].Columns {
			path := strings.Join(c.MetaData.PathInSchema, ".")
			if path == "" || c.MetaData.Codec.String() != "ZSTD" {
				t.Errorf("column %d: path %q, codec %s", i, path, c.MetaData.Codec)
			}
			if enc, ok := want[path]; ok && !slices.ContainsFunc(c.MetaData.Encoding, func(e format.Encoding) bool { return e.String() == enc }) {
				t.Errorf("%s: encodings %v, want %s", path, c.MetaData.Encoding, enc)
			}
			delete(want, path)
		}
		if len(want) > 0 {
			t.Errorf("not found: %v", want)
		}
	}
}

// TestTextClosesBatches tests that much text with few tokens closes Arrow batches, which would exceed
// int32 offsets. TestRowGroupsOfText is for Parquet.
func TestTextClosesBatches(t *testing.T) {
	t.Parallel()
	rng := rand.NewChaCha8([32]byte{})
	raw := make([]byte, 3<<20)
	_, _ = rng.Read(raw) // it never fails
	text := base64.StdEncoding.EncodeToString(raw)
	for _, row := range []sink.StoredRow{{Messages: &text}, {TaskID: text}, {StepIDs: []string{text}}} {
		var out counter
		enc := new(sink.EncoderPool).NewEncoder(&out, sink.Arrow, 1_000_000, nil)
		for range 40 {
			must(t, enc.Encode(&row))
		}
		if out.n < 16<<20 {
			t.Errorf("%d bytes written of 40 rows of %d bytes of text", out.n, len(text))
		}
		must(t, enc.Close())
	}
}

// TestRawRows tests that rows of every shape, with zeros after other values and nulls, survive both
// formats.
func TestRawRows(t *testing.T) {
	t.Parallel()
	want := rawRows()
	for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
		var body bytes.Buffer
		writeRaw(t, &body, format, want, 1000, nil)
		i := 0
		must(t, readRaw(body.Bytes(), format, len(want), func(r *sink.StoredRow) bool {
			compare(t, format.String(), []sink.StoredRow{*r}, want[i:i+1])
			if (r.Versions == nil) != (want[i].Versions == nil) {
				t.Errorf("%s: versions of row %d are %v, want %v", format, i, r.Versions, want[i].Versions)
			}
			i++
			return true
		}))
		if i != len(want) {
			t.Errorf("%s: %d rows, want %d", format, i, len(want))
		}
	}
}

func readRaw(b []byte, format sink.Format, rows int, yield func(*sink.StoredRow) bool) error {
	return sink.ReadRows(sink.NewBytesFile(b), sink.Shard{Format: format, Bytes: int64(len(b)), Rows: int64(rows)}, yield)
}

// TestArrowCut tests that the end mark or the row count reveals a stream cut between batches.
func TestArrowCut(t *testing.T) {
	t.Parallel()
	rows, _ := bulkRows(100_000)
	var body bytes.Buffer
	writeRaw(t, &body, sink.Arrow, rows, 20_000, nil)
	whole := body.Bytes()
	read := func(b []byte) (n int, err error) {
		err = readRaw(b, sink.Arrow, len(rows), func(*sink.StoredRow) bool { n++; return true })
		return n, err
	}
	if n, err := read(whole); err != nil || n != len(rows) {
		t.Fatalf("whole: %d rows, %v", n, err)
	}
	const end = "\xff\xff\xff\xff\x00\x00\x00\x00"
	border := 0 // start of the last batch
	for at := len(whole) - len(end) - 8; at > 0; at -= 8 {
		if string(whole[at:at+4]) == end[:4] && whole[at+7] == 0 && (whole[at+4] != 0 || whole[at+5] != 0 || whole[at+6] != 0) {
			if n, err := read(append(bytes.Clone(whole[:at]), end...)); n > 0 && n < len(rows) && err != nil && strings.Contains(err.Error(), "rows, want") {
				border = at
				break
			}
		}
	}
	if border == 0 {
		t.Fatal("no border between batches was found, or a cut there was not noticed")
	}
	if _, err := read(whole[:border]); err == nil || !strings.Contains(err.Error(), "end mark") {
		t.Errorf("cut at a border: %v, want one about the end mark", err)
	}
	for cut := 1; cut < len(whole); cut += 997 {
		if _, err := read(whole[:len(whole)-cut]); err == nil {
			t.Fatalf("a stream without its last %d bytes was read", cut)
		}
	}
}
