package sink

// Only this file imports arrow/go, so that no other file depends on the version of the library.
//
// A shard is an Arrow IPC stream that consists of a schema, batches and an end mark. The library's
// builders collect each batch in memory, and the writer reuses this memory for the next batches.

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/bits"
	"reflect"
	"slices"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
)

// arrowEnd is the end mark of a stream. Without the mark, a stream that ends between two batches
// would look complete after a crash.
const arrowEnd = "\xff\xff\xff\xff\x00\x00\x00\x00"

// arrowBatchBytes limits the text in a batch, because the offsets of Arrow strings are int32. If
// rows have few tokens and a lot of text, a batch reaches this limit before its token limit.
const arrowBatchBytes = 128 << 20

// An arrowColumn copies values between a field of a StoredRow and a column of batches.
type arrowColumn struct {
	field arrow.Field
	// builds returns a function that appends the field's value to a builder for the column.
	builds func(array.Builder) func()
	// loads returns a function that sets the field to value i of the column. If the value is null,
	// the field is unchanged.
	loads func(arrow.Array) func(i int)
}

func arrowColumns(row *StoredRow) []arrowColumn {
	v := reflect.ValueOf(row).Elem()
	columns := make([]arrowColumn, v.NumField())
	for i := range columns {
		name, tags, _ := strings.Cut(v.Type().Field(i).Tag.Get("parquet"), ",")
		nullable := strings.Contains(tags, "optional")
		columns[i] = arrowColumnOf(v.Field(i).Addr().Interface(), nullable, strings.Contains(tags, "timestamp"))
		columns[i].field.Name, columns[i].field.Nullable = name, nullable
	}
	return columns
}

// arrowColumnOf returns the column for a field, given a pointer to the field. It panics if the
// field's type is not supported. Any test of the format would detect this.
func arrowColumnOf(field any, nullable, timestamp bool) arrowColumn {
	switch p := field.(type) {
	case *string:
		return arrowValue(p, arrow.BinaryTypes.String, (*array.StringBuilder).Append, textAt)
	case *bool:
		return arrowValue(p, arrow.FixedWidthTypes.Boolean, (*array.BooleanBuilder).Append, (*array.Boolean).Value)
	case *int32:
		return arrowValue(p, arrow.PrimitiveTypes.Int32, (*array.Int32Builder).Append, (*array.Int32).Value)
	case *int64:
		if timestamp {
			return arrowValue(p, arrow.FixedWidthTypes.Timestamp_us,
				func(b *array.TimestampBuilder, v int64) { b.Append(arrow.Timestamp(v)) },
				func(a *array.Timestamp, i int) int64 { return int64(a.Value(i)) })
		}
		return arrowValue(p, arrow.PrimitiveTypes.Int64, (*array.Int64Builder).Append, (*array.Int64).Value)
	case *float32:
		return arrowValue(p, arrow.PrimitiveTypes.Float32, (*array.Float32Builder).Append, (*array.Float32).Value)
	case *float64:
		return arrowValue(p, arrow.PrimitiveTypes.Float64, (*array.Float64Builder).Append, (*array.Float64).Value)
	case **string:
		return arrowPointer(p)
	case **bool:
		return arrowPointer(p)
	case **int32:
		return arrowPointer(p)
	case **float32:
		return arrowPointer(p)
	case **float64:
		return arrowPointer(p)
	case *[]byte:
		return arrowBytes(p)
	case *[]int8:
		return arrowList(p, nullable, arrow.PrimitiveTypes.Int8, (*array.Int8Builder).AppendValues, (*array.Int8).Int8Values)
	case *[]int32:
		return arrowList(p, nullable, arrow.PrimitiveTypes.Int32, (*array.Int32Builder).AppendValues, (*array.Int32).Int32Values)
	case *[]float32:
		return arrowList(p, nullable, arrow.PrimitiveTypes.Float32, (*array.Float32Builder).AppendValues, (*array.Float32).Float32Values)
	case *[]string:
		return arrowList(p, nullable, arrow.BinaryTypes.String, (*array.StringBuilder).AppendValues, textsOf)
	}
	panic(fmt.Sprintf("sink: internal error: no column for %T", field))
}

// arrowBytes returns the column for bytes. A nil slice is written as null.
func arrowBytes(p *[]byte) arrowColumn {
	return arrowColumn{
		field: arrow.Field{Type: arrow.BinaryTypes.Binary},
		builds: func(b array.Builder) func() {
			to := as[*array.BinaryBuilder](b)
			return func() {
				if *p == nil {
					to.AppendNull()
				} else {
					to.Append(*p)
				}
			}
		},
		loads: func(a arrow.Array) func(int) {
			from := as[*array.Binary](a)
			return func(i int) {
				if !from.IsNull(i) {
					*p = slices.Clone(from.Value(i))
				}
			}
		},
	}
}

