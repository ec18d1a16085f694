package sink

// A listColumn holds lists of numbers. If it is nullable, a nil list is null.
type listColumn[T fixed] struct {
	src      *[]T
	nullable bool
	valid    bitmap
	offsets  offsets
	values   []T

	bits []byte // set by bind
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

type textListColumn struct {
	src     *[]string
	elem    string // the value that texts is bound to
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
