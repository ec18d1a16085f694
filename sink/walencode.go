package sink

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/rollout-rl/rollout/sink/frame"
	"github.com/rollout-rl/rollout/tokenize"
)

// This file defines the format of a sample in the write-ahead log. A sample consists of the
// fields of tokenize.Sample, Row, Failure and Divergence in declaration order. The exception is
// Sample.Unshown, which comes last as four numbers. It is omitted if all four numbers are 0. The
// format is lossless: it distinguishes a nil list from an empty list, and it preserves the bits
// of a NaN.
//
//	number     varint, zig-zag if it can be negative
//	text       length, bytes
//	list       0 if nil, else 1 + length, and the elements: int32 and float32 as
//	           four bytes each, little-endian
//	pointer    0 if nil, else 1 and the value; a float64 is eight bytes
//	bytes      as a list, one byte each
//	time       seconds since 1970, nanoseconds
//
// In most rows, the mask consists of long runs, and each log-probability is 0 if the token's mask
// is 0. Then the mask and the log-probabilities are written together:
//
//	loss_mask  0 0 0 0 0 0 1 1 1 0 0 1 1      ► 1  4 runs: 6 3 2 2, from the first 0 on
//	logprobs   0 0 0 0 0 0 a b c 0 0 d e      ►    a b c d e
//
// In other rows, a 0 and the two lists are written instead.

// walVersion is the version of the write-ahead log. A reader refuses any other version.
const walVersion = 1

// The forms in which the mask and the log-probabilities of a row are encoded.
const (
	asLists = 0
	asRuns  = 1
)

// A sampleEncoder encodes samples for the write-ahead log. It reuses the slice runs.
type sampleEncoder struct{ runs []int }

func (e *sampleEncoder) append(b []byte, s *tokenize.Sample) []byte {
	for _, text := range [...]string{s.Key, s.TaskID, s.GroupID, s.RolloutID} {
		b = frame.AppendText(b, text)
	}
	b = appendInts(b, s.Index, s.GroupSize, s.Attempt)
	b = frame.AppendLen(b, s.Rows)
	for i := range s.Rows {
		b = e.appendRow(b, &s.Rows[i])
	}
	b = frame.AppendLen(b, s.Failures)
	for i := range s.Failures {
		b = appendFailure(b, &s.Failures[i])
	}
	b = appendPointer(b, s.Reward, func(b []byte, v float64) []byte {
		return binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	})
	b = appendPointer(b, s.RewardDetails, frame.AppendText)
	b = frame.AppendText(frame.AppendText(b, s.Status), s.StopReason)
	b = appendPointer(b, s.Sampling.Temperature, appendFloat32)
	b = appendPointer(b, s.Sampling.TopP, appendFloat32)
	b = appendPointer(b, s.Sampling.TopK, appendInt)
	b = appendPointer(b, s.Sampling.MaxNewTokens, appendInt)
	b = frame.AppendText(frame.AppendText(b, s.Model), s.AgentID)
	b = appendTexts(b, s.RunIDs)
	b = binary.AppendVarint(b, s.PromptTokens)
	b = binary.AppendVarint(b, s.CompletionTokens)
	b = appendInt(b, s.Steps)
	b = binary.AppendVarint(b, s.StartedAt.Unix())
	b = binary.AppendUvarint(b, uint64(s.StartedAt.Nanosecond()))
	b = binary.AppendVarint(b, int64(s.Duration))
	b = binary.AppendVarint(b, int64(s.Working))
	b = appendPointer(b, s.Messages, frame.AppendText)
	b = appendPointer(b, s.Metadata, frame.AppendText)
	if s.Unshown == (tokenize.Unshown{}) {
		return b
	}
	for _, n := range s.Unshown.Each() {
		b = binary.AppendUvarint(b, uint64(n)) //nolint:gosec // a count
	}
	return b
}

func (e *sampleEncoder) appendRow(b []byte, r *tokenize.Row) []byte {
	b = appendInt32s(b, r.InputIDs)
	b = e.appendScored(b, r)
	b = appendInt32s(b, r.Versions)
	b = appendInside(b, r)
	b = appendInt32s(b, r.TurnOffsets)
	b = appendInt8s(b, r.TurnRoles)
	b = append(appendInts(b, r.PromptLength, r.Chain), byte(r.ChainKind))
	b = appendInts(b, r.Parent.Chain, r.Parent.Step)
	b = appendInts(b, r.SegmentIndex, r.SegmentCount)
	b = append(b, byte(r.Grade), byte(r.Source))
	b = appendPointer(b, r.Divergence, appendDivergence)
	b = frame.AppendLen(b, r.Realigned)
	for _, d := range r.Realigned {
		b = appendDivergence(b, d)
	}
	b = appendInts(b, r.Unscored, r.Trimmed)
	b = frame.AppendFlag(b, r.Truncated)
	b = binary.AppendUvarint(b, uint64(r.Flags))
	b = appendInts(b, r.FirstCall, r.LastCall)
	return appendTexts(appendTexts(b, r.FinishReasons), r.StepIDs)
}

