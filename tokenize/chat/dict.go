package chat

import "sync/atomic"

// A Map is the body of a Dict: keys in the order of their first insertion, as in
// Python. The zero Map is empty and ready for use.
//
// A Map is built once, by one goroutine, and never changes after it became a
// Value.
type Map struct {
	keys []Value
	vals []Value
	// index finds string keys once there are more than linearKeys of them. It is
	// built by Set, so that reading never writes.
	index map[string]int
	// other counts the keys that are not strings; they are found by a scan.
	other int
	// printed is what tojson made of it last: the arguments of a call, or a tool, are in
	// every later prompt of a conversation.
	printed atomic.Pointer[printed]
}

// A printed text is what tojson makes of a value in one style.
type printed struct {
	style jsonStyle
	text  string
}

// linearKeys is how many keys are compared one by one: a message or a tool has
// fewer, and for those a scan is quicker than a hash.
const linearKeys = 12

// NewMap returns an empty Map with room for n keys.
func NewMap(n int) *Map {
	both := make([]Value, 2*n)
	return &Map{keys: both[:0:n], vals: both[n:n]}
}

// Len is the number of keys.
func (m *Map) Len() int { return len(m.keys) }

// Set gives key the value v. A key that is already there keeps its place.
func (m *Map) Set(key string, v Value) { m.set(StringValue(key), v) }

// Get returns the value of a string key, and whether there is one.
func (m *Map) Get(key string) (Value, bool) {
	if i := m.findString(key); i >= 0 {
		return m.vals[i], true
	}
	return Value{}, false
}

// At returns the key and the value at place i, 0 ≤ i < Len.
func (m *Map) At(i int) (key, value Value) { return m.keys[i], m.vals[i] }

func (m *Map) set(key, v Value) {
	if i := m.find(key); i >= 0 {
		m.vals[i] = v
		return
	}
	m.add(key, v)
}

// add adds a key that is not there.
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

func (m *Map) find(key Value) int {
	if key.isStr() {
		return m.findString(key.s)
	}
	if m.other == 0 {
		return -1
	}
	for i, k := range m.keys {
		if !k.isStr() && equal(k, key) {
			return i
		}
	}
	return -1
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
