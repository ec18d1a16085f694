package sink

import "fmt"

// A bitmap holds one bit per value, least significant first.
type bitmap struct {
	bits  []byte
	n     int
	clear int // number of bits that are 0
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

// validity returns the bitmap, or nil if every bit is set.
func (b *bitmap) validity() []byte {
	if b.clear == 0 {
		return nil
	}
	return b.bits
}

// bitSet reports bit i. In an absent bitmap every bit is set.
func bitSet(bits []byte, i int) bool {
	return len(bits) == 0 || bits[i/8]>>(i%8)&1 == 1
}

// A fixedColumn holds numbers; src or opt is set, not both.
type fixedColumn[T fixed] struct {
	src    *T
	opt    **T
	valid  bitmap
	values []T

	bits []byte // set by bind
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
		*c.opt = new(c.values[i])
	}
}

// A boolColumn holds bits; src or opt is set, not both.
type boolColumn struct {
	src   *bool
	opt   **bool
	valid bitmap
	bits  bitmap
}

func (c *boolColumn) append() {
	if c.opt == nil {
		c.bits.append(*c.src)
		return
	}
	c.bits.append(*c.opt != nil && **c.opt)
	c.valid.append(*c.opt != nil)
}

func (c *boolColumn) layout() layout {
	return layout{n: c.bits.n, nulls: c.valid.clear, buffers: [][]byte{c.valid.validity(), c.bits.bits}}
}

func (c *boolColumn) size() int { return len(c.bits.bits) }
func (c *boolColumn) reset()    { c.bits.reset(); c.valid.reset() }

func (c *boolColumn) bind(l layout) error {
	c.valid.bits, c.bits.bits = l.buffers[0], l.buffers[1]
	return enough(len(c.bits.bits)*8, l.n)
}

func (c *boolColumn) load(i int) {
	switch {
	case c.opt == nil:
		*c.src = bitSet(c.bits.bits, i)
	case bitSet(c.valid.bits, i):
		*c.opt = new(bitSet(c.bits.bits, i))
	}
}

func enough(have, want int) error {
	if have < want {
		return fmt.Errorf("buffer of %d values, want %d", have, want)
	}
	return nil
}
