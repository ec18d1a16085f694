package sink

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go"
)

// A part is some of the columns of T, for who does not need all: those whose read tag has
// its word. The library reads no others.
type part[T any] struct {
	schema *parquet.Schema
	others []int // the fields that it leaves out
}

func newPart[T any](word string) part[T] {
	var p part[T]
	var out []parquet.SchemaOption
	t := reflect.TypeFor[T]()
	for i := range t.NumField() {
		f := t.Field(i)
		if !slices.Contains(strings.Split(f.Tag.Get("read"), ","), word) {
			out = append(out, parquet.StructTag(`parquet:"-"`, f.Name))
			p.others = append(p.others, i)
		}
	}
	p.schema = parquet.SchemaOf(*new(T), out...)
	return p
}

// clear makes of a whole row what read would give.
func (p part[T]) clear(row *T) {
	v := reflect.ValueOf(row).Elem()
	for _, i := range p.others {
		v.Field(i).SetZero()
	}
}

// read calls yield with the part of each row of a Parquet shard until it returns false. A
// row is valid until yield returns.
func (p part[T]) read(f File, size, rows int64, yield func(*T) bool) (err error) {
	pf, err := openParquet[T](f, size, rows)
	if err != nil {
		return err
	}
	var yielding bool
	defer libraryPanic(&yielding, &err)
	var n int64
	for _, group := range pf.RowGroups() {
		k, more, err := p.group(group, func(row *T) bool {
			yielding = true
			more := yield(row)
			yielding = false
			return more
		})
		if n += k; err != nil || !more {
			return err
		}
	}
	if n != rows && rows != anyRows {
		return fmt.Errorf("%d rows, want %d", n, rows)
	}
	return nil
}

// group is read for one row group. It returns the number of rows, and whether more are
// wanted.
func (p part[T]) group(group parquet.RowGroup, yield func(*T) bool) (n int64, more bool, err error) {
	r := parquet.NewGenericRowGroupReader[T](group, p.schema)
	defer func() {
		if cerr := r.Close(); err == nil {
			err = cerr
		}
	}()
	batch := make([]T, 64)
	for {
		k, err := r.Read(batch)
		for i := range k {
			n++
			if !yield(&batch[i]) {
				return n, false, nil
			}
		}
		clear(batch[:k])
		if err == io.EOF {
			return n, true, nil
		}
		if err != nil {
			return n, false, err
		}
	}
}
