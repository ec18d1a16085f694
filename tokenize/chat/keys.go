package chat

// find returns the index of a key in a dict, or -1.
func (r *run) find(m *Map, key Value) (int, error) {
	if key.isStr() {
		n := 1
		if m.index == nil {
			n = len(m.keys)
		}
		err := r.pay(n*(len(key.s)>>8), 0)
		if err != nil {
			return -1, err
		}
		return m.findString(key.s), nil
	}
	switch key.kind {
	case List, Dict:
		return -1, typeErrorf("unhashable type: '%s'", typeName(key))
	case Tuple, Object:
		return -1, unsupportedf("a key of type %s", typeName(key))
	}
	if m.other == 0 {
		return -1, nil
	}
	for i, k := range m.keys {
		if k.isStr() {
			continue
		}
		if eq, err := r.equalAt(k, key, 0); eq || err != nil {
			return i, err
		}
	}
	return -1, nil
}

// put sets a key in a dict that is not yet shared.
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
