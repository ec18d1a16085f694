package sink

// This file owns the import of arrow/go: no other file depends on its version.
//
// A shard is an Arrow IPC stream: schema, batches, end mark. Each batch is collected in a columnSet,
// which its writer reuses, and passed to the library as arrays over the same memory, without a copy.
//
// The library silently writes a list or string array wrong if the array's offset is 0 but its first
// list offset is not. So the offsets of each batch begin at 0, also in inner lists.

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
)

// arrowEnd ends a stream. Without it, a stream that was cut between two batches looks whole.
const arrowEnd = "\xff\xff\xff\xff\x00\x00\x00\x00"

// arrowBatchBytes closes a batch of few tokens and much text early: its string offsets are int32.
const arrowBatchBytes = 128 << 20

// fixed is a type of numbers in a column.
type fixed interface {
	int8 | int32 | int64 | float32 | float64
}

func bytesOf[T fixed, S ~[]T](s S) []byte { return arrow.GetBytes([]T(s)) }

// valuesOf is the inverse of bytesOf. It ignores an incomplete value at the end of b.
func valuesOf[T fixed](b []byte) []T {
	width := len(bytesOf([]T{0}))
	return arrow.GetData[T](b[:len(b)/width*width])
}

var arrowTypes = [...]arrow.DataType{
	kindString:    arrow.BinaryTypes.String,
	kindBool:      arrow.FixedWidthTypes.Boolean,
	kindInt8:      arrow.PrimitiveTypes.Int8,
	kindInt32:     arrow.PrimitiveTypes.Int32,
	kindInt64:     arrow.PrimitiveTypes.Int64,
	kindFloat32:   arrow.PrimitiveTypes.Float32,
	kindFloat64:   arrow.PrimitiveTypes.Float64,
	kindTimestamp: arrow.FixedWidthTypes.Timestamp_us,
}

