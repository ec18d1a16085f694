package continuity

import (
	"container/list"
	"slices"
	"time"
)

// A call is one generation: the prompt that the server asked, the prompt that the engine got, and
// the output. Both prompts are stored as differences from the parent's. A call in a site is
// immutable, except refs, times and next.
type call struct {
	// parent is a call whose asked ids are the beginning of this call's asked ids, or nil for the
	// first call of a chain. If cut > 0, it is the call whose output was spliced in.
	parent *call
	// ids is asked[start:end]. start is the parent's end.
	ids        []int32
	start, end int
	// cut is 0 if the engine got asked itself. Otherwise the engine got parent's sent prompt,
	// parent's output, and asked[cut:].
	cut  int
	sent int // number of ids that the engine got
	// spliced is the number of turns that differ between the engine's prompt and asked.
	spliced int
	// output is the sampled ids, including the end token.
	output []int32

	// Table.mu guards the fields below.
	refs  int // by the site, and by calls with this call as parent
	times int // number of equal calls: same ids sent and sampled
	next  []next
}

// A next is the hash of a prompt that continued a call. At most call.times prompts continue a call.
type next struct {
	hash uint64
	lost bool // it was spliced and got no answer: the same prompt can come again
}

// continuedBy reports whether the prompt with this hash continues a conversation that contains the
// call. For each time that the call was sampled, one prompt can continue it: the first that comes,
// and the same prompt again if it got no answer. The table's mutex is held.
func (c *call) continuedBy(hash uint64) bool {
	if i := slices.Index(c.next, next{hash, true}); i >= 0 {
		c.next[i].lost = false
		return true
	}
	if len(c.next) >= c.times {
		return false
	}
	c.next = append(c.next, next{hash: hash})
	return true
}

// lose notes that a spliced prompt that continued the call got no answer. Table.mu is held.
func (c *call) lose(hash uint64) {
	if i := slices.Index(c.next, next{hash, false}); i >= 0 {
		c.next[i].lost = true
	}
}

// callBytes and siteBytes are the approximate memory of a call and a site without their ids.
const (
	callBytes = 192
	siteBytes = 256
)

func (c *call) bytes() int64 { return int64(4*(len(c.ids)+len(c.output))) + callBytes }

func (c *call) asks(asked []int32) bool {
	for ; c != nil; c = c.parent {
		if c.end > len(asked) || !slices.Equal(asked[c.start:c.end], c.ids) {
			return false
		}
	}
	return true
}

// appendSent appends the prompt that the engine got for c. asked must begin with c's asked ids.
func (c *call) appendSent(dst, asked []int32) []int32 {
	var path []*call
	for ; c.cut > 0; c = c.parent {
		path = append(path, c)
	}
	dst = append(dst, asked[:c.end]...)
	for _, next := range slices.Backward(path) {
		dst = append(dst, c.output...)
		dst = append(dst, asked[next.cut:next.end]...)
		c = next
	}
	return dst
}

type site struct {
	hash uint64
	// calls all have the same asked ids. The slice is append-only, so a reader can keep a copy of
	// its header.
	calls []*call
	// blind means that an output is unknown. It is permanent: the site is never spliced again.
	blind bool
	used  time.Time
	in    *list.List // the table's list with the site, and its element
	place *list.Element
}

func (s *site) put(in *list.List) { s.in, s.place = in, in.PushBack(s) }

func (s *site) touch(now time.Time) {
	s.used = now
	s.in.MoveToBack(s.place)
}

// is reports whether the site's prompt is asked. A site without calls has no ids left to compare.
func (s *site) is(asked []int32) bool {
	return len(s.calls) == 0 || s.calls[0].end == len(asked) && s.calls[0].asks(asked)
}

// maxCalls bounds the outputs compared with a print; 4,000 tokens take about 50 µs.
const maxCalls = 32
