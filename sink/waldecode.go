package sink

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/rollout-rl/rollout/sink/frame"
	"github.com/rollout-rl/rollout/tokenize"
)

// decodeSample is the inverse of sampleEncoder.append. The returned sample does not share memory
// with b.
func decodeSample(b []byte) (*tokenize.Sample, error) {
	d := &sampleDecoder{frame.PayloadOf(b)}
	s := d.sample()
	if err := d.End(); err != nil {
		return nil, fmt.Errorf("cannot decode the sample: %w", err)
	}
	return s, nil
}

// A sampleDecoder decodes the values of a sample. After the first error, all methods return zero
// values.
type sampleDecoder struct{ frame.Payload }

func (d *sampleDecoder) sample() *tokenize.Sample {
	s := &tokenize.Sample{Key: d.Text(), TaskID: d.Text(), GroupID: d.Text(), RolloutID: d.Text()}
	s.Index, s.GroupSize, s.Attempt = d.Int32(), d.Int32(), d.Int32()
	s.Rows = takeList(d, (*sampleDecoder).row)
	s.Failures = takeList(d, (*sampleDecoder).failure)
	s.Reward = takePointer(d, func(d *sampleDecoder) float64 { return math.Float64frombits(d.Uint64()) })
	s.RewardDetails = takePointer(d, (*sampleDecoder).Text)
	s.Status, s.StopReason = d.Text(), d.Text()
	s.Sampling.Temperature = takePointer(d, (*sampleDecoder).float32)
	s.Sampling.TopP = takePointer(d, (*sampleDecoder).float32)
	s.Sampling.TopK = takePointer(d, (*sampleDecoder).Int32)
	s.Sampling.MaxNewTokens = takePointer(d, (*sampleDecoder).Int32)
	s.Model, s.AgentID = d.Text(), d.Text()
	s.RunIDs = takeList(d, (*sampleDecoder).Text)
	s.PromptTokens, s.CompletionTokens = d.Varint(), d.Varint()
	s.Steps = d.Int32()
	seconds := d.Varint()
	s.StartedAt = time.Unix(seconds, int64(d.Uvarint()&math.MaxInt32)).UTC()
	s.Duration, s.Working = time.Duration(d.Varint()), time.Duration(d.Varint())
	s.Messages = takePointer(d, (*sampleDecoder).Text)
	s.Metadata = takePointer(d, (*sampleDecoder).Text)
	if d.Err() == nil && d.Left() > 0 {
		for word := range s.Unshown.Each() {
			s.Unshown.Set(word, int(d.Uvarint()&math.MaxUint16))
		}
	}
	return s
}

func (d *sampleDecoder) row() (r tokenize.Row) {
	r.InputIDs = d.int32s()
	d.scored(&r)
	r.Versions = d.int32s()
	d.inside(&r)
	r.TurnOffsets = d.int32s()
	r.TurnRoles = d.int8s()
	r.PromptLength, r.Chain, r.ChainKind = d.Int32(), d.Int32(), tokenize.ChainKind(d.Byte())
	r.Parent.Chain, r.Parent.Step = d.Int32(), d.Int32()
	r.SegmentIndex, r.SegmentCount = d.Int32(), d.Int32()
	r.Grade, r.Source = tokenize.Grade(d.Byte()), tokenize.PromptSource(d.Byte())
	r.Divergence = takePointer(d, (*sampleDecoder).divergence)
	r.Realigned = takeList(d, (*sampleDecoder).divergence)
	r.Unscored, r.Trimmed = d.Int32(), d.Int32()
	r.Truncated = d.Byte() == 1
	r.Flags = tokenize.Flags(d.Uvarint())
	r.FirstCall, r.LastCall = d.Int32(), d.Int32()
	r.FinishReasons = takeList(d, (*sampleDecoder).Text)
	r.StepIDs = takeList(d, (*sampleDecoder).Text)
	return r
}

