package tap

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/rollout-rl/rollout/sink/frame"
)

// This file encodes the payloads of a segment. The package comment describes the format of the
// payloads.

// The first byte of a payload is its kind.
const (
	opCall = 1
	opTick = 2
	opHead = 3
	opEnd  = 4
)

// An entry is a call in the queue. It shares no memory with the caller of Add.
type entry struct {
	call   Call  // without ids
	tokens IDs   // the call's prompt, then its output
	prompt int   // number of prompt tokens, or -1 for nil
	output int   // number of output tokens, or -1 for nil
	asked  *IDs  // nil if Call.Asked is nil
	size   int64 // approximate memory, in bytes
	// added is the time at which the call was added. dropped is the number of calls that the spool
	// had dropped by that time.
	added   time.Time
	dropped int64
}

func newEntry(c *Call) *entry {
	e := &entry{call: *c, tokens: PackIDs(c.Prompt, c.Output), prompt: lenOrNil(c.Prompt), output: lenOrNil(c.Output)}
	e.size = PayloadBound(c) - 5*int64(len(c.Prompt)+len(c.Output)+len(c.Asked)) + int64(e.tokens.Bytes())
	e.call.Prompt, e.call.Output, e.call.Asked = nil, nil, nil
	if c.Asked != nil {
		e.asked = new(PackIDs(c.Asked))
		e.size += int64(e.asked.Bytes())
	}
	e.call.Logprobs, e.call.Versions = slices.Clone(c.Logprobs), slices.Clone(c.Versions)
	e.call.Experts.IDs = slices.Clone(c.Experts.IDs)
	e.call.SamplingMask, e.call.MaskLengths = slices.Clone(c.SamplingMask), slices.Clone(c.MaskLengths)
	s := &e.call.Sampling
	s.Stop, s.StopIDs = slices.Clone(s.Stop), slices.Clone(s.StopIDs)
	s.Temperature, s.TopP, s.MinP = clone(s.Temperature), clone(s.TopP), clone(s.MinP)
	s.TopK, s.MaxNewTokens, s.Seed = clone(s.TopK), clone(s.MaxNewTokens), clone(s.Seed)
	return e
}

func lenOrNil(ids []int32) int {
	if ids == nil {
		return -1
	}
	return len(ids)
}

// ids returns the call with its ids, and the tokens of its prompt and output. All of these are
// slices of the result grown, which is room or, if room is too small, a larger slice. Empty lists
// are not nil.
func (e *entry) ids(room []int32) (c Call, tokens, grown []int32) {
	c = e.call
	n := e.tokens.Len()
	room = e.tokens.AppendTo(slices.Grow(room[:0], max(n, 1)), n)
	if e.asked != nil {
		room = e.asked.AppendTo(room, e.asked.Len())
		c.Asked = room[n:]
	}
	tokens = room[:n:n]
	if e.prompt >= 0 {
		c.Prompt = tokens[:e.prompt:e.prompt]
	}
	if e.output >= 0 {
		c.Output = tokens[n-e.output:]
	}
	return c, tokens, room
}

func clone[T any](v *T) *T {
	if v == nil {
		return nil
	}
	return new(*v)
}

// fixed is an upper bound for the total size of the fields with a fixed size.
const fixed = 256

// PayloadBound returns an upper bound for the size of a call in bytes, both as a payload and in memory.
func PayloadBound(c *Call) int64 {
	n := fixed + 5*(len(c.Prompt)+len(c.Asked)+len(c.Output)+len(c.Sampling.StopIDs)) + 4*len(c.Logprobs)
	n += len(c.Engine) + len(c.Dialect) + len(c.Finish) + len(c.Version)
	for _, s := range c.Sampling.Stop {
		n += len(s) + 16
	}
	for i := range c.Versions {
		n += len(c.Versions[i].Version) + 24
	}
	return int64(n) + c.insideBytes() + int64(len(c.SamplingMask)+len(c.MaskLengths))
}

// An encoder encodes the payloads of one segment. The zero value is ready to use.
type encoder struct {
	last  uint64 // number of the last call
	known finder
	room  []int32 // buffer for the ids of a call
}

// maxRoom is the maximum capacity, in ids, of a buffer that an encoder keeps for the next call.
const maxRoom = 256 << 10

func appendHead(b []byte, h head) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(append(b, opHead), h.before), h.process)
}

// appendEnd appends the last payload of a segment. The parameter closed must be true if the process
// has nothing more to write.
func appendEnd(b []byte, closed bool) []byte { return frame.AppendFlag(append(b, opEnd), closed) }

// appendTick appends a tick. The tick states that every call that was added before t has been
// written or dropped. The parameter dropped counts the calls that were dropped since the segment
// began.
func appendTick(b []byte, t time.Time, dropped int64) []byte {
	return appendMoment(append(b, opTick), t, dropped)
}

func appendMoment(b []byte, t time.Time, dropped int64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(t.UnixNano())), uint64(max(dropped, 0)))
}

