package tokenize

import (
	"io"
	"strconv"
	"strings"
)

// The decoder is spread over
//
//	decoder.go          the type, its buffer, errors
//	decode_reply.go     the reply object, turns, the fields of a turn
//	decode_ids.go       lists of ids
//	decode_logprobs.go  lists of [logprob, id, …]
//	decode_number.go    numbers: grammar, exact float32
//	decode_string.go    strings: UTF-8, escapes
//	decode_skip.go      values that nobody wants, checked all the same
//
// Lists and strings have a fast path over a window of the buffer, eight bytes at a
// time, and a plain one for whatever the fast path does not know. A fast path only
// ever accepts what the plain one accepts, with the same value: it has no errors of
// its own, so offsets and messages come from one place.

// DecoderConfig bounds what a Decoder accepts. The zero value means the defaults.
type DecoderConfig struct {
	// MaxReplyBytes bounds the length of a reply. Default 128 MiB: a reply of the
	// recorded shape takes some 80 to 130 bytes per sampled token.
	MaxReplyBytes int64
	// MaxTokens bounds the ids of a reply, prompts and both lists of a turn
	// counted. Default 1<<24.
	MaxTokens int
	// MaxTurns bounds the number of turns. Default 65,536.
	MaxTurns int
	// MaxDepth bounds the nesting of arrays and objects. Default 256.
	MaxDepth int
	// MaxRestBytes bounds Reply.Rest. Default 32 MiB.
	MaxRestBytes int
	// ChunkBytes is the size of the read buffer of Decode, at least 4 KiB.
	// Default 128 KiB. Decoding itself is as fast with 16 KiB; fewer reads from a
	// connection save about 2 % of the CPU of a reply of 600 KB over 64 KiB.
	ChunkBytes int
}

func (c DecoderConfig) withDefaults() DecoderConfig {
	set := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	if c.MaxReplyBytes <= 0 {
		c.MaxReplyBytes = 128 << 20
	}
	set(&c.MaxTokens, 1<<24)
	set(&c.MaxTurns, 1<<16)
	set(&c.MaxDepth, 256)
	set(&c.MaxRestBytes, 32<<20)
	set(&c.ChunkBytes, 128<<10)
	c.ChunkBytes = max(c.ChunkBytes, minChunkBytes)
	return c
}

const (
	// minChunkBytes leaves room for the longest number and the widest look-ahead.
	minChunkBytes = 4 << 10
	// maxNumberBytes is far above what any writer prints (24 for a double), and
	// bounds the only token that must lie in the buffer as a whole.
	maxNumberBytes = 1 << 10
	// maxKeyBytes is how much of a key is kept for comparing and for Path.
	maxKeyBytes = 64
)

// A Decoder reads replies of a Letta server into a Reply. It keeps one read buffer
// of ChunkBytes and may be used for any number of replies, one at a time; it is
// not safe for concurrent use: give each worker its own.
//
// The syntax is checked to the last byte, also of what is skipped: JSON's grammar
// (no leading zeros, no control characters in strings, nothing after the object)
// and UTF-8. The meaning is not: lists of different lengths, a log-probability of
// another token, null lists are reported on the Turn, because one bad turn
// condemns its sample and says nothing about the server.
type Decoder struct {
	cfg DecoderConfig

	buf  []byte // buf[i:n] is read and not yet consumed: 0 ≤ i ≤ n ≤ len(buf)
	i, n int
	base int64 // offset of buf[0] within the reply
	own  []byte
	r    io.Reader

	eof     bool  // nothing comes after buf[:n] …
	over    bool  // … because the reply is longer than MaxReplyBytes
	readErr error // … because r failed

	keep     int  // where in buf the bytes begin that belong to Rest, or -1
	restOver bool // Rest would exceed MaxRestBytes

	// long is the last long string that was skipped, with its closing quote, as long as it is
	// in buf. Servers send the arguments and the result of a call twice, in deprecated members
	// too: the second time they are compared, which takes a tenth of checking them.
	long []byte

	key []byte // the last key, at most maxKeyBytes of it
	out *Reply

	slowFloats int
}

// NewDecoder returns a Decoder with the given limits.
func NewDecoder(cfg DecoderConfig) *Decoder {
	return &Decoder{cfg: cfg.withDefaults(), key: make([]byte, 0, maxKeyBytes)}
}

// Decode reads one reply from r up to its end into dst, which it resets first. The
// result does not depend on how r chops the bytes. After an error dst is empty and
// the Decoder can be used again.
//
// Errors: *DecodeError for bytes that are not a reply, *ReadError where r failed.
func (d *Decoder) Decode(r io.Reader, dst *Reply) error {
	if d.own == nil {
		d.own = make([]byte, d.cfg.ChunkBytes)
	}
	d.buf, d.n, d.r = d.own, 0, r
	d.eof, d.over = false, false
	return d.run(dst)
}

// DecodeBytes is Decode for a reply that is in memory. It does not change b and
// keeps no reference to it.
func (d *Decoder) DecodeBytes(b []byte, dst *Reply) error {
	d.over = int64(len(b)) > d.cfg.MaxReplyBytes
	if d.over {
		b = b[:d.cfg.MaxReplyBytes]
	}
	d.buf, d.n, d.eof = b, len(b), true
	return d.run(dst)
}

