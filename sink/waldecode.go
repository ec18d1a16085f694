package sink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// decodeSample is the inverse of sampleEncoder.append. The sample owns its memory.
func decodeSample(b []byte) (*tokenize.Sample, error) {
	d := &sampleDecoder{b: b}
	s := d.sample()
	if d.err == nil && len(d.b) > 0 {
		d.err = fmt.Errorf("%d bytes behind the sample", len(d.b))
	}
	if d.err != nil {
		return nil, fmt.Errorf("no sample: %w", d.err)
	}
	return s, nil
}

// A sampleDecoder takes values off b. After the first error all are zero.
type sampleDecoder struct {
	b   []byte
	err error
}

var errSampleEnds = errors.New("it ends too early")

func (d *sampleDecoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.b = nil
}

func (d *sampleDecoder) sample() *tokenize.Sample {
	s := &tokenize.Sample{Key: d.text(), TaskID: d.text(), GroupID: d.text(), RolloutID: d.text()}
	s.Index, s.GroupSize, s.Attempt = d.int(), d.int(), d.int()
	s.Rows = takeList(d, (*sampleDecoder).row)
	s.Failures = takeList(d, (*sampleDecoder).failure)
	s.Reward = takePointer(d, func(d *sampleDecoder) float64 {
		b := d.take(8)
		if b == nil {
			return 0
		}
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	})
	s.RewardDetails = takePointer(d, (*sampleDecoder).text)
	s.Status, s.StopReason = d.text(), d.text()
	s.Sampling.Temperature = takePointer(d, (*sampleDecoder).float32)
	s.Sampling.TopP = takePointer(d, (*sampleDecoder).float32)
	s.Sampling.TopK = takePointer(d, (*sampleDecoder).int)
	s.Sampling.MaxNewTokens = takePointer(d, (*sampleDecoder).int)
	s.Model, s.AgentID = d.text(), d.text()
	s.RunIDs = takeList(d, (*sampleDecoder).text)
	s.PromptTokens, s.CompletionTokens = d.varint(), d.varint()
	s.Steps = d.int()
	seconds := d.varint()
	s.StartedAt = time.Unix(seconds, int64(d.uvarint()&math.MaxInt32)).UTC()
	s.Duration, s.Working = time.Duration(d.varint()), time.Duration(d.varint())
	s.Messages = takePointer(d, (*sampleDecoder).text)
	s.Metadata = takePointer(d, (*sampleDecoder).text)
	return s
}

func (d *sampleDecoder) row() (r tokenize.Row) {
	r.InputIDs = d.int32s()
	d.scored(&r)
	r.Versions = d.int32s()
	r.TurnOffsets = d.int32s()
	r.TurnRoles = d.int8s()
	r.PromptLength, r.SegmentIndex, r.SegmentCount = d.int(), d.int(), d.int()
	r.Grade, r.Source = tokenize.Grade(d.byte()), tokenize.PromptSource(d.byte())
	r.Divergence = takePointer(d, (*sampleDecoder).divergence)
	r.Realigned = takeList(d, (*sampleDecoder).divergence)
	r.Unscored, r.Trimmed = d.int(), d.int()
	r.Truncated = d.byte() == 1
	r.Flags = tokenize.Flags(d.uvarint())
	r.FirstCall, r.LastCall = d.int(), d.int()
	r.FinishReasons = takeList(d, (*sampleDecoder).text)
	r.StepIDs = takeList(d, (*sampleDecoder).text)
	return r
}