// inside decodes what appendInside wrote.
func (d *sampleDecoder) inside(r *tokenize.Row) {
	if d.Byte() == 0 {
		return
	}
	r.WeightVersions, r.WeightVersionEnds = takeList(d, (*sampleDecoder).Text), d.int32s()
	s := &r.Experts.Shape
	for _, n := range [...]*int{&s.Layers, &s.TopK, &s.Experts} {
		*n = int(d.Uvarint() & math.MaxInt32)
	}
	if n, ok := d.Len(1); ok {
		r.Experts.IDs = append([]byte{}, d.Take(uint64(n))...) //nolint:gosec // not negative
	}
	r.SamplingMask, r.MaskLengths = d.int32s(), d.int32s()
}

// scored is the inverse of appendScored.
func (d *sampleDecoder) scored(r *tokenize.Row) {
	if d.Byte() == asLists {
		r.LossMask, r.Logprobs = d.int8s(), d.Float32s()
		return
	}
	n := d.Uvarint()
	if n > uint64(d.Left()) {
		d.Fail(frame.ErrEnds)
		return
	}
	runs := make([]int, n)
	left := len(r.InputIDs)
	for i := range runs {
		v := d.Uvarint()
		if v > uint64(left) {
			d.Fail(fmt.Errorf("the mask runs cover more than the row's %d tokens", len(r.InputIDs)))
			return
		}
		runs[i] = int(v)
		left -= int(v)
	}
	if left > 0 {
		d.Fail(fmt.Errorf("the mask runs cover %d of the row's %d tokens", len(r.InputIDs)-left, len(r.InputIDs)))
		return
	}
	r.LossMask, r.Logprobs = make([]int8, len(r.InputIDs)), make([]float32, len(r.InputIDs))
	at := 0
	for i, n := range runs {
		if i%2 == 1 {
			for k := range r.LossMask[at : at+n] {
				r.LossMask[at+k] = 1
			}
			d.Floats(r.Logprobs[at : at+n])
		}
		at += n
	}
}

func (d *sampleDecoder) failure() (f tokenize.Failure) {
	f.Class, f.Stage, f.Reason, f.Error = d.Text(), d.Text(), d.Text(), d.Text()
	f.Call = d.Int32()
	f.OutputIDs, f.Logprobs = d.int32s(), d.Float32s()
	f.Text = d.Text()
	return f
}

func (d *sampleDecoder) divergence() (v tokenize.Divergence) {
	v.Call, v.Offset = d.Int32(), d.Int32()
	v.Kind = tokenize.DivergenceKind(d.Byte())
	v.Row, v.Prompt = d.int32s(), d.int32s()
	return v
}

func takePointer[T any](d *sampleDecoder, value func(*sampleDecoder) T) *T {
	if d.Byte() == 0 {
		return nil
	}
	return new(value(d))
}

// takeList decodes a list. It does not allocate the whole list at once, because the length in the
// payload can be wrong.
func takeList[T any](d *sampleDecoder, value func(*sampleDecoder) T) []T {
	n := d.Uvarint()
	if n == 0 {
		return nil
	}
	list := []T{}
	for range n - 1 {
		v := value(d)
		if d.Err() != nil {
			return nil
		}
		list = append(list, v)
	}
	return list
}

func (d *sampleDecoder) float32() float32 {
	var v [1]float32
	d.Floats(v[:])
	return v[0]
}

func (d *sampleDecoder) int8s() []int8 {
	n, ok := d.Len(1)
	if !ok {
		return nil
	}
	list := make([]int8, n)
	for i, v := range d.Take(uint64(n)) {
		list[i] = int8(v)
	}
	return list
}

func (d *sampleDecoder) int32s() []int32 {
	n, ok := d.Len(4)
	if !ok {
		return nil
	}
	list := make([]int32, n)
	b := d.Take(4 * uint64(n))
	for i := range list {
		list[i] = int32(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return list
}