// arrowSchema returns the schema of a shard. It equals pyarrow's schema of a Parquet shard: list
// elements are never null and are named "element".
func arrowSchema(specs []columnSpec, meta map[string]string) *arrow.Schema {
	fields := make([]arrow.Field, len(specs))
	for i, s := range specs {
		typ := arrowTypes[s.kind]
		if s.list {
			typ = arrow.ListOfField(arrow.Field{Name: "element", Type: typ})
		}
		fields[i] = arrow.Field{Name: s.name, Type: typ, Nullable: s.nullable}
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
	cols   *columnSet
	schema *arrow.Schema
	out    countingWriter
	buf    *bufio.Writer
	w      *ipc.Writer

	batchTokens        int
	rows, tokens, text int // of the open batch
	arrays             []arrow.Array
}

// newArrowEncoder begins a stream on w and resets cols, which no other open encoder may use.
func newArrowEncoder(w io.Writer, cols *columnSet, batchTokens int, meta map[string]string) *arrowEncoder {
	return newArrowEncoderWith(w, cols, batchTokens, meta, memory.DefaultAllocator)
}

func newArrowEncoderWith(w io.Writer, cols *columnSet, batchTokens int, meta map[string]string, mem memory.Allocator) *arrowEncoder {
	cols.reset()
	e := &arrowEncoder{cols: cols, schema: arrowSchema(cols.specs, meta), batchTokens: batchTokens}
	e.out.w = w
	e.buf = bufio.NewWriterSize(&e.out, 64<<10) // the library writes headers and padding one by one
	e.w = ipc.NewWriter(e.buf, ipc.WithSchema(e.schema), ipc.WithAllocator(mem))
	return e
}

// encode closes a full batch even within a group: batches are mapped, so that costs readers nothing.
func (e *arrowEncoder) encode(row *StoredRow, tokens int, _ bool) error {
	text := textBytes(row)
	if e.text+text > arrowBatchBytes {
		if err := e.flush(); err != nil {
			return err
		}
	}
	e.cols.append(row)
	e.rows++
	e.tokens += tokens
	e.text += text
	if e.tokens >= e.batchTokens {
		return e.flush()
	}
	return nil
}

// textBytes returns the text bytes of a row in all columns. It is an upper bound for each column.
func textBytes(r *StoredRow) (n int) {
	for _, s := range [...]string{
		r.SampleKey, r.TaskID, r.GroupID, r.RolloutID, r.Status, r.StopReason, r.Verification, r.PromptSource, r.Model, r.AgentID,
	} {
		n += len(s)
	}
	for _, list := range [...][]string{r.FinishReasons, r.Flags, r.RunIDs, r.StepIDs} {
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

// flush writes the open batch unless it is empty. Every shard has a row, and so at least one batch.
func (e *arrowEncoder) flush() error {
	if e.rows == 0 {
		return nil
	}
	e.arrays = e.arrays[:0]
	for i, c := range e.cols.cols {
		data := arrowData(e.schema.Field(i).Type, c.layout())
		e.arrays = append(e.arrays, array.MakeFromData(data))
		data.Release()
	}
	batch := array.NewRecord(e.schema, e.arrays, int64(e.rows))
	err := e.w.Write(batch)
	batch.Release()
	for _, a := range e.arrays {
		a.Release()
	}
	e.rows, e.tokens, e.text = 0, 0, 0
	e.cols.reset()
	return err
}

func arrowData(typ arrow.DataType, l layout) *array.Data {
	buffers := make([]*memory.Buffer, len(l.buffers))
	for i, b := range l.buffers {
		if b != nil {
			buffers[i] = memory.NewBufferBytes(b)
		}
	}
	var children []arrow.ArrayData
	if list, ok := typ.(*arrow.ListType); ok {
		child := arrowData(list.Elem(), *l.child)
		defer child.Release()
		children = []arrow.ArrayData{child}
	}
	return array.NewData(typ, l.n, buffers, children, l.nulls, 0)
}

func (e *arrowEncoder) size() int64 {
	return e.out.n + int64(e.buf.Buffered()+e.cols.size())
}

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

// readArrow checks the schema, the end mark and the row count of a stream, and calls yield with each
// row until it returns false. yield owns the rows. If yield is nil, only the offsets are checked.
func readArrow(f File, size, rows int64, yield func(*StoredRow) bool) error {
	return readArrowWith(f, size, rows, nil, yield, memory.DefaultAllocator)
}

// readArrowPart is readArrow without the columns of the fields in others.
func readArrowPart(f File, size, rows int64, others []int, yield func(*StoredRow) bool) error {
	return readArrowWith(f, size, rows, others, yield, memory.DefaultAllocator)
}

func readArrowWith(f File, size, rows int64, others []int, yield func(*StoredRow) bool, mem memory.Allocator) (err error) {
	var yielding bool
	// The library trusts the lengths in a stream, so the caller checks the digest first. If a
	// length is still wrong, the library can panic.
	defer func() {
		if yielding {
			return // the caller's panic
		}
		if r := recover(); r != nil {
			err = fmt.Errorf("arrow: %v", r)
		}
	}()
	if err := checkArrowEnd(f, size); err != nil {
		return err
	}
	r, err := ipc.NewReader(bufio.NewReaderSize(io.NewSectionReader(f, 0, size), int(min(size, 256<<10))), ipc.WithAllocator(mem))
	if err != nil {
		return err
	}
	defer r.Release()
	cols := newColumnSet()
	if err := sameArrowSchema(r.Schema(), arrowSchema(cols.specs, nil)); err != nil {
		return fmt.Errorf("schema differs from schema version %d: %w", SchemaVersion, err)
	}
	for _, i := range others {
		cols.cols[i] = nil
	}
	var n int64
	for r.Next() {
		batch := r.Record()
		n += batch.NumRows()
		for i, c := range cols.cols {
			if c == nil {
				continue
			}
			l, err := arrowLayout(batch.Column(i).Data())
			if err == nil {
				err = c.bind(l)
			}
			if err != nil {
				return fmt.Errorf("column %s: %w", cols.specs[i].name, err)
			}
		}
		if yield == nil {
			continue
		}
		for i := range int(batch.NumRows()) {
			row := cols.load(i)
			yielding = true
			more := yield(row)
			yielding = false
			if !more {
				return nil
			}
		}
	}
	if err := r.Err(); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if n != rows {
		return fmt.Errorf("%d rows, want %d", n, rows)
	}
	return nil
}

// arrowMeta adds the key-values of a stream's schema to meta.
func arrowMeta(f File, size int64, meta map[string]string) error {
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

func arrowLayout(d arrow.ArrayData) (layout, error) {
	if d.Offset() != 0 {
		return layout{}, fmt.Errorf("array offset %d, want 0", d.Offset())
	}
	l := layout{n: d.Len(), nulls: d.NullN(), buffers: make([][]byte, len(d.Buffers()))}
	for i, b := range d.Buffers() {
		if b != nil {
			l.buffers[i] = b.Bytes()
		}
	}
	if len(d.Children()) > 0 {
		child, err := arrowLayout(d.Children()[0])
		if err != nil {
			return layout{}, err
		}
		if child.nulls > 0 {
			return layout{}, fmt.Errorf("%d null elements", child.nulls)
		}
		l.child = &child
	}
	return l, nil
}

func checkArrowEnd(f File, size int64) error {
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