// SlowFloats returns how many log-probabilities of the last reply had to be
// converted by strconv. It is a property of the bytes, not of their chopping. On
// real replies it is below one in a thousand; more means that the fast conversion
// has stopped matching what the server prints.
func (d *Decoder) SlowFloats() int { return d.slowFloats }

func (d *Decoder) run(dst *Reply) error {
	dst.Reset()
	d.i, d.base, d.readErr = 0, 0, nil
	d.keep, d.restOver, d.slowFloats = -1, false, 0
	d.out = dst
	err := d.reply()
	if err == nil {
		dst.Bytes = d.base + int64(d.n)
		dst.settle()
	} else {
		dst.Reset()
	}
	d.out, d.r, d.buf, d.long, d.readErr = nil, nil, nil, nil, nil
	return err
}

// fill reads more bytes behind buf[:n]; false where there are none. It may move
// buf[i:n], so positions in buf are only kept relative to i.
func (d *Decoder) fill() bool {
	if d.eof {
		return false
	}
	if len(d.buf)-d.n < len(d.buf)/4 {
		d.flushRest()
		d.base += int64(d.i)
		d.long = nil
		d.n = copy(d.buf, d.buf[d.i:d.n])
		d.i = 0
	}
	for range 100 {
		k, err := d.r.Read(d.buf[d.n:])
		d.n += k
		if over := d.base + int64(d.n) - d.cfg.MaxReplyBytes; over > 0 {
			d.n -= int(over)
			k -= int(over)
			d.over, d.eof = true, true
		} else if err != nil {
			d.eof = true
			if err != io.EOF {
				d.readErr = err
			}
		}
		if k > 0 || d.eof {
			return k > 0
		}
	}
	d.eof, d.readErr = true, io.ErrNoProgress
	return false
}

// need tries to have k unread bytes in the buffer.
func (d *Decoder) need(k int) bool {
	for d.n-d.i < k {
		if !d.fill() {
			return false
		}
	}
	return true
}

// flushRest moves what belongs to Rest out of a buffer that is about to change.
func (d *Decoder) flushRest() {
	if d.keep < 0 {
		return
	}
	b := d.buf[d.keep:d.i]
	if len(d.out.Rest)+len(b) > d.cfg.MaxRestBytes {
		d.restOver = true
	} else if !d.restOver {
		d.out.Rest = append(d.out.Rest, b...)
	}
	d.keep = 0 // buf[i] moves there
}

// space skips white space and returns the byte behind it without consuming it: 0
// at the end of the input, 1 for a control character.
func (d *Decoder) space() byte {
	for {
		for d.i < d.n {
			c := d.buf[d.i]
			if c > ' ' {
				return c
			}
			if c != ' ' && c != '\n' && c != '\t' && c != '\r' {
				return 1
			}
			d.i++
		}
		if !d.fill() {
			return 0
		}
	}
}

// offset returns the position of the next unread byte within the reply.
func (d *Decoder) offset() int64 { return d.base + int64(d.i) }

// end is the error for input that stops too early.
func (d *Decoder) end() error {
	at := d.base + int64(d.n)
	switch {
	case d.readErr != nil:
		return &ReadError{Offset: at, Err: d.readErr}
	case d.over:
		return &DecodeError{Offset: at, Err: limitError("MaxReplyBytes", d.cfg.MaxReplyBytes)}
	}
	return &DecodeError{Offset: at, Err: io.ErrUnexpectedEOF}
}

// fail is the error for the next unread byte; what says what should stand there.
func (d *Decoder) fail(err error, what string) error {
	return &DecodeError{Offset: d.offset(), Err: &detailError{err, what}}
}

// expected is fail for a byte c, as given by space, that does not fit.
func (d *Decoder) expected(what string, c byte) error {
	if c == 0 {
		return d.end()
	}
	return d.fail(ErrSyntax, "expected "+what)
}

// wrongType is fail for a value that begins with c where another type is needed.
func (d *Decoder) wrongType(what string, c byte) error {
	switch c {
	case '"', '{', '[', 't', 'f', 'n', '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return d.fail(ErrSchema, "expected "+what)
	}
	return d.expected(what, c)
}

// A detailError is a sentinel with a few words.
type detailError struct {
	sentinel error
	detail   string
}

func (e *detailError) Error() string { return e.sentinel.Error() + ": " + e.detail }
func (e *detailError) Unwrap() error { return e.sentinel }

func limitError(name string, limit int64) error {
	return &detailError{ErrTooLarge, name + " is " + strconv.FormatInt(limit, 10)}
}

// below puts a key in front of the path of an error on its way up.
func below(err error, key string) error {
	if e, ok := err.(*DecodeError); ok { //nolint:errorlint // made here, never wrapped
		e.Path = "/" + pointerEscaper.Replace(key) + e.Path
	}
	return err
}

var pointerEscaper = strings.NewReplacer("~", "~0", "/", "~1")

// belowIndex is below for an index.
func belowIndex(err error, i int) error { return below(err, strconv.Itoa(i)) }
