package tap

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/rollout-rl/rollout/sink/frame"
	"github.com/rollout-rl/rollout/tokenize"
)

// A decoder decodes the payloads of one segment. The zero value is ready to use. Some payloads can
// be missing. If a call refers to a missing call, decode returns an error.
type decoder struct {
	last    uint64
	lost    uint64 // number of missing calls, as counted from the gaps in the call numbers
	dropped uint64 // number of calls that the spool has dropped since the segment began
	head    head
	end     end
	known   window
}

type head struct {
	before  uint64 // number of the previous segment, or 0
	process uint64 // start time of the writing process, in nanoseconds since 1970
}

type end uint8

const (
	endNone   end = iota // the end payload is missing
	endOn                // the process continues in another segment
	endClosed            // the process had nothing more to write
)

var errNoBase = errors.New("the prompt shares a prefix with a missing call")

// maxTokens is the length of the longest prompt that decode accepts.
const maxTokens = MaxPayload / 5

// decode returns the call in a payload, or nil if the payload is not a call. Every call that was
// added before the returned time is either in an earlier payload or was dropped. After an error,
// the decoder can still decode the next payload.
func (d *decoder) decode(payload []byte) (*Call, time.Time, error) {
	if len(payload) == 0 {
		return nil, time.Time{}, fmt.Errorf("invalid payload: %w", frame.ErrEnds)
	}
	f := &fields{frame.PayloadOf(payload[1:])}
	var c *Call
	var root bool
	var added time.Time
	switch payload[0] {
	case opHead:
		d.head = head{f.Uvarint(), f.Uvarint()}
	case opEnd:
		if d.end = endOn; f.flag() {
			d.end = endClosed
		}
	case opTick:
		added = d.moment(f)
	case opCall:
		c, root, added = d.call(f)
	default:
		f.Fail(fmt.Errorf("unknown kind %d", payload[0]))
	}
	if err := f.End(); err != nil {
		return nil, time.Time{}, fmt.Errorf("invalid payload: %w", err)
	}
	if c != nil && c.Prompt != nil {
		d.keep(c, root)
	}
	return c, added, nil
}

func (d *decoder) keep(c *Call, root bool) {
	if n := len(c.Prompt) + len(c.Output); n >= block && n <= windowTokens {
		d.known.add(d.last, history{tokens: PackIDs(c.Prompt, c.Output), prompt: len(c.Prompt), root: root})
	}
	for d.known.tokens > 2*windowTokens { // an encoder keeps at most windowTokens
		oldest, _ := d.known.oldest()
		d.known.drop(oldest)
	}
}

// call decodes a call and reports whether the whole prompt was written, without a reference to
// another call.
func (d *decoder) call(f *fields) (c *Call, root bool, added time.Time) {
	n, back := f.Uvarint(), f.Uvarint()
	if f.Err() == nil && (n <= d.last || back >= n) {
		f.Fail(fmt.Errorf("invalid call number %d: the previous call is %d, and the oldest needed call is %d calls back", n, d.last, back))
	}
	if f.Err() != nil {
		return nil, false, added
	}
	d.lost += n - d.last - 1
	d.last = n
	for {
		oldest, ok := d.known.oldest()
		if !ok || oldest >= n-back {
			break
		}
		d.known.drop(oldest)
	}
	added = d.moment(f)
	c = &Call{Began: f.time(added), Ended: f.time(added), Engine: f.Text(), Dialect: f.Text()}
	c.Status, c.Cut = int(f.Int32()), f.flag()
	c.Finish, c.Matched, c.Version = f.Text(), f.Int32(), f.Text()
	c.PromptTokens, c.OutputTokens, c.Cached = f.Int32(), f.Int32(), f.Int32()
	c.Sampling = f.sampling()
	c.Prompt, root = d.prompt(f)
	c.Asked = f.asked(c.Prompt)
	c.Output = f.ids()
	c.Logprobs = f.Float32s()
	c.Versions = f.versions()
	f.inside(c)
	return c, root, added
}

func (d *decoder) moment(f *fields) time.Time {
	t, dropped := f.nano(), f.Uvarint()
	if f.Err() == nil {
		d.dropped = max(d.dropped, dropped)
	}
	return t
}

