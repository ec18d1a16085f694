package sink_test

import (
	"bytes"
	"encoding/base64"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/rollout-rl/rollout/sink"
)

// These tests cover what parquet-go silently does wrong, and what it would break.

// TestSchemaIsTheStructs tests that shards use the struct's schema, or parquet-go uses reflection.
func TestSchemaIsTheStructs(t *testing.T) {
	t.Parallel()
	w := parquet.NewGenericWriter[sink.StoredRow](new(bytes.Buffer))
	if !parquet.EqualNodes(w.Schema(), sink.RowSchema()) {
		t.Error("the writer's schema is not SchemaOf(StoredRow)")
	}
	rows, _ := bulkRows(5000)
	file := openRaw(t, rows)
	if !parquet.EqualNodes(file.Schema(), sink.RowSchema()) {
		t.Error("the file's schema is not SchemaOf(StoredRow)")
	}
}

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

// TestZeroAfterOtherIsZero shows this bug of the library, and fails once it is fixed.
func TestZeroAfterOtherIsZero(t *testing.T) {
	t.Parallel()
	zero, one := 0.0, 1.0
	rows := []sink.StoredRow{{Reward: &zero}, {Reward: &one}, {Reward: &zero}, {}, {Reward: &zero}}
	for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
		for i, r := range readRaw(t, format, rows) {
			if (r.Reward == nil) != (rows[i].Reward == nil) || r.Reward != nil && *r.Reward != *rows[i].Reward {
				t.Errorf("%s: the reward of row %d differs from the written one", format, i)
			}
		}
	}
}

// TestEveryShardNamesItsColumns tests path_in_schema, which a reused writer leaves empty.
func TestEveryShardNamesItsColumns(t *testing.T) {
	t.Parallel()
	rows, _ := bulkRows(5000)
	for range 2 {
		for _, group := range openRaw(t, rows).Metadata().RowGroups {
			for i, c := range group.Columns {
				if len(c.MetaData.PathInSchema) == 0 {
					t.Fatalf("column %d has no path", i)
				}
			}
		}
	}
}

