package sink

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go"
)

// A part is a subset of the columns of T, selected by their read tag. Only these are read.
type part[T any] struct {
	schema *parquet.Schema
	others []int // indexes of the excluded fields
}

func newPart[T any](word string) part[T] {
	return newPartOf[T](func(f reflect.StructField) bool {
		return slices.Contains(strings.Split(f.Tag.Get("read"), ","), word)
	})
}

// newPartOf returns a part of the fields for which has returns true.
func newPartOf[T any](has func(reflect.StructField) bool) part[T] {
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

// read calls yield with each row of a Parquet shard until yield returns false. yield must not keep the
// row.
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

// group is read for one row group. It returns the number of rows, and whether yield wants more.
func (p part[T]) group(group parquet.RowGroup, yield func(*T) bool) (n int64, more bool, err error) {
	r := parquet.NewGenericRowGroupReader[T](group, p.schema)
	defer closeInto(r, &err)
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