// appendInside appends the values from inside the calls in the form of a pointer, because most rows
// have none.
func appendInside(b []byte, r *tokenize.Row) []byte {
	s := r.Experts.Shape
	if r.WeightVersions == nil && r.WeightVersionEnds == nil && s == (tokenize.ExpertShape{}) && r.Experts.IDs == nil && r.SamplingMask == nil && r.MaskLengths == nil {
		return append(b, 0)
	}
	b = appendInt32s(appendTexts(append(b, 1), r.WeightVersions), r.WeightVersionEnds)
	for _, n := range [...]int{s.Layers, s.TopK, s.Experts} {
		b = binary.AppendUvarint(b, uint64(n)) //nolint:gosec // not negative
	}
	b = append(frame.AppendLen(b, r.Experts.IDs), r.Experts.IDs...)
	return appendInt32s(appendInt32s(b, r.SamplingMask), r.MaskLengths)
}

func (e *sampleEncoder) appendScored(b []byte, r *tokenize.Row) []byte {
	if !e.findRuns(r) {
		return frame.AppendFloat32s(appendInt8s(append(b, asLists), r.LossMask), r.Logprobs)
	}
	b = binary.AppendUvarint(append(b, asRuns), uint64(len(e.runs)))
	for _, n := range e.runs {
		b = binary.AppendUvarint(b, uint64(n))
	}
	at := 0
	for i, n := range e.runs {
		if i%2 == 1 {
			b = frame.AppendFloats(b, r.Logprobs[at:at+n])
		}
		at += n
	}
	return b
}

// runBlock is the number of mask values that findRuns compares at once. Comparing single values
// would take twice as long.
const runBlock = 32

var blocks = [2][runBlock]int8{1: [runBlock]int8(slices.Repeat([]int8{1}, runBlock))}

// findRuns sets e.runs to the lengths of the runs in the mask. The first run is a run of zeros,
// which can be empty. It returns false if the row cannot be encoded in the form asRuns.
func (e *sampleEncoder) findRuns(r *tokenize.Row) bool {
	mask, logprobs := r.LossMask, r.Logprobs
	if len(mask) != len(r.InputIDs) || len(logprobs) != len(mask) || mask == nil || logprobs == nil {
		return false
	}
	e.runs = e.runs[:0]
	want := int8(0)
	for at := 0; at < len(mask); want ^= 1 {
		end := at
		for end+runBlock <= len(mask) && [runBlock]int8(mask[end:]) == blocks[want] {
			end += runBlock
		}
		for end < len(mask) && mask[end] == want {
			end++
		}
		if end == at && at > 0 {
			return false // the mask value is neither 0 nor 1
		}
		if want == 0 {
			var bits uint32
			for _, lp := range logprobs[at:end] {
				bits |= math.Float32bits(lp)
			}
			if bits != 0 {
				return false
			}
		}
		e.runs = append(e.runs, end-at)
		if end == at && mask[at] != 1 {
			return false
		}
		at = end
	}
	return true
}

func appendFailure(b []byte, f *tokenize.Failure) []byte {
	for _, text := range [...]string{f.Class, f.Stage, f.Reason, f.Error} {
		b = frame.AppendText(b, text)
	}
	b = appendInt(b, f.Call)
	b = frame.AppendFloat32s(appendInt32s(b, f.OutputIDs), f.Logprobs)
	return frame.AppendText(b, f.Text)
}

func appendDivergence(b []byte, d tokenize.Divergence) []byte {
	b = append(appendInts(b, d.Call, d.Offset), byte(d.Kind))
	return appendInt32s(appendInt32s(b, d.Row), d.Prompt)
}

func appendPointer[T any](b []byte, v *T, value func([]byte, T) []byte) []byte {
	if v == nil {
		return append(b, 0)
	}
	return value(append(b, 1), *v)
}

func appendInt(b []byte, v int32) []byte { return binary.AppendVarint(b, int64(v)) }

func appendInts(b []byte, values ...int32) []byte {
	for _, v := range values {
		b = appendInt(b, v)
	}
	return b
}

func appendFloat32(b []byte, v float32) []byte {
	return binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
}

func appendTexts(b []byte, list []string) []byte {
	b = frame.AppendLen(b, list)
	for _, s := range list {
		b = frame.AppendText(b, s)
	}
	return b
}

func appendInt8s(b []byte, list []int8) []byte {
	b = slices.Grow(frame.AppendLen(b, list), len(list))
	for _, v := range list {
		b = append(b, byte(v))
	}
	return b
}

func appendInt32s(b []byte, list []int32) []byte {
	b = slices.Grow(frame.AppendLen(b, list), 4*len(list))
	at := len(b)
	b = b[:at+4*len(list)]
	for to := b[at:]; len(list) > 0 && len(to) >= 4; to, list = to[4:], list[1:] {
		binary.LittleEndian.PutUint32(to, uint32(list[0]))
	}
	return b
}
