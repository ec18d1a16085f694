package sink

import (
	"fmt"
	"io"
	"reflect"

	"github.com/parquet-go/parquet-go"
)

// A part is a subset of the columns of T. Its methods read only these columns.
type part[T any] struct {
	schema *parquet.Schema
	others []int // indexes of the excluded fields
	// lists reads the columns that schema excludes. It can be nil. The method read calls lists
	// once. It passes each row group to the function that lists returns. For each row group, this
	// function returns another function, which sets these columns in row i of the row group.
	lists func() func(parquet.RowGroup) (func(row *T, i int64), error)
}

// newPart returns a part with the fields for which has(field) is true.
func newPart[T any](has func(reflect.StructField) bool) part[T] {
	var p part[T]
	var options []parquet.SchemaOption
	t := reflect.TypeFor[T]()
	for i := range t.NumField() {
		if f := t.Field(i); !has(f) {
			p.others = append(p.others, i)
			options = append(options, parquet.StructTag(`parquet:"-"`, f.Name))
		}
	}
	p.schema = parquet.SchemaOf(*new(T), options...)
	return p
}

// read passes each row in a range of a Parquet shard to yield, until yield returns false. The
// yield function must not keep the row.
func (p part[T]) read(f io.ReaderAt, in rowRange, yield func(*T) bool) (err error) {
	pf, err := openParquet[T](f, in.shard.Bytes, in.shard.Rows)
	if err != nil {
		return err
	}
	var yielding bool
	defer libraryPanic("parquet", &yielding, &err)
	set := func(*T, int64) {}
	lists := func(parquet.RowGroup) (func(*T, int64), error) { return set, nil }
	if p.lists != nil {
		lists = p.lists()
	}
	n, skip := int64(0), in.skip
	for g, group := range pf.RowGroups() {
		if skip >= group.NumRows() {
			skip -= group.NumRows()
			n += group.NumRows()
			continue
		}
		if set, err = lists(group); err != nil {
			return fmt.Errorf("row group %d: %w", g, err)
		}
		k, more, err := p.group(group, skip, func(row *T, i int64) bool {
			set(row, i)
			yielding = true
			more := yield(row)
			yielding = false
			return more
		})
		if err != nil {
			return fmt.Errorf("row group %d: %w", g, err)
		}
		if n, skip = n+k, 0; !more {
			return nil
		}
	}
	if n != in.shard.Rows && in.shard.Rows != anyRows {
		return fmt.Errorf("%d rows, want %d", n, in.shard.Rows)
	}
	return nil
}

// group passes each row of a row group and the row's number to yield, starting with row i. The
// results are the number of the next row, and false if yield returned false. group also checks
// that the row group has as many rows as the footer records, because the library does not check
// this.
func (p part[T]) group(group parquet.RowGroup, i int64, yield func(*T, int64) bool) (_ int64, more bool, err error) {
	r := parquet.NewGenericRowGroupReader[T](group, p.schema)
	defer closeInto(r, &err)
	if i > 0 {
		if err := r.SeekToRow(i); err != nil {
			return i, false, err
		}
	}
	batch := make([]T, max(1, min(64, group.NumRows()-i)))
	for {
		k, err := r.Read(batch)
		for at := range k {
			if i == group.NumRows() {
				return i, false, fmt.Errorf("more than %d rows", i)
			}
			if i++; !yield(&batch[at], i-1) {
				return i, false, nil
			}
		}
		clear(batch[:k])
		if err == io.EOF && i != group.NumRows() {
			err = fmt.Errorf("%d rows, want %d", i, group.NumRows())
		}
		if err == io.EOF {
			return i, true, nil
		}
		if err != nil {
			return i, false, err
		}
	}
}
