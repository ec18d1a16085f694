package chat

func (c comparer) find(m *Map, key Value) (int, error) {
	if key.isStr() {
		n := 1
		if m.index == nil {
			n = len(m.keys)
		}
		err := c.pay(n*(len(key.s)>>8), 0)
		if err != nil {
			return -1, err
		}
		return m.findString(key.s), nil
	}
	if m.other == 0 {
		return -1, nil
	}
	for i, k := range m.keys {
		if k.isStr() {
			continue
		}
		if eq, err := c.equal(k, key, 0); eq || err != nil {
			return i, err
		}
	}
	return -1, nil
}

// find returns the index of a key in a dict, or -1. The key must be hashable.
func (r *run) find(m *Map, key Value) (int, error) {
	if err := r.hashable(key); err != nil {
		return -1, err
	}
	return r.comparer().find(m, key)
}

// put sets a key of a dict that is not yet shared.
func (r *run) put(m *Map, key, v Value) error {
	i, err := r.find(m, key)
	switch {
	case err != nil:
		return err
	case i >= 0:
		m.vals[i] = v
		return nil
	}
	if err := r.pay(1+len(key.s)>>6, entryBytes); err != nil {
		return err
	}
	m.add(key, v)
	return nil
}

// hashable returns Python's error for a value that cannot be a key.
func (r *run) hashable(v Value) error {
	if v.isStr() {
		return nil
	}
	return r.comparer().hashable(v, 0)
}

func (c comparer) hashable(v Value, depth int) error {
	switch v.kind {
	case List, Dict:
		return typeErrorf("unhashable type: '%s'", typeName(v))
	case Tuple: // tuples can share their parts, so this can take many steps
		for _, x := range v.Items() {
			if err := c.pay(1, depth); err != nil {
				return err
			}
			if err := c.hashable(x, depth+1); err != nil {
				return err
			}
		}
	case Object:
		if _, ok := v.ref.(*view); ok {
			return typeErrorf("unhashable type: '%s'", typeName(v))
		}
	}
	return nil
}
