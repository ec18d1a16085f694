package sink

import (
	"fmt"
	"reflect"
	"strings"
)

// This file lays StoredRows out in memory as Arrow does, column by column; what
// the Arrow library needs beyond that is in arrow.go.
//
//	fixed    [validity]  values
//	bool     bits
//	text     [validity]  offsets (n+1)  bytes
//	list     [validity]  offsets (n+1)  ─► child
//
// Offsets are int32 and begin at 0. The validity bitmap is left out where no
// value is null.

// A layout is one column of one batch: views into the memory of a column, or of
// a batch that was read.
type layout struct {
	n, nulls int
	buffers  [][]byte
	child    *layout
}

// A column is one column of the open batch. It is bound to a field of one
// StoredRow: append takes the field's value, load sets it.
type column interface {
	append()
	// layout is valid until the next append or reset.
	layout() layout
	// size is the number of bytes appended, roughly.
	size() int
	reset()
	// bind makes l what load reads from.
	bind(l layout) error
	load(i int)
}

// A columnKind says what a column holds.
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

// A columnSpec is a column of the schema, as the tags of StoredRow say it.
type columnSpec struct {
	name           string
	kind           columnKind
	list, nullable bool
}

// columnSet holds the columns of StoredRow, bound to row.
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

// bindField returns the column of one field. A field of any other type is a
// mistake in StoredRow that every test of the format finds.
func bindField(field any, nullable bool) (columnSpec, column) {
	switch p := field.(type) {
	case *string:
		return columnSpec{kind: kindString}, &textColumn{src: p}
	case **string:
		return columnSpec{kind: kindString, nullable: true}, &textColumn{opt: p}
	case *bool:
		return columnSpec{kind: kindBool}, &boolColumn{src: p}
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
	*s.row = StoredRow{} // lets the last row go
	for _, c := range s.cols {
		c.reset()
	}
}

// load returns row i of the batch that the columns are bound to. Its lists and
// texts are copies.
func (s *columnSet) load(i int) *StoredRow {
	for _, c := range s.cols {
		c.load(i)
	}
	row := *s.row
	*s.row = StoredRow{}
	return &row
}

// A bitmap holds one bit per value, least significant first.
type bitmap struct {
	bits  []byte
	n     int
	clear int // bits that are 0
}

func (b *bitmap) append(set bool) {
	if b.n%8 == 0 {
		b.bits = append(b.bits, 0)
	}
	if set {
		b.bits[b.n/8] |= 1 << (b.n % 8)
	} else {
		b.clear++
	}
	b.n++
}

func (b *bitmap) reset() { b.bits, b.n, b.clear = b.bits[:0], 0, 0 }

// validity returns the buffer: none where no bit is clear.
func (b *bitmap) validity() []byte {
	if b.clear == 0 {
		return nil
	}
	return b.bits
}

// bitSet reports bit i; every bit of an absent bitmap is set.
func bitSet(bits []byte, i int) bool {
	return len(bits) == 0 || bits[i/8]>>(i%8)&1 == 1
}

// A fixedColumn holds numbers; src or opt is set, not both.
type fixedColumn[T fixed] struct {
	src    *T
	opt    **T
	valid  bitmap
	values []T

	bits []byte // bound
}

func (c *fixedColumn[T]) append() {
	if c.opt == nil {
		c.values = append(c.values, *c.src)
		return
	}
	var v T
	if *c.opt != nil {
		v = **c.opt
	}
	c.values = append(c.values, v)
	c.valid.append(*c.opt != nil)
}

func (c *fixedColumn[T]) layout() layout {
	return layout{n: len(c.values), nulls: c.valid.clear, buffers: [][]byte{c.valid.validity(), bytesOf(c.values)}}
}

func (c *fixedColumn[T]) size() int { return len(bytesOf(c.values)) }
func (c *fixedColumn[T]) reset()    { c.values = c.values[:0]; c.valid.reset() }

func (c *fixedColumn[T]) bind(l layout) error {
	c.bits, c.values = l.buffers[0], valuesOf[T](l.buffers[1])
	return enough(len(c.values), l.n)
}

func (c *fixedColumn[T]) load(i int) {
	switch {
	case c.opt == nil:
		*c.src = c.values[i]
	case bitSet(c.bits, i):
		v := c.values[i]
		*c.opt = &v
	}
}

// A boolColumn holds bits.
type boolColumn struct {
	src  *bool
	bits bitmap
}

func (c *boolColumn) append() { c.bits.append(*c.src) }
func (c *boolColumn) layout() layout {
	return layout{n: c.bits.n, buffers: [][]byte{nil, c.bits.bits}}
}
func (c *boolColumn) size() int { return len(c.bits.bits) }
func (c *boolColumn) reset()    { c.bits.reset() }
func (c *boolColumn) bind(l layout) error {
	c.bits.bits = l.buffers[1]
	return enough(len(c.bits.bits)*8, l.n)
}
func (c *boolColumn) load(i int) { *c.src = bitSet(c.bits.bits, i) }

// offsets are n+1 positions that begin at 0.
type offsets []int32

func (o *offsets) append(end int) {
	if len(*o) == 0 {
		*o = append(*o, 0)
	}
	*o = append(*o, int32(end))
}

// bindOffsets returns the offsets of n lists over a child of the given length.
func bindOffsets(b []byte, n, child int) (offsets, error) {
	o := offsets(valuesOf[int32](b))
	if err := enough(len(o), n+1); err != nil {
		return nil, err
	}
	o = o[:n+1]
	prev := int32(0)
	for _, v := range o {
		if v < prev || int(v) > child {
			return nil, fmt.Errorf("list offset %d after %d in a child of %d", v, prev, child)
		}
		prev = v
	}
	return o, nil
}

// A textColumn holds strings; src or opt is set, not both.
type textColumn struct {
	src     *string
	opt     **string
	valid   bitmap
	offsets offsets
	text    []byte

	bits []byte // bound
}

func (c *textColumn) append() {
	if c.opt == nil {
		c.text = append(c.text, *c.src...)
	} else {
		if *c.opt != nil {
			c.text = append(c.text, **c.opt...)
		}
		c.valid.append(*c.opt != nil)
	}
	c.offsets.append(len(c.text))
}

func (c *textColumn) layout() layout {
	if len(c.offsets) == 0 { // the child of lists that are all empty
		c.offsets = append(c.offsets, 0)
	}
	return layout{n: len(c.offsets) - 1, nulls: c.valid.clear, buffers: [][]byte{c.valid.validity(), bytesOf(c.offsets), c.text}}
}

func (c *textColumn) size() int { return len(c.text) + 4*len(c.offsets) }
func (c *textColumn) reset()    { c.offsets, c.text = c.offsets[:0], c.text[:0]; c.valid.reset() }

func (c *textColumn) bind(l layout) (err error) {
	if l.n == 0 { // the child of lists that are all empty may have no offsets
		c.offsets = nil
		return nil
	}
	c.bits, c.text = l.buffers[0], l.buffers[2]
	c.offsets, err = bindOffsets(l.buffers[1], l.n, len(c.text))
	return err
}

func (c *textColumn) load(i int) {
	s := string(c.text[c.offsets[i]:c.offsets[i+1]])
	if c.opt == nil {
		*c.src = s
	} else if bitSet(c.bits, i) {
		*c.opt = &s
	}
}

// A listColumn holds lists of numbers. Where it is nullable, nil is null.
type listColumn[T fixed] struct {
	src      *[]T
	nullable bool
	valid    bitmap
	offsets  offsets
	values   []T

	bits []byte // bound
}

func (c *listColumn[T]) append() {
	c.values = append(c.values, *c.src...)
	c.offsets.append(len(c.values))
	if c.nullable {
		c.valid.append(*c.src != nil)
	}
}

func (c *listColumn[T]) layout() layout {
	return layout{
		n: len(c.offsets) - 1, nulls: c.valid.clear,
		buffers: [][]byte{c.valid.validity(), bytesOf(c.offsets)},
		child:   &layout{n: len(c.values), buffers: [][]byte{nil, bytesOf(c.values)}},
	}
}

func (c *listColumn[T]) size() int { return len(bytesOf(c.values)) + 4*len(c.offsets) }
func (c *listColumn[T]) reset()    { c.offsets, c.values = c.offsets[:0], c.values[:0]; c.valid.reset() }

func (c *listColumn[T]) bind(l layout) (err error) {
	c.bits, c.values = l.buffers[0], valuesOf[T](l.child.buffers[1])
	if err := enough(len(c.values), l.child.n); err != nil {
		return err
	}
	c.offsets, err = bindOffsets(l.buffers[1], l.n, l.child.n)
	return err
}

func (c *listColumn[T]) load(i int) {
	if c.nullable && !bitSet(c.bits, i) {
		return
	}
	*c.src = append(make([]T, 0, c.offsets[i+1]-c.offsets[i]), c.values[c.offsets[i]:c.offsets[i+1]]...)
}

// A textListColumn holds lists of strings.
type textListColumn struct {
	src     *[]string
	elem    string // what texts is bound to
	offsets offsets
	texts   textColumn
}

func (c *textListColumn) append() {
	for _, c.elem = range *c.src {
		c.texts.append()
	}
	c.elem = ""
	c.offsets.append(max(len(c.texts.offsets)-1, 0))
}

func (c *textListColumn) layout() layout {
	child := c.texts.layout()
	return layout{n: len(c.offsets) - 1, buffers: [][]byte{nil, bytesOf(c.offsets)}, child: &child}
}

func (c *textListColumn) size() int { return c.texts.size() + 4*len(c.offsets) }
func (c *textListColumn) reset()    { c.offsets = c.offsets[:0]; c.texts.reset() }

func (c *textListColumn) bind(l layout) (err error) {
	if err := c.texts.bind(*l.child); err != nil {
		return err
	}
	c.offsets, err = bindOffsets(l.buffers[1], l.n, l.child.n)
	return err
}

func (c *textListColumn) load(i int) {
	list := make([]string, 0, c.offsets[i+1]-c.offsets[i])
	for k := c.offsets[i]; k < c.offsets[i+1]; k++ {
		c.texts.load(int(k))
		list = append(list, c.elem)
	}
	*c.src = list
}

func enough(have, want int) error {
	if have < want {
		return fmt.Errorf("buffer of %d values, want %d", have, want)
	}
	return nil
}
