package continuity

import (
	"container/list"
	"slices"
	"time"
)

// A call is one generation. It consists of the prompt that the server sent, the prompt that the
// engine received, and the output. Both prompts are stored as differences from the parent's
// prompts. A call in a site is immutable, except for the fields refs, times and next.
type call struct {
	// parent is an earlier call, or nil for the first call in a chain. The asked ids begin with the
	// parent's asked ids. If cut > 0, the parent's output was spliced into the prompt.
	parent *call
	// ids is asked[start:end]. start is the parent's end, or 0.
	ids        []int32
	start, end int
	// cut is 0 if the engine received the asked prompt unchanged. Otherwise, the engine received
	// the parent's sent prompt, the parent's output and asked[cut:].
	cut  int
	sent int // number of prompt ids that the engine received
	// spliced is the number of turns in which the sent prompt differs from the asked prompt.
	spliced int
	// output contains the sampled ids, including the end token.
	output []int32

	// Table.mu guards the fields below.
	refs  int // number of references from the site and from calls whose parent is this call
	times int // number of calls with the same sent and sampled ids
	next  []next
}

// A next contains the hash of a prompt that continued a call. At most call.times prompts can
// continue a call.
type next struct {
	hash uint64
	lost bool // the spliced prompt got no answer, so the server can send the same prompt again
}

// continuedBy reports whether the prompt with this hash can continue the call, and records the
// prompt. Only the first c.times prompts can continue the call. A prompt that got no answer can
// continue the call again. The caller must hold Table.mu.
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

// lose marks the spliced prompt with this hash, which continued the call, as unanswered. The caller
// must hold Table.mu.
func (c *call) lose(hash uint64) {
	if i := slices.Index(c.next, next{hash, false}); i >= 0 {
		c.next[i].lost = true
	}
}

// callBytes and siteBytes are the approximate memory of a call and of a site, without their ids.
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

// appendSent appends the prompt that the engine received for c. The parameter asked must begin with
// the asked ids of c.
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
	// All calls have the same asked ids. The slice is append-only, so a reader can use a copy of
	// the slice header without the lock.
	calls []*call
	// blind is true if the output of a call is unknown. Once true, blind stays true, so the outputs
	// of the site are never spliced again.
	blind bool
	used  time.Time
	in    *list.List // the list of the table that contains the site; place is the site's element in that list
	place *list.Element
}

func (s *site) put(in *list.List) { s.in, s.place = in, in.PushBack(s) }

func (s *site) touch(now time.Time) {
	s.used = now
	s.in.MoveToBack(s.place)
}

// is reports whether asked is the prompt of the site. For a site without calls, the result is
// always true, because the site no longer has the ids to compare.
func (s *site) is(asked []int32) bool {
	return len(s.calls) == 0 || s.calls[0].end == len(asked) && s.calls[0].asks(asked)
}

// maxCalls limits the number of outputs that are compared with a print. A comparison of 4,000
// tokens takes about 50 µs.
const maxCalls = 32
