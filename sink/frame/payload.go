package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// A Payload decodes values from the front of a frame's payload:
//
//	uvarint, varint   as in encoding/binary; signed numbers are zig-zag
//	text              length (uvarint), bytes
//	list              0 if nil, else 1 + length (uvarint), and the elements
//	float32           four bytes, little-endian; a NaN keeps its bits
//
// The functions AppendText, AppendLen, AppendFlag, AppendFloats and AppendFloat32s encode such
// values. After the first error, all methods return zero values. A Payload does not trust lengths: a length
// that exceeds the rest of the payload causes an error. The zero Payload is empty.
type Payload struct {
	b   []byte
	err error
}

// ErrEnds means that a payload ends before a value is complete.
var ErrEnds = errors.New("unexpected end of the payload")

// PayloadOf returns a Payload that decodes b without copying it.
func PayloadOf(b []byte) Payload { return Payload{b: b} }

// Left returns the number of bytes that have not yet been decoded, or 0 after an error.
func (p *Payload) Left() int { return len(p.b) }

// Err returns the first error.
func (p *Payload) Err() error { return p.err }

// Fail records err as the first error. If an error has already been recorded, Fail does nothing.
func (p *Payload) Fail(err error) {
	if p.err == nil {
		p.err = err
	}
	p.b = nil
}

// End returns the first error. If there was no error but bytes are left, End returns an error.
func (p *Payload) End() error {
	if p.err == nil && len(p.b) > 0 {
		p.Fail(fmt.Errorf("%d extra bytes", len(p.b)))
	}
	return p.err
}

// Take returns the next n bytes, or nil if fewer are left. The bytes share the memory of the
// payload.
func (p *Payload) Take(n uint64) []byte {
	if n > uint64(len(p.b)) {
		p.Fail(ErrEnds)
		return nil
	}
	b := p.b[:n:n]
	p.b = p.b[n:]
	return b
}

// Byte returns the next byte.
func (p *Payload) Byte() byte {
	b := p.Take(1)
	if b == nil {
		return 0
	}
	return b[0]
}

// Uvarint returns the next unsigned number.
func (p *Payload) Uvarint() uint64 {
	v, n := binary.Uvarint(p.b)
	if n <= 0 {
		p.Fail(ErrEnds)
		return 0
	}
	p.b = p.b[n:]
	return v
}

// Varint returns the next signed number.
func (p *Payload) Varint() int64 {
	v, n := binary.Varint(p.b)
	if n <= 0 {
		p.Fail(ErrEnds)
		return 0
	}
	p.b = p.b[n:]
	return v
}

// Int32 returns the next signed number, which must fit in 32 bits.
func (p *Payload) Int32() int32 {
	v := p.Varint()
	if v != int64(int32(v)) { //nolint:gosec // a truncated value differs from v
		p.Fail(fmt.Errorf("%d does not fit in 32 bits", v))
		return 0
	}
	return int32(v)
}

// Uint64 returns the next eight bytes as a little-endian number.
func (p *Payload) Uint64() uint64 {
	b := p.Take(8)
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

// Text returns the next string. The string does not share memory with the payload.
func (p *Payload) Text() string { return string(p.Take(p.Uvarint())) }

// Len returns the length of the next list. width is the minimum size of an element in bytes. If the
// list is nil or the payload ends too early, ok is false.
func (p *Payload) Len(width int) (n int, ok bool) {
	v := p.Uvarint()
	if v == 0 {
		return 0, false
	}
	if v--; v > uint64(len(p.b)/width) {
		p.Fail(ErrEnds)
		return 0, false
	}
	return int(v), true //nolint:gosec // v is at most the number of bytes left
}

// Floats fills dst with the next len(dst) float32 values.
func (p *Payload) Floats(dst []float32) {
	b := p.Take(4 * uint64(len(dst)))
	for i := range dst {
		if len(b) < 4 {
			return
		}
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(b))
		b = b[4:]
	}
}

// Float32s returns the next list of float32 values.
func (p *Payload) Float32s() []float32 {
	n, ok := p.Len(4)
	if !ok {
		return nil
	}
	list := make([]float32, n)
	p.Floats(list)
	return list
}

// AppendText appends a string. [Payload.Text] decodes it.
func AppendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// AppendLen appends the length of a list. The caller must append the elements. [Payload.Len] decodes
// the length.
func AppendLen[T any](b []byte, list []T) []byte {
	if list == nil {
		return append(b, 0)
	}
	return binary.AppendUvarint(b, uint64(len(list))+1)
}

// AppendFlag appends the byte 1 if v is true, otherwise the byte 0.
func AppendFlag(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// AppendFloats appends float32 values without their number. [Payload.Floats] decodes them.
func AppendFloats(b []byte, values []float32) []byte {
	at := len(b)
	b = slices.Grow(b, 4*len(values))[:at+4*len(values)]
	for to := b[at:]; len(values) > 0 && len(to) >= 4; to, values = to[4:], values[1:] {
		binary.LittleEndian.PutUint32(to, math.Float32bits(values[0]))
	}
	return b
}

// AppendFloat32s appends a list of float32 values. [Payload.Float32s] decodes it.
func AppendFloat32s(b []byte, list []float32) []byte { return AppendFloats(AppendLen(b, list), list) }
