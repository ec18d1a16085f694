package sink

import (
	"fmt"
	"reflect"
	"strings"
)

// StoredRows are laid out in memory as in Arrow, column by column. This file has the set of columns,
// column_fixed.go, column_text.go and column_list.go have the kinds of columns, and arrow.go has the
// conversion to the Arrow library.
//
//	fixed    [validity]  values
//	bool     bits
//	text     [validity]  offsets (n+1)  bytes
//	list     [validity]  offsets (n+1)  ─► child
//
// Offsets are int32 and begin at 0. A column without nulls has no validity bitmap.

// A layout is one column of one batch: views of the memory of a column, or of a batch that was read.
type layout struct {
	n, nulls int
	buffers  [][]byte
	child    *layout
}

// A column is a column of the open batch, bound to a field of a StoredRow.
type column interface {
	append()
	// layout returns views that are valid until the next append or reset.
	layout() layout
	// size estimates the number of appended bytes.
	size() int
	reset()
	// bind makes load read from l.
	bind(l layout) error
	load(i int)
}

type columnKind uint8

const (
	kindString columnKind = iota
	kindBool
	kindInt8
	kindInt32
	kindInt64
	kindFloat32
	kindFloat64
	kindTimestamp // int64, microseconds, UTC
)

// A columnSpec describes a column of the schema, from the tags of StoredRow.
type columnSpec struct {
	name           string
	kind           columnKind
	list, nullable bool
}

type columnSet struct {
	row   *StoredRow
	specs []columnSpec
	cols  []column
}

func newColumnSet() *columnSet {
	s := &columnSet{row: new(StoredRow)}
	v := reflect.ValueOf(s.row).Elem()
	for i := range v.NumField() {
		name, tags, _ := strings.Cut(v.Type().Field(i).Tag.Get("parquet"), ",")
		spec, col := bindField(v.Field(i).Addr().Interface(), strings.Contains(tags, "optional"))
		spec.name = name
		if strings.Contains(tags, "timestamp") {
			spec.kind = kindTimestamp
		}
		s.specs = append(s.specs, spec)
		s.cols = append(s.cols, col)
	}
	return s
}

// bindField returns the column of one field. It panics for a field type that the format does not
// support; every test of the format would find it.
func bindField(field any, nullable bool) (columnSpec, column) {
	switch p := field.(type) {
	case *string:
		return columnSpec{kind: kindString}, &textColumn{src: p}
	case **string:
		return columnSpec{kind: kindString, nullable: true}, &textColumn{opt: p}
	case *bool:
		return columnSpec{kind: kindBool}, &boolColumn{src: p}
	case **bool:
		return columnSpec{kind: kindBool, nullable: true}, &boolColumn{opt: p}
	case *int32:
		return columnSpec{kind: kindInt32}, &fixedColumn[int32]{src: p}
	case *int64:
		return columnSpec{kind: kindInt64}, &fixedColumn[int64]{src: p}
	case **int32:
		return columnSpec{kind: kindInt32, nullable: true}, &fixedColumn[int32]{opt: p}
	case **float32:
		return columnSpec{kind: kindFloat32, nullable: true}, &fixedColumn[float32]{opt: p}
	case **float64:
		return columnSpec{kind: kindFloat64, nullable: true}, &fixedColumn[float64]{opt: p}
	case *[]int8:
		return columnSpec{kind: kindInt8, list: true, nullable: nullable}, &listColumn[int8]{src: p, nullable: nullable}
	case *[]int32:
		return columnSpec{kind: kindInt32, list: true, nullable: nullable}, &listColumn[int32]{src: p, nullable: nullable}
	case *[]float32:
		return columnSpec{kind: kindFloat32, list: true, nullable: nullable}, &listColumn[float32]{src: p, nullable: nullable}
	case *[]string:
		c := &textListColumn{src: p}
		c.texts.src = &c.elem
		return columnSpec{kind: kindString, list: true}, c
	}
	panic(fmt.Sprintf("sink: internal error: no column for %T", field))
}

func (s *columnSet) append(row *StoredRow) {
	*s.row = *row
	for _, c := range s.cols {
		c.append()
	}
}

func (s *columnSet) size() (n int) {
	for _, c := range s.cols {
		n += c.size()
	}
	return n
}

func (s *columnSet) reset() {
	*s.row = StoredRow{} // releases the last row
	for _, c := range s.cols {
		c.reset()
	}
}

// load returns row i of the bound batch. Its lists and texts are copies. It skips columns that are
// nil because their reader does not need them.
func (s *columnSet) load(i int) *StoredRow {
	for _, c := range s.cols {
		if c != nil {
			c.load(i)
		}
	}
	row := *s.row
	*s.row = StoredRow{}
	return &row
}
