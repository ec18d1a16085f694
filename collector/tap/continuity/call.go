package continuity

import (
	"container/list"
	"slices"
	"time"
)

// A call is one generation: what the server asked, what the engine was sent, and what it
// sampled. Both prompts are kept as what they have beyond the call before. A call does not
// change once it is in a site, but for refs, times and next.
type call struct {
	// parent is a call whose asked ids begin this one's; nil for the first of a chain.
	// With cut > 0 it is the call whose output was spliced in.
	parent *call
	// ids are asked[start:end], and start is the parent's end.
	ids        []int32
	start, end int
	// cut is 0 where the engine was sent asked itself. Else it was sent what it was sent
	// for parent, the output of parent, and asked[cut:].
	cut  int
	sent int // how many ids the engine was sent
	// spliced is the number of turns that differ between the engine's prompt and asked.
	spliced int
	// output are the sampled ids, with the one that ended them.
	output []int32

	// The table's mutex guards the fields below.
	refs  int // the site, and the calls that have this call as parent
	times int // the number of equal calls: the same ids sent and sampled
	next  []next
}

// A next is a prompt that continued a call, by its hash. A call has at most one for each of
// its times.
type next struct {
	hash uint64
	lost bool // it was spliced, and no answer came: the same prompt can come again
}

// continuedBy reports whether the prompt with this hash is the next prompt of a conversation
// with the call. For each time that the call was sampled, one prompt continues it: the first
// one that comes, and the same prompt again if it was lost. The caller holds the table's mutex.
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

// lose notes that no answer came to a spliced prompt that continued the call, if it did. The
// table's mutex is held.
func (c *call) lose(hash uint64) {
	if i := slices.Index(c.next, next{hash, false}); i >= 0 {
		c.next[i].lost = true
	}
}

// callBytes and siteBytes are what a call and a site cost besides their ids, roughly.
const (
	callBytes = 192
	siteBytes = 256
)

func (c *call) bytes() int64 { return int64(4*(len(c.ids)+len(c.output))) + callBytes }

// asks reports whether c's asked ids are the first of asked.
func (c *call) asks(asked []int32) bool {
	for ; c != nil; c = c.parent {
		if c.end > len(asked) || !slices.Equal(asked[c.start:c.end], c.ids) {
			return false
		}
	}
	return true
}

// appendSent appends what the engine was sent for c to dst. asked begins with c's asked ids.
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

// A site is a prompt that the server asked, with every call that had it.
type site struct {
	hash uint64
	// calls all have the same asked ids. The slice grows at its end only: a reader may
	// keep it as it was.
	calls []*call
	// blind says that not every output is known. It is never taken back: nothing is
	// spliced behind this prompt.
	blind bool
	used  time.Time
	in    *list.List // the list of the table that the site is in, and where
	place *list.Element
}

func (s *site) put(in *list.List) { s.in, s.place = in, in.PushBack(s) }

func (s *site) touch(now time.Time) {
	s.used = now
	s.in.MoveToBack(s.place)
}

// is reports whether the site's prompt is asked, as far as the site still knows it.
func (s *site) is(asked []int32) bool {
	return len(s.calls) == 0 || s.calls[0].end == len(asked) && s.calls[0].asks(asked)
}

// maxCalls bounds the outputs that a prompt is compared with. One of 4,000 tokens takes some
// 50 µs.
const maxCalls = 32