// as asserts that a builder or an array has the type that its column needs. It panics if v has a
// different type.
func as[T any](v any) T {
	of, ok := v.(T)
	if !ok {
		panic(fmt.Sprintf("sink: internal error: %T for a column of %T", v, of))
	}
	return of
}

func textAt(a *array.String, i int) string { return strings.Clone(a.Value(i)) }

func textsOf(a *array.String) []string {
	texts := make([]string, a.Len())
	for i := range texts {
		texts[i] = textAt(a, i)
	}
	return texts
}

func arrowValue[T any, B array.Builder, A arrow.Array](
	p *T, typ arrow.DataType, put func(B, T), at func(A, int) T,
) arrowColumn {
	return arrowColumn{
		field: arrow.Field{Type: typ},
		builds: func(b array.Builder) func() {
			to := as[B](b)
			return func() { put(to, *p) }
		},
		loads: func(a arrow.Array) func(int) {
			from := as[A](a)
			return func(i int) { *p = at(from, i) }
		},
	}
}

// arrowPointer returns the column for a field of pointer type. A nil pointer is written as null.
func arrowPointer[T any](p **T) arrowColumn {
	v := new(T)
	c := arrowColumnOf(v, false, false)
	return arrowColumn{
		field: c.field,
		builds: func(b array.Builder) func() {
			add := c.builds(b)
			return func() {
				if *p == nil {
					b.AppendNull()
				} else {
					*v = **p
					add()
				}
			}
		},
		loads: func(a arrow.Array) func(int) {
			load := c.loads(a)
			return func(i int) {
				if a.IsValid(i) {
					load(i)
					*p = new(*v)
				}
			}
		},
	}
}

// arrowList returns the column for a field of slice type. In a nullable column, a nil slice is
// written as null.
func arrowList[T any, B array.Builder, A arrow.Array](
	p *[]T, nullable bool, typ arrow.DataType, put func(B, []T, []bool), values func(A) []T,
) arrowColumn {
	return arrowColumn{
		field: arrow.Field{Type: arrow.ListOfField(arrow.Field{Name: "element", Type: typ})},
		builds: func(b array.Builder) func() {
			lists := as[*array.ListBuilder](b)
			to := as[B](lists.ValueBuilder())
			return func() {
				lists.Append(*p != nil || !nullable)
				put(to, *p, nil)
			}
		},
		loads: func(a arrow.Array) func(int) {
			lists := as[*array.List](a)
			from := values(as[A](lists.ListValues()))
			return func(i int) {
				if start, end := lists.ValueOffsets(i); lists.IsValid(i) {
					part := from[start:end]
					*p = append(make([]T, 0, len(part)), part...)
				}
			}
		},
	}
}

// A recycler allocates memory for batches. It keeps freed memory for reuse, except slices larger
// than keepBatch. All capacities are powers of two, because the library also grows its memory to
// powers of two.
type recycler map[int][][]byte // by capacity

// keepBatch is large enough for every column of a batch with a million tokens and 90 KB of messages
// for every 8,000 tokens.
const keepBatch = 16 << 20

func (r recycler) Allocate(size int) []byte {
	n := 1 << bits.Len(uint(max(size, 1)-1))
	last := len(r[n]) - 1
	if last < 0 {
		return make([]byte, size, n)
	}
	b := r[n][last][:size]
	r[n] = r[n][:last]
	clear(b) // the library does not overwrite the memory of null values
	return b
}

func (r recycler) Reallocate(size int, b []byte) []byte {
	if size <= cap(b) {
		clear(b[min(len(b), size):size])
		return b[:size]
	}
	to := r.Allocate(size)
	copy(to, b)
	r.Free(b)
	return to
}

func (r recycler) Free(b []byte) {
	if n := cap(b); n > 0 && n <= keepBatch {
		r[n] = append(r[n], b)
	}
}

// arrowSchema returns the schema of a shard. pyarrow reads the same schema from a Parquet shard:
// list elements are never null and are named "element".
func arrowSchema(columns []arrowColumn, meta map[string]string) *arrow.Schema {
	fields := make([]arrow.Field, len(columns))
	for i, c := range columns {
		fields[i] = c.field
	}
	keys := slices.Sorted(maps.Keys(meta))
	values := make([]string, len(keys))
	for i, k := range keys {
		values[i] = meta[k]
	}
	md := arrow.NewMetadata(keys, values)
	return arrow.NewSchema(fields, &md)
}