func (d *decoder) prompt(f *fields) (prompt []int32, root bool) {
	n := f.Uvarint()
	if n == 0 {
		return nil, false
	}
	n--
	shared := f.Uvarint()
	if shared > n || n > maxTokens || n-shared > uint64(f.Left()) {
		f.Fail(frame.ErrEnds)
		return nil, false
	}
	if shared == 0 {
		return f.idsInto(make([]int32, 0, n), int(n)), true
	}
	back, want := f.Uvarint(), f.Uint64()
	h, ok := d.known.byNumber[d.last-back]
	if f.Err() == nil && (!ok || back == 0 || back >= d.last || shared > uint64(h.tokens.Len())) {
		f.Fail(errNoBase)
	}
	if f.Err() != nil {
		return nil, false
	}
	prompt = h.tokens.AppendTo(make([]int32, 0, n), int(shared))
	prompt = f.idsInto(prompt, int(n-shared))
	if f.Err() == nil && sum(seed, prompt) != want {
		f.Fail(errors.New("wrong prompt checksum"))
	}
	if f.Err() == nil && h.replaced(int(shared)) {
		d.known.drop(d.last - back)
	}
	return prompt, false
}

// fields parses the values in a payload. After the first error, all values are zero.
type fields struct{ frame.Payload }

func (f *fields) asked(prompt []int32) []int32 {
	n := f.Uvarint()
	if n == 0 {
		return nil
	}
	n--
	front, back := f.Uvarint(), f.Uvarint()
	most := uint64(len(prompt))
	if front > most || back > most-front || front+back > n || n-front-back > uint64(f.Left()) {
		f.Fail(frame.ErrEnds)
		return nil
	}
	asked := append(make([]int32, 0, n), prompt[:front]...)
	asked = f.idsInto(asked, int(n-front-back))
	return append(asked, prompt[most-back:]...)
}

func (f *fields) sampling() (s Sampling) {
	for _, v := range [...]**float64{&s.Temperature, &s.TopP, &s.MinP} {
		if f.flag() {
			*v = new(math.Float64frombits(f.Uint64()))
		}
	}
	for _, v := range [...]**int64{&s.TopK, &s.MaxNewTokens, &s.Seed} {
		if f.flag() {
			*v = new(f.Varint())
		}
	}
	if n, ok := f.Len(1); ok {
		s.Stop = []string{}
		for i := 0; i < n && f.Err() == nil; i++ {
			s.Stop = append(s.Stop, f.Text())
		}
	}
	s.StopIDs = f.ids()
	return s
}

// inside parses the values from inside a call, if there are any.
func (f *fields) inside(c *Call) {
	if f.Err() != nil || f.Left() == 0 {
		return
	}
	s := &c.Experts.Shape
	for _, n := range [...]*int{&s.Layers, &s.TopK, &s.Experts} {
		*n = int(f.Uvarint() & math.MaxInt32)
	}
	if n, ok := f.Len(1); ok {
		c.Experts.IDs = append([]byte{}, f.Take(uint64(n))...)
	}
	c.SamplingMask, c.MaskLengths = f.ids(), f.ids()
}

func (f *fields) versions() []tokenize.VersionSpan {
	n, ok := f.Len(3)
	if !ok {
		return nil
	}
	spans := make([]tokenize.VersionSpan, 0, n)
	for i := 0; i < n && f.Err() == nil; i++ {
		spans = append(spans, tokenize.VersionSpan{Version: f.Text(), Start: f.Int32(), End: f.Int32()})
	}
	return spans
}

func (f *fields) ids() []int32 {
	n, ok := f.Len(1)
	if !ok {
		return nil
	}
	return f.idsInto(make([]int32, 0, n), n)
}

// idsInto parses n ids and appends them to the slice ids, which must have enough capacity.
func (f *fields) idsInto(ids []int32, n int) []int32 {
	for range n {
		v := f.Uvarint()
		if v > math.MaxUint32 {
			f.Fail(fmt.Errorf("token id %d does not fit in 32 bits", v))
		}
		if f.Err() != nil {
			return nil
		}
		ids = append(ids, int32(uint32(v)))
	}
	return ids
}

func (f *fields) flag() bool {
	b := f.Take(1)
	if b != nil && b[0] > 1 {
		f.Fail(fmt.Errorf("flag is %d, want 0 or 1", b[0]))
	}
	return b != nil && b[0] == 1
}

// nano parses a time in nanoseconds since 1970.
func (f *fields) nano() time.Time {
	v := f.Uvarint()
	if v > math.MaxInt64 {
		f.Fail(fmt.Errorf("time %d is out of range", v))
		return time.Time{}
	}
	return time.Unix(0, int64(v)).UTC()
}

// time parses a time that appendTime wrote.
func (f *fields) time(from time.Time) time.Time {
	seconds, nanos := f.Varint(), f.Uvarint()
	if nanos > 999_999_999 {
		f.Fail(fmt.Errorf("%d nanoseconds are out of range", nanos))
	}
	if f.Err() != nil {
		return time.Time{}
	}
	return time.Unix(from.Unix()+seconds, int64(nanos)).UTC()
}
