package chat

import "sync/atomic"

// A Map holds the keys and values of a Dict. Its keys are in the order of their first insertion, as
// in Python. The zero Map is empty and ready for use.
//
// A Map must be built by only one goroutine at a time, and must not change after it becomes a
// Value.
type Map struct {
	keys []Value
	vals []Value
	// index maps string keys to positions if there are more than linearKeys keys. Only Set and add
	// change it.
	index map[string]int
	// other is the number of keys that are not strings. Such keys are found by a linear search.
	other int
	// printed caches the last tojson output, because tools and arguments are printed again in every
	// later prompt.
	printed atomic.Pointer[printed]
}

// A printed is the output of tojson for one value in one style.
type printed struct {
	style jsonStyle
	text  string
}

// linearKeys is the largest number of keys for which a linear search is used. Messages and tools
// have fewer keys. For so few keys, a linear search is faster than a hash table.
const linearKeys = 12

// NewMap returns an empty Map with capacity for n keys.
func NewMap(n int) *Map {
	both := make([]Value, 2*n)
	return &Map{keys: both[:0:n], vals: both[n:n]}
}

// Len returns the number of keys.
func (m *Map) Len() int { return len(m.keys) }

// Set sets the value of key. An existing key keeps its position.
func (m *Map) Set(key string, v Value) { m.set(StringValue(key), v) }

// Get returns the value of a string key, and whether the key exists.
func (m *Map) Get(key string) (Value, bool) {
	if i := m.findString(key); i >= 0 {
		return m.vals[i], true
	}
	return Value{}, false
}

// At returns the key and the value at index i, 0 ≤ i < Len.
func (m *Map) At(i int) (key, value Value) { return m.keys[i], m.vals[i] }

// set is like Set, but for a key that is a str Value.
func (m *Map) set(key, v Value) {
	if i := m.findString(key.s); i >= 0 {
		m.vals[i] = v
		return
	}
	m.add(key, v)
}

// add adds a key that m does not have.
func (m *Map) add(key, v Value) {
	m.keys = append(m.keys, key)
	m.vals = append(m.vals, v)
	switch {
	case !key.isStr():
		m.other++
	case m.index != nil:
		m.index[key.s] = len(m.keys) - 1
	case len(m.keys) > linearKeys:
		m.index = make(map[string]int, 2*len(m.keys))
		for i, k := range m.keys {
			if k.isStr() {
				m.index[k.s] = i
			}
		}
	}
}

func (m *Map) findString(key string) int {
	if m.index != nil {
		if i, ok := m.index[key]; ok {
			return i
		}
		return -1
	}
	for i := range m.keys {
		if m.keys[i].s == key && m.keys[i].isStr() {
			return i
		}
	}
	return -1
}