type arrowEncoder struct {
	row    StoredRow // the functions in append copy values from this row
	append []func()
	batch  *array.RecordBuilder
	out    countingWriter
	buf    *bufio.Writer
	w      *ipc.Writer

	batchTokens               int
	rows, tokens, text, bytes int // counts for the open batch
}

// newArrowEncoder returns an encoder that writes a stream to w. No other open encoder is allowed to
// use mem.
func newArrowEncoder(w io.Writer, mem memory.Allocator, batchTokens int, meta map[string]string) *arrowEncoder {
	e := &arrowEncoder{batchTokens: batchTokens, out: countingWriter{w: w}}
	columns := arrowColumns(&e.row)
	schema := arrowSchema(columns, meta)
	e.batch = array.NewRecordBuilder(mem, schema)
	for i, c := range columns {
		e.append = append(e.append, c.builds(e.batch.Field(i)))
	}
	e.buf = bufio.NewWriterSize(&e.out, 64<<10) // the library writes headers and padding in small pieces
	e.w = ipc.NewWriter(e.buf, ipc.WithSchema(schema), ipc.WithAllocator(mem))
	return e
}

// encode closes a full batch even within a group. Readers memory-map batches, so a group that spans
// two batches has no extra cost for them.
func (e *arrowEncoder) encode(row *StoredRow, tokens int, _ bool) error {
	text := textBytes(row)
	if e.text+text > arrowBatchBytes {
		if err := e.flush(); err != nil {
			return err
		}
	}
	e.row = *row
	for _, add := range e.append {
		add()
	}
	e.row = StoredRow{}
	e.rows++
	e.tokens += tokens
	e.text += text
	e.bytes += arrowRowBytes + text + len(row.LossMask) + 5*len(row.TurnOffsets) +
		4*(len(row.InputIDs)+len(row.Logprobs)+len(row.Versions)+len(row.SamplingMask)+len(row.SamplingMaskLengths))
	if e.tokens >= e.batchTokens {
		return e.flush()
	}
	return nil
}

// arrowRowBytes is the approximate size of a row in bytes, without its text and its lists of
// numbers.
const arrowRowBytes = 200

// textBytes returns the number of bytes of text in all columns of a row. This number is also an
// upper bound for each single column.
func textBytes(r *StoredRow) (n int) {
	for _, s := range [...]string{
		r.SampleKey, r.TaskID, r.GroupID, r.RolloutID, r.ChainKind, r.Status, r.StopReason, r.Verification, r.PromptSource,
		r.Model, r.AgentID,
	} {
		n += len(s)
	}
	n += len(r.RoutedExperts)
	for _, list := range [...][]string{r.FinishReasons, r.Flags, r.RunIDs, r.StepIDs, r.WeightVersions} {
		for _, s := range list {
			n += len(s)
		}
	}
	for _, s := range []*string{r.Messages, r.Metadata, r.RewardDetails, r.Divergence, r.KeepReason} {
		if s != nil {
			n += len(*s)
		}
	}
	return n
}

// flush writes the open batch unless it is empty. Every shard has at least one row, and therefore
// at least one batch.
func (e *arrowEncoder) flush() error {
	if e.rows == 0 {
		return nil
	}
	batch := e.batch.NewRecord()
	defer batch.Release()
	e.rows, e.tokens, e.text, e.bytes = 0, 0, 0, 0
	return e.w.Write(batch)
}

func (e *arrowEncoder) size() int64 { return e.out.n + int64(e.buf.Buffered()+e.bytes) }

