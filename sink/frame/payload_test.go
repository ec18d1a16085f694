package frame_test

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/rollout-rl/rollout/sink/frame"
)

// TestPayload tests that values decode as written, and that a cut payload gives an error, then zeros.
func TestPayload(t *testing.T) {
	t.Parallel()
	b := binary.AppendUvarint(nil, 1<<40)
	b = binary.AppendVarint(b, -77)
	b = append(binary.AppendUvarint(b, 4), "text"...)
	b = binary.LittleEndian.AppendUint64(b, 1<<63|5)
	b = append(b, 9)
	b = binary.AppendUvarint(b, 3) // two
	for _, f := range []float32{-0.5, float32(math.Inf(-1))} {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	b = append(b, 0) // a nil list
	for n := range len(b) + 1 {
		p := frame.PayloadOf(b[:n])
		u, v, text, word, one, list, none := p.Uvarint(), p.Varint(), p.Text(), p.Uint64(), p.Byte(), p.Float32s(), p.Float32s()
		if n < len(b) {
			if !errors.Is(p.End(), frame.ErrEnds) || p.Left() != 0 || p.Uvarint() != 0 || p.Take(0) != nil && len(p.Take(0)) > 0 || p.Text() != "" || p.Byte() != 0 {
				t.Errorf("%d bytes: %v", n, p.Err())
			}
			if n < len(b)-1 && list != nil {
				t.Errorf("%d bytes: a list of %d that is not whole", n, len(list))
			}
			continue
		}
		if err := p.End(); err != nil || u != 1<<40 || v != -77 || text != "text" || word != 1<<63|5 || one != 9 || len(list) != 2 || list[0] != -0.5 || !math.IsInf(float64(list[1]), -1) || none != nil {
			t.Errorf("%v: %d %d %q %d %d %v %v", err, u, v, text, word, one, list, none)
		}
	}
	p := frame.PayloadOf(b)
	if _ = p.Uvarint(); p.End() == nil || p.Left() != 0 {
		t.Error("no error for extra bytes")
	}
	p = frame.PayloadOf(binary.AppendVarint(binary.AppendVarint(nil, math.MinInt32), math.MaxInt32+1))
	if low, high := p.Int32(), p.Int32(); low != math.MinInt32 || high != 0 || p.Err() == nil || errors.Is(p.Err(), frame.ErrEnds) {
		t.Errorf("%d, %d, %v", low, high, p.Err())
	}
	large := binary.AppendUvarint(nil, math.MaxUint64)
	p = frame.PayloadOf(large)
	if n, ok := p.Len(4); ok || n != 0 || !errors.Is(p.Err(), frame.ErrEnds) {
		t.Errorf("a list of %d", n)
	}
	p = frame.PayloadOf(large)
	if text := p.Text(); text != "" || !errors.Is(p.Err(), frame.ErrEnds) {
		t.Errorf("a text of %d", len(text))
	}
	p, first := frame.PayloadOf(nil), errors.New("first")
	p.Fail(first)
	if p.Fail(errors.New("second")); !errors.Is(p.Err(), first) {
		t.Errorf("the error is %v", p.Err())
	}
}

// TestAppend tests the bytes of the values that are appended.
func TestAppend(t *testing.T) {
	t.Parallel()
	b := []byte("before")
	b = frame.AppendText(b, "text")
	b = frame.AppendLen(b, []string(nil))
	b = frame.AppendLen(b, []string{})
	b = frame.AppendLen(b, make([]string, 200))
	b = frame.AppendFlag(frame.AppendFlag(b, true), false)
	b = frame.AppendFloats(b, []float32{-0.5})
	b = frame.AppendFloat32s(b, []float32{-0.5, math.Float32frombits(0x7fc00001)})
	b = frame.AppendFloat32s(frame.AppendFloat32s(b, []float32{}), nil)
	want := "before" + "\x04text" + "\x00" + "\x01" + "\xc9\x01" + "\x01\x00" + "\x00\x00\x00\xbf" + "\x03\x00\x00\x00\xbf\x01\x00\xc0\x7f" + "\x01\x00"
	if string(b) != want {
		t.Errorf("got %q, want %q", b, want)
	}
}
