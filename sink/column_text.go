package sink

import "fmt"

// offsets are n+1 positions that begin at 0.
type offsets []int32

func (o *offsets) append(end int) {
	if len(*o) == 0 {
		*o = append(*o, 0)
	}
	*o = append(*o, int32(end))
}

// bindOffsets returns the offsets of n lists over a child of that length.
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

	bits []byte // set by bind
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
	if l.n == 0 { // the child of lists that are all empty can lack offsets
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