func (e *arrowEncoder) close() error {
	if err := e.flush(); err != nil {
		return err
	}
	if err := e.w.Close(); err != nil {
		return err
	}
	return e.buf.Flush()
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// readArrow checks the schema, the end mark and the row count of a stream. It calls yield with each
// row in the range until yield returns false. yield owns the rows. In each row, the fields whose
// indexes are in others stay empty. If yield is nil, readArrow only checks the columns.
func readArrow(f io.ReaderAt, in rowRange, others []int, yield func(*StoredRow) bool) (err error) {
	// The library trusts the lengths in a stream, so the caller must check the digest first. Even
	// with a matching digest, the library can panic on a wrong length.
	var yielding bool
	defer libraryPanic("arrow", &yielding, &err)
	size := in.shard.Bytes
	if err := checkArrowEnd(f, size); err != nil {
		return err
	}
	r, err := ipc.NewReader(bufio.NewReaderSize(io.NewSectionReader(f, 0, size), int(min(size, 256<<10))))
	if err != nil {
		return err
	}
	defer r.Release()
	row := new(StoredRow)
	columns := arrowColumns(row)
	if err := sameArrowSchema(r.Schema(), arrowSchema(columns, nil)); err != nil {
		return fmt.Errorf("schema differs from schema version %d: %w", SchemaVersion, err)
	}
	loads := make([]func(int), 0, len(columns))
	n := int64(0)
	for r.Next() {
		batch := r.Record()
		first := min(max(in.skip-n, 0), batch.NumRows())
		n += batch.NumRows()
		if first == batch.NumRows() {
			continue
		}
		loads = loads[:0]
		for i, c := range columns {
			if slices.Contains(others, i) {
				continue
			}
			if err := checkArray(batch.Column(i), c.field.Nullable); err != nil {
				return fmt.Errorf("column %s: %w", c.field.Name, err)
			}
			if yield != nil {
				loads = append(loads, c.loads(batch.Column(i)))
			}
		}
		if yield == nil {
			continue
		}
		for i := first; i < batch.NumRows(); i++ {
			for _, load := range loads {
				load(int(i))
			}
			own := *row
			*row = StoredRow{}
			yielding = true
			more := yield(&own)
			yielding = false
			if !more {
				return nil
			}
		}
	}
	if err := r.Err(); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if n != in.shard.Rows {
		return fmt.Errorf("%d rows, want %d", n, in.shard.Rows)
	}
	return nil
}

// checkArray checks properties of an array that the library does not verify. The array and its
// offsets must start at 0, the offsets must never decrease, and each buffer must be long enough.
// If nullable is false, the array must not contain nulls.
func checkArray(a arrow.Array, nullable bool) error {
	data, n, nulls := a.Data(), a.Len(), a.NullN()
	size := func(i int) int {
		if b := data.Buffers()[i]; b != nil {
			return b.Len()
		}
		return 0
	}
	switch {
	case data.Offset() != 0:
		return fmt.Errorf("array offset %d, want 0", data.Offset())
	case nulls != 0 && !nullable:
		return fmt.Errorf("%d of %d values are null, but the column does not allow nulls", nulls, n)
	case nulls != 0 && 8*size(0) < n:
		return fmt.Errorf("the validity bitmap has only %d bytes for %d values", size(0), n)
	case n == 0: // an empty array need not have offsets
		return nil
	}
	var offsets []int32
	var end int
	switch a := a.(type) {
	case *array.List:
		if err := checkArray(a.ListValues(), false); err != nil {
			return fmt.Errorf("elements: %w", err)
		}
		offsets, end = a.Offsets()[:n+1], a.ListValues().Len()
	case *array.String:
		offsets, end = a.ValueOffsets(), size(2)
	case *array.Binary:
		offsets, end = a.ValueOffsets(), size(2)
	default:
		if bits := as[arrow.FixedWidthDataType](a.DataType()).BitWidth(); 8*size(1) < n*bits {
			return fmt.Errorf("%d bytes for %d values of %d bits", size(1), n, bits)
		}
		return nil
	}
	least, most := 0, 0
	for i, at := range offsets {
		if int(at) < least || int(at) > most {
			return fmt.Errorf("offset %d is %d, want %d to %d", i, at, least, most)
		}
		least, most = int(at), end
	}
	return nil
}

func arrowMeta(f io.ReaderAt, size int64, meta map[string]string) error {
	r, err := ipc.NewReader(bufio.NewReader(io.NewSectionReader(f, 0, size)))
	if err != nil {
		return err
	}
	defer r.Release()
	md := r.Schema().Metadata()
	for i, key := range md.Keys() {
		meta[key] = md.Values()[i]
	}
	return nil
}

func checkArrowEnd(f io.ReaderAt, size int64) error {
	var end [len(arrowEnd)]byte
	if size < int64(len(end)) {
		return errors.New("no end mark")
	}
	if _, err := f.ReadAt(end[:], size-int64(len(end))); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if string(end[:]) != arrowEnd {
		return errors.New("no end mark: the stream is truncated")
	}
	return nil
}

func sameArrowSchema(got, want *arrow.Schema) error {
	if got.NumFields() != want.NumFields() {
		return fmt.Errorf("%d columns, want %d", got.NumFields(), want.NumFields())
	}
	for i := range want.NumFields() {
		if g, w := got.Field(i), want.Field(i); !g.Equal(w) {
			return fmt.Errorf("column %d is %v, want %v", i, g, w)
		}
	}
	return nil
}