// scored is the inverse of appendScored.
func (d *sampleDecoder) scored(r *tokenize.Row) {
	if d.byte() == asLists {
		r.LossMask, r.Logprobs = d.int8s(), d.float32s()
		return
	}
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.fail(errSampleEnds)
		return
	}
	runs := make([]int, n)
	left := len(r.InputIDs)
	for i := range runs {
		v := d.uvarint()
		if v > uint64(left) {
			d.fail(fmt.Errorf("runs of more than %d tokens", len(r.InputIDs)))
			return
		}
		runs[i] = int(v)
		left -= int(v)
	}
	if left > 0 {
		d.fail(fmt.Errorf("runs of %d tokens fewer than %d", left, len(r.InputIDs)))
		return
	}
	r.LossMask, r.Logprobs = make([]int8, len(r.InputIDs)), make([]float32, len(r.InputIDs))
	at := 0
	for i, n := range runs {
		if i%2 == 1 {
			for k := range r.LossMask[at : at+n] {
				r.LossMask[at+k] = 1
			}
			d.floats(r.Logprobs[at : at+n])
		}
		at += n
	}
}

func (d *sampleDecoder) failure() (f tokenize.Failure) {
	f.Class, f.Stage, f.Reason, f.Error = d.text(), d.text(), d.text(), d.text()
	f.Call = d.int()
	f.OutputIDs, f.Logprobs = d.int32s(), d.float32s()
	f.Text = d.text()
	return f
}

func (d *sampleDecoder) divergence() (v tokenize.Divergence) {
	v.Call, v.Offset = d.int(), d.int()
	v.Kind = tokenize.DivergenceKind(d.byte())
	v.Row, v.Prompt = d.int32s(), d.int32s()
	return v
}

func takePointer[T any](d *sampleDecoder, value func(*sampleDecoder) T) *T {
	if d.byte() == 0 {
		return nil
	}
	return new(value(d))
}

// takeList grows the list as it goes: its length is not believed.
func takeList[T any](d *sampleDecoder, value func(*sampleDecoder) T) []T {
	n := d.uvarint()
	if n == 0 {
		return nil
	}
	list := []T{}
	for range n - 1 {
		v := value(d)
		if d.err != nil {
			return nil
		}
		list = append(list, v)
	}
	return list
}

// take returns the next n bytes, or nil.
func (d *sampleDecoder) take(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.fail(errSampleEnds)
		return nil
	}
	b := d.b[:n:n]
	d.b = d.b[n:]
	return b
}

func (d *sampleDecoder) byte() byte {
	b := d.take(1)
	if b == nil {
		return 0
	}
	return b[0]
}

func (d *sampleDecoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail(errSampleEnds)
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *sampleDecoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail(errSampleEnds)
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *sampleDecoder) int() int32 { return int32(d.varint()) }

func (d *sampleDecoder) text() string { return string(d.take(d.uvarint())) }

func (d *sampleDecoder) float32() float32 {
	var v [1]float32
	d.floats(v[:])
	return v[0]
}

// floats fills dst.
func (d *sampleDecoder) floats(dst []float32) {
	b := d.take(4 * uint64(len(dst)))
	for i := range dst {
		if len(b) < 4 {
			return
		}
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(b))
		b = b[4:]
	}
}

// length returns that of a list whose elements have width bytes each; ok is false
// for nil.
func (d *sampleDecoder) length(width uint64) (n uint64, ok bool) {
	n = d.uvarint()
	if n == 0 {
		return 0, false
	}
	if n--; n > uint64(len(d.b))/width {
		d.fail(errSampleEnds)
		return 0, false
	}
	return n, true
}

func (d *sampleDecoder) int8s() []int8 {
	n, ok := d.length(1)
	if !ok {
		return nil
	}
	list := make([]int8, n)
	for i, v := range d.take(n) {
		list[i] = int8(v)
	}
	return list
}

func (d *sampleDecoder) int32s() []int32 {
	n, ok := d.length(4)
	if !ok {
		return nil
	}
	list := make([]int32, n)
	b := d.take(4 * n)
	for i := range list {
		list[i] = int32(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return list
}

func (d *sampleDecoder) float32s() []float32 {
	n, ok := d.length(4)
	if !ok {
		return nil
	}
	list := make([]float32, n)
	d.floats(list)
	return list
}