// TestEncodings tests that encodings and codec are the best measured ones that all readers support: ids
// plain (others refuse byte stream split on integers), no RLE booleans (not in the specification), no
// dictionary on token lists.
func TestEncodings(t *testing.T) {
	t.Parallel()
	rows, _ := bulkRows(50_000)
	want := map[string]string{
		"input_ids.list.element": "PLAIN", "loss_mask.list.element": "DELTA_BINARY_PACKED", "logprobs.list.element": "BYTE_STREAM_SPLIT",
		"versions.list.element": "PLAIN", "turn_offsets.list.element": "DELTA_BINARY_PACKED", "truncated": "PLAIN", "status": "RLE_DICTIONARY",
	}
	for _, c := range openRaw(t, rows).Metadata().RowGroups[0].Columns {
		path := strings.Join(c.MetaData.PathInSchema, ".")
		if c.MetaData.Codec.String() != "ZSTD" {
			t.Errorf("%s: codec %s", path, c.MetaData.Codec)
		}
		if enc, ok := want[path]; ok {
			delete(want, path)
			found := false
			for _, e := range c.MetaData.Encoding {
				found = found || e.String() == enc
			}
			if !found {
				t.Errorf("%s: encodings %v, want %s", path, c.MetaData.Encoding, enc)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("not found: %v", want)
	}
}

// TestRowGroups tests that tokens close row groups and batches.
func TestRowGroups(t *testing.T) {
	t.Parallel()
	rows, tokens := bulkRows(300_000)
	var body bytes.Buffer
	writeRaw(t, &body, sink.Parquet, rows, 100_000, nil)
	file, err := parquet.OpenFile(bytes.NewReader(body.Bytes()), int64(body.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if got := len(file.RowGroups()); got < tokens/140_000 || got > tokens/100_000+1 {
		t.Errorf("%d row groups for %d tokens", got, tokens)
	}
}

// TestTextClosesGroups tests that much text with few tokens closes row groups, which would fill the
// memory, and Arrow batches, which would exceed int32 offsets.
func TestTextClosesGroups(t *testing.T) {
	t.Parallel()
	rng := rand.NewChaCha8([32]byte{})
	raw := make([]byte, 3<<20)
	_, _ = rng.Read(raw) // it never fails
	text := base64.StdEncoding.EncodeToString(raw)
	for _, tt := range []struct {
		format sink.Format
		row    sink.StoredRow
	}{
		{sink.Parquet, sink.StoredRow{Messages: &text}},
		{sink.Arrow, sink.StoredRow{Messages: &text}},
		{sink.Arrow, sink.StoredRow{TaskID: text}},
		{sink.Arrow, sink.StoredRow{StepIDs: []string{text}}},
	} {
		var out counter
		enc := new(sink.EncoderPool).NewEncoder(&out, tt.format, 1_000_000, nil)
		for range 40 {
			if err := enc.Encode(&tt.row); err != nil {
				t.Fatal(err)
			}
		}
		if out.n < 16<<20 {
			t.Errorf("%s: %d bytes written of 40 rows of %d bytes of text", tt.format, out.n, len(text))
		}
		if err := enc.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestRawRows tests that rows of every shape survive both formats and both ways of reading Parquet.
func TestRawRows(t *testing.T) {
	t.Parallel()
	want := rawRows()
	for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
		for i, got := range readRaw(t, format, want) {
			sameLists(t, format.String(), i, got, want[i])
			if !equalPtr(got.Messages, want[i].Messages) || !equalPtr(got.TopK, want[i].TopK) || got.PromptLength != int32(i) {
				t.Errorf("%s: row %d differs", format, i)
			}
		}
	}
	var body bytes.Buffer
	writeRaw(t, &body, sink.Parquet, want, 1000, nil)
	i := 0
	err := sink.ScanParquet(sink.NewBytesFile(body.Bytes()), int64(body.Len()), int64(len(want)), func(r *sink.StoredRow) bool {
		sameLists(t, "scan", i, r, want[i])
		i++
		return true
	})
	if err != nil || i != len(want) {
		t.Errorf("scan: %d rows, %v", i, err)
	}
}

func sameLists(t *testing.T, what string, i int, got *sink.StoredRow, want sink.StoredRow) {
	t.Helper()
	bits := func(list []float32) (b []uint32) {
		for _, v := range list {
			if v != v { // any NaN: parquet-go makes signaling ones quiet
				v = float32(math.NaN())
			}
			b = append(b, math.Float32bits(v))
		}
		return b
	}
	equal := func(a, b any) bool {
		return reflect.DeepEqual(a, b) || reflect.ValueOf(a).Len()+reflect.ValueOf(b).Len() == 0
	}
	if !equal(got.InputIDs, want.InputIDs) || !equal(got.LossMask, want.LossMask) || !equal(bits(got.Logprobs), bits(want.Logprobs)) {
		t.Errorf("%s: lists of row %d differ", what, i)
	}
	if (got.Versions == nil) != (want.Versions == nil) || !equal(got.Versions, want.Versions) {
		t.Errorf("%s: versions of row %d are %v, want %v", what, i, got.Versions, want.Versions)
	}
	if !equal(got.FinishReasons, want.FinishReasons) {
		t.Errorf("%s: finish_reasons of row %d are %q, want %q", what, i, got.FinishReasons, want.FinishReasons)
	}
}

func equalPtr[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// TestArrowCut tests that the end mark or the row count reveals a stream cut between batches.
func TestArrowCut(t *testing.T) {
	t.Parallel()
	rows, _ := bulkRows(100_000)
	var body bytes.Buffer
	writeRaw(t, &body, sink.Arrow, rows, 20_000, nil)
	whole := body.Bytes()
	read := func(b []byte) (n int, err error) {
		err = sink.ReadArrow(sink.NewBytesFile(b), int64(len(b)), int64(len(rows)), func(*sink.StoredRow) bool { n++; return true })
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

// TestGateArrowMemory tests that the Arrow library frees all memory.
func TestGateArrowMemory(t *testing.T) {
	t.Parallel()
	rows, _ := bulkRows(100_000)
	if leaked, err := sink.ArrowLeak(rows, 20_000); leaked != 0 || err != nil {
		t.Errorf("%d bytes were not given back, %v", leaked, err)
	}
}

func openRaw(t *testing.T, rows []sink.StoredRow) *parquet.File {
	t.Helper()
	var body bytes.Buffer
	writeRaw(t, &body, sink.Parquet, rows, 1_000_000, nil)
	f, err := parquet.OpenFile(bytes.NewReader(body.Bytes()), int64(body.Len()))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func readRaw(t *testing.T, format sink.Format, rows []sink.StoredRow) (all []*sink.StoredRow) {
	t.Helper()
	var body bytes.Buffer
	writeRaw(t, &body, format, rows, 1000, nil)
	read := sink.ReadParquet
	if format == sink.Arrow {
		read = sink.ReadArrow
	}
	err := read(sink.NewBytesFile(body.Bytes()), int64(body.Len()), int64(len(rows)), func(r *sink.StoredRow) bool {
		all = append(all, r)
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
