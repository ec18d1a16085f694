package sink_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
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
			case f.Type == reflect.TypeFor[[]byte]() && optional && !list: // a column of bytes, whose nil is null
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
		encode(t, pool.NewEncoder(&body, sink.Parquet, 1_000_000, nil), rows)
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

// TestArrowOffsets tests that reading a stream, also without decoding, checks what the library takes from it
// as it is: offsets, null elements, and nulls in a column without them.
func TestArrowOffsets(t *testing.T) {
	t.Parallel()
	var rows []sink.StoredRow
	for _, n := range []int{2003, 3001, 4001} {
		rows = append(rows, sink.StoredRow{TaskID: strings.Repeat("x", n), TurnOffsets: make([]int32, 3*n)})
	}
	var body bytes.Buffer
	writeRaw(t, &body, sink.Arrow, rows, 1000, nil)
	int32s := func(list ...int32) []byte { b, _ := binary.Append(nil, binary.LittleEndian, list); return b }
	int64s := func(list ...int64) []byte { b, _ := binary.Append(nil, binary.LittleEndian, list); return b }
	texts, lists := int32s(0, 2003, 5004, 9005), int32s(0, 6009, 15012, 27015)
	for _, tt := range []struct {
		old, new []byte
		column   string
	}{
		{texts, int32s(1, 2003, 5004, 9005), "task_id"},
		{texts, int32s(0, 5005, 5004, 9005), "task_id"},
		{texts, int32s(0, 2003, 5004, 9006), "offsets out of bounds"}, // the library's
		{texts, int32s(0, -1, 5004, 9005), "task_id"},
		{lists, int32s(1, 6009, 15012, 27015), "turn_offsets"},
		{lists, int32s(0, 15013, 15012, 27015), "turn_offsets"},
		{lists, int32s(0, 6009, 15012, 27016), "turn_offsets"},
		{int64s(27015, 0), int64s(27015, 1), "turn_offsets: elements: 1 of 27015 values are null"},
		{int64s(3, 0), int64s(3, 1), "sample_key: 1 of 3 values are null"},
	} {
		if bytes.Count(body.Bytes(), tt.old) == 0 {
			t.Fatalf("%x is not in the stream", tt.old)
		}
		bad := bytes.Replace(body.Bytes(), tt.old, tt.new, 1)
		for _, yield := range []func(*sink.StoredRow) bool{nil, func(*sink.StoredRow) bool { return true }} {
			must(t, readRaw(body.Bytes(), sink.Arrow, len(rows), yield))
			if err := readRaw(bad, sink.Arrow, len(rows), yield); err == nil || !strings.Contains(err.Error(), tt.column) {
				t.Errorf("decoded is %t: %x in place of %x: %v, want one about %s", yield != nil, tt.new, tt.old, err, tt.column)
			}
		}
	}
}

// TestArrowMemory tests that batches use no memory that the library has freed, and that everything is freed
// at the end of a shard.
func TestArrowMemory(t *testing.T) {
	t.Parallel()
	rows, _ := bulkRows(100_000)
	rows = append(rows, rawRows()...)
	mem := sink.NewPoison()
	for range 2 {
		var body bytes.Buffer
		encode(t, mem.NewEncoder(&body, 20_000), rows)
		if mem.Live != 0 {
			t.Errorf("%d slices were not freed", mem.Live)
		}
		var got []sink.StoredRow
		must(t, readRaw(body.Bytes(), sink.Arrow, len(rows), func(r *sink.StoredRow) bool { got = append(got, *r); return true }))
		compare(t, "all", got, rows)
	}
}

// TestArrowKeeps tests that a writer does not keep the memory of an extremely large row.
func TestArrowKeeps(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", 40<<20)
	var pool sink.EncoderPool
	writeShard(t, &pool, sink.Arrow, []sink.StoredRow{{Messages: &text, InputIDs: make([]int32, 10<<20)}})
	if n := pool.Kept(); n == 0 || n > 64<<20 {
		t.Errorf("%d bytes are kept", n)
	}
}

// TestRowGroupCount tests that each row group must have its number of rows, even if the sum is right.
func TestRowGroupCount(t *testing.T) {
	t.Parallel()
	var body bytes.Buffer
	enc := sink.NewPlainEncoder(&body)
	for range 2 {
		_, err := enc.Write(make([]sink.StoredRow, 100))
		must(t, err)
		must(t, enc.Flush())
	}
	must(t, enc.Close())
	for _, more := range []int64{1, -1} {
		bad := withFooter(t, body.Bytes(), func(m *format.FileMetaData) {
			m.RowGroups[0].NumRows += more
			m.RowGroups[1].NumRows -= more
		})
		n := 0
		shard := sink.Shard{Bytes: int64(len(bad)), Rows: 200}
		for name, read := range map[string]func(sink.File, sink.Shard, func(*sink.StoredRow) bool) error{"rows": sink.ReadRows, "facts": sink.ReadFacts} {
			err := read(sink.NewBytesFile(bad), shard, func(*sink.StoredRow) bool { n++; return true })
			if err == nil || !strings.Contains(err.Error(), "row group ") {
				t.Errorf("%s, %+d row: %v after %d rows, want one about a row group", name, more, err, n)
			}
		}
	}
}

// withFooter returns a Parquet file with a changed footer.
func withFooter(t *testing.T, body []byte, edit func(*format.FileMetaData)) []byte {
	t.Helper()
	end := len(body) - 8 // of the footer; then come its length and PAR1
	start := end - int(binary.LittleEndian.Uint32(body[end:]))
	var m format.FileMetaData
	must(t, thrift.Unmarshal(new(thrift.CompactProtocol), body[start:end], &m))
	edit(&m)
	footer, err := thrift.Marshal(new(thrift.CompactProtocol), m)
	must(t, err)
	return slices.Concat(body[:start], footer, binary.LittleEndian.AppendUint32(nil, uint32(len(footer))), []byte("PAR1"))
}
