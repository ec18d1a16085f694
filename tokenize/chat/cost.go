package chat

import "math"

// Every operation pays in advance for its work and its memory. Work is paid for in steps, in
// proportion to the number of bytes or elements that the operation visits. Memory is paid for in
// bytes. Therefore the limits of a render bound the time and memory of the render, whatever the
// template does.

const (
	// valueBytes is the cost of a Value in a slice, and listBytes is the fixed cost of a list or
	// tuple.
	valueBytes = 48
	listBytes  = 64
	// entryBytes is the cost of a dict entry, including the growth of the dict.
	entryBytes = 5 * valueBytes
	// objectBytes is the cost of a generator, a method or another small object.
	objectBytes = 160
)

// step pays for one unit of work.
func (r *run) step() error {
	r.steps--
	if r.steps < 0 {
		return limitErrorf("more than %d evaluation steps", r.t.opts.MaxSteps)
	}
	return nil
}

// pay pays for n units of work and for the given number of bytes of memory.
func (r *run) pay(n, bytes int) error {
	r.steps -= int64(n)
	r.bytes -= int64(bytes)
	if r.steps < 0 {
		return limitErrorf("more than %d evaluation steps", r.t.opts.MaxSteps)
	}
	if r.bytes < 0 {
		return r.tooLarge()
	}
	return nil
}

// times returns n × size, capped at the largest int, so the product cannot overflow on 32-bit
// platforms.
func times(n, size int) int { return int(min(int64(n)*int64(size), math.MaxInt)) }

func (r *run) tooLarge() error {
	return limitErrorf("values of more than %d bytes in total", r.t.opts.MaxValueBytes)
}

// checkMemory returns an error if the run cannot pay for n more bytes. It only checks and does not
// pay.
func (r *run) checkMemory(n int64) error {
	if n > r.bytes {
		return r.tooLarge()
	}
	return nil
}

// payScan pays for a search in n bytes.
func (r *run) payScan(n int) error { return r.pay(n>>5, 0) }

// payRead pays for reading n bytes character by character.
func (r *run) payRead(n int) error { return r.pay(n>>4, 0) }

// payText pays for creating n bytes of text and reading each character.
func (r *run) payText(n int) error { return r.pay(n>>4, n) }

// checkSize returns an error if appending n bytes to dst would exceed the size limit for text.
func (r *run) checkSize(dst []byte, n int) error {
	if len(dst)-r.base+n > r.t.opts.MaxOutputBytes {
		return limitErrorf("text of more than %d bytes", r.t.opts.MaxOutputBytes)
	}
	return nil
}

// A listBuilder collects the elements of a list and pays for them.
type listBuilder struct {
	r     *run
	items []Value
}

func (b *listBuilder) add(v Value) error {
	bytes := 0
	if len(b.items) == cap(b.items) {
		bytes = valueBytes * max(4, 2*cap(b.items))
	}
	if err := b.r.pay(1, bytes); err != nil {
		return err
	}
	if bytes > 0 {
		b.items = append(make([]Value, 0, bytes/valueBytes), b.items...)
	}
	b.items = append(b.items, v)
	return nil
}

type textBuilder struct {
	r *run
	b []byte
}

func (b *textBuilder) add(s string) error {
	if need := len(b.b) + len(s); need > cap(b.b) {
		size := max(2*cap(b.b), need)
		if err := b.r.pay(0, size); err != nil {
			return err
		}
		b.b = append(make([]byte, 0, size), b.b...)
	}
	b.b = append(b.b, s...)
	return b.r.pay(len(s)>>8, 0)
}