// append appends the payload of a call. The parameter dropped counts the calls that were dropped
// after the start of the segment and before this call was added.
func (e *encoder) append(b []byte, en *entry, dropped int64) []byte {
	c, tokens, room := en.ids(e.room)
	if e.room = room; cap(room) > maxRoom {
		e.room = nil
	}
	e.last++
	base, shared, sums := uint64(0), 0, []uint64(nil)
	if len(c.Prompt) >= block {
		base, shared, sums = e.known.find(c.Prompt)
	}
	oldest, ok := e.known.oldest()
	if !ok {
		oldest = e.last
	}
	b = append(b, opCall)
	b = binary.AppendUvarint(b, e.last)
	b = binary.AppendUvarint(b, e.last-oldest)
	b = appendMoment(b, en.added, dropped)
	b = appendTime(appendTime(b, c.Began, en.added), c.Ended, en.added)
	b = frame.AppendText(frame.AppendText(b, c.Engine), c.Dialect)
	b = frame.AppendFlag(binary.AppendVarint(b, int64(c.Status)), c.Cut)
	b = frame.AppendText(b, c.Finish)
	b = binary.AppendVarint(b, int64(c.Matched))
	b = frame.AppendText(b, c.Version)
	for _, v := range [...]int32{c.PromptTokens, c.OutputTokens, c.Cached} {
		b = binary.AppendVarint(b, int64(v))
	}
	b = appendSampling(b, &c.Sampling)
	b = appendPrompt(b, c.Prompt, e.last-base, shared)
	b = appendAsked(b, c.Asked, c.Prompt)
	b = appendIDs(frame.AppendLen(b, c.Output), c.Output)
	b = frame.AppendFloat32s(b, c.Logprobs)
	b = frame.AppendLen(b, c.Versions)
	for _, v := range c.Versions {
		b = binary.AppendVarint(binary.AppendVarint(frame.AppendText(b, v.Version), int64(v.Start)), int64(v.End))
	}
	b = appendInside(b, &c)
	if shared > 0 && e.known.byNumber[base].replaced(shared) {
		e.known.forget(base)
	}
	if c.Prompt != nil {
		e.known.keep(e.last, tokens, history{tokens: en.tokens, prompt: len(c.Prompt), root: shared == 0, sums: sums})
	}
	return b
}

// appendPrompt appends the prompt. The parameter shared is the number of tokens that the prompt
// shares with an earlier call. The parameter back is the difference between the numbers of the two
// calls.
func appendPrompt(b []byte, prompt []int32, back uint64, shared int) []byte {
	b = frame.AppendLen(b, prompt)
	if prompt == nil {
		return b
	}
	b = binary.AppendUvarint(b, uint64(shared))
	if shared > 0 {
		b = binary.AppendUvarint(b, back)
		b = binary.LittleEndian.AppendUint64(b, sum(seed, prompt))
	}
	return appendIDs(b, prompt[shared:])
}

// appendAsked appends the prompt that the server sent. It encodes only the difference from the
// prompt that the engine received.
func appendAsked(b []byte, asked, prompt []int32) []byte {
	b = frame.AppendLen(b, asked)
	if asked == nil {
		return b
	}
	front := common(asked, prompt)
	back := 0
	for most := min(len(asked), len(prompt)) - front; back < most && asked[len(asked)-1-back] == prompt[len(prompt)-1-back]; {
		back++
	}
	b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(front)), uint64(back))
	return appendIDs(b, asked[front:len(asked)-back])
}

// appendInside appends the values from inside a call. Most calls have none, and add no bytes.
func appendInside(b []byte, c *Call) []byte {
	if c.Experts.IDs == nil && c.MaskLengths == nil {
		return b
	}
	s := c.Experts.Shape
	for _, n := range [...]int{s.Layers, s.TopK, s.Experts} {
		b = binary.AppendUvarint(b, uint64(n)) //nolint:gosec // not negative
	}
	b = append(frame.AppendLen(b, c.Experts.IDs), c.Experts.IDs...)
	for _, list := range [...][]int32{c.SamplingMask, c.MaskLengths} {
		b = appendIDs(frame.AppendLen(b, list), list)
	}
	return b
}

func appendSampling(b []byte, s *Sampling) []byte {
	for _, v := range [...]*float64{s.Temperature, s.TopP, s.MinP} {
		if b = frame.AppendFlag(b, v != nil); v != nil {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(*v))
		}
	}
	for _, v := range [...]*int64{s.TopK, s.MaxNewTokens, s.Seed} {
		if b = frame.AppendFlag(b, v != nil); v != nil {
			b = binary.AppendVarint(b, *v)
		}
	}
	b = frame.AppendLen(b, s.Stop)
	for _, text := range s.Stop {
		b = frame.AppendText(b, text)
	}
	return appendIDs(frame.AppendLen(b, s.StopIDs), s.StopIDs)
}

func appendTime(b []byte, t, from time.Time) []byte {
	b = binary.AppendVarint(b, t.Unix()-from.Unix())
	return binary.AppendUvarint(b, uint64(t.Nanosecond()))
}

func appendIDs(b []byte, ids []int32) []byte {
	b = slices.Grow(b, 3*len(ids))
	for _, id := range ids {
		b = binary.AppendUvarint(b, uint64(uint32(id)))
	}
	return b
}
