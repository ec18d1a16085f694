package tokenize

import (
	"io"
	"strconv"
	"strings"
)

// Files of the decoder:
//
//	decoder.go          the type, its buffer, objects and arrays, errors
//	decode_reply.go     the reply object, turns, the fields of a turn
//	decode_ids.go       lists of ids
//	decode_logprobs.go  lists of [logprob, id, …]
//	decode_number.go    numbers: grammar, exact float32
//	decode_string.go    strings: UTF-8, escapes
//	decode_skip.go      values that are skipped but still validated
//
// Lists and strings have a fast path, which processes eight bytes of the buffer at a time, and a
// slow path. A fast path accepts only input that the slow path accepts too, and returns the same
// value. A fast path never returns errors, so all offsets and messages come from the slow path.

// DecoderConfig limits the replies that a Decoder accepts. A field that is 0 takes its default
// value.
type DecoderConfig struct {
	// MaxReplyBytes limits the length of a reply. Default 128 MiB. A sampled token takes 80 to 130
	// bytes.
	MaxReplyBytes int64
	// MaxTokens limits the number of ids in a reply, including the ids of prompts and the ids in
	// output_token_logprobs. Default 1<<24.
	MaxTokens int
	// MaxTurns limits the number of turns. Default 65,536.
	MaxTurns int
	// MaxDepth limits the nesting of arrays and objects. The reply, its list of turns and each turn
	// count as one level each, so a limit below 3 rejects every turn. Default 256.
	MaxDepth int
	// MaxRestBytes limits Reply.Rest. Default 32 MiB.
	MaxRestBytes int
	// ChunkBytes is the size of the read buffer for Decode, at least 4 KiB. Default 128 KiB.
	// Decoding itself is just as fast with 16 KiB. For a 600 KB reply from a connection, a buffer
	// of 128 KiB needs fewer reads and about 2 % less CPU time than a buffer of 64 KiB.
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
	// minChunkBytes is large enough for the longest number and the largest look-ahead.
	minChunkBytes = 4 << 10
	// maxNumberBytes limits the length of a number, which is the only kind of token that must fit
	// in the buffer as a whole. In practice, numbers are much shorter: a double takes at most 24
	// bytes.
	maxNumberBytes = 1 << 10
	// maxKeyBytes is the maximum number of bytes of a key that the Decoder keeps for comparisons
	// and for DecodeError.Path.
	maxKeyBytes = 64
)

// A Decoder decodes replies from a Letta server. It keeps one read buffer of ChunkBytes and the
// text of one prompt, up to 1 MiB. It is not safe for concurrent use, so each worker needs its own
// Decoder.
//
// A Decoder validates the JSON grammar and the UTF-8 encoding of the whole reply, including skipped
// values. It does not check what the values mean. Lists of different lengths, log-probabilities
// that belong to other tokens, and null lists are not decode errors, because they invalidate only
// one sample. The caller finds them in the Turn.
type Decoder struct {
	cfg DecoderConfig

	buf  []byte // buf[i:n] has been read but not consumed: 0 ≤ i ≤ n ≤ len(buf)
	i, n int
	base int64 // offset of buf[0] within the reply
	own  []byte
	r    io.Reader

	eof     bool  // no bytes follow buf[:n]
	over    bool  // eof is set because the reply is longer than MaxReplyBytes
	readErr error // eof is set because r failed with this error

	depth    int  // number of arrays and objects around buf[i]
	keep     int  // position in buf of the first byte that belongs to Rest, or -1
	restOver bool // Rest would have exceeded MaxRestBytes

	// long is the last long string that was skipped, including its closing quote, as long as the
	// string is in buf. Servers send the arguments and the result of a tool call twice, the second
	// time in deprecated members. Comparing the second copy takes a tenth of the time needed to
	// validate it.
	long []byte

	// prompt is the text of the last prompt, up to maxPromptText bytes. promptAt is the index of
	// the prompt's first id in the id arena. promptKeep is the position in buf of the first byte
	// that must still be appended to prompt, or -1.
	prompt               []byte
	promptAt, promptKeep int

	slowFloats int // number of log-probabilities in this document that strconv converted

	key []byte // the last key, truncated to maxKeyBytes
	out *Reply
}

// NewDecoder returns a Decoder with the given limits.
func NewDecoder(cfg DecoderConfig) *Decoder {
	return &Decoder{cfg: cfg.withDefaults(), key: make([]byte, 0, maxKeyBytes)}
}

// Decode resets dst and then decodes one reply into it, reading r up to EOF. The result does not
// depend on how r splits the bytes. After an error, dst is empty and the Decoder can be reused.
//
// It returns a *DecodeError if the bytes are not a valid reply, and a *ReadError if r failed.
func (d *Decoder) Decode(r io.Reader, dst *Reply) error {
	d.open(r)
	return d.run(dst)
}

// DecodeBytes is like Decode, but for a reply in memory. It does not change b and keeps no
// reference to it.
func (d *Decoder) DecodeBytes(b []byte, dst *Reply) error {
	d.openBytes(b)
	return d.run(dst)
}

func (d *Decoder) open(r io.Reader) {
	if d.own == nil {
		d.own = make([]byte, d.cfg.ChunkBytes)
	}
	d.begin()
	d.buf, d.n, d.r = d.own, 0, r
	d.eof, d.over = false, false
}

func (d *Decoder) openBytes(b []byte) {
	d.over = int64(len(b)) > d.cfg.MaxReplyBytes
	if d.over {
		b = b[:d.cfg.MaxReplyBytes]
	}
	d.begin()
	d.buf, d.n, d.eof = b, len(b), true
}

func (d *Decoder) begin() {
	d.i, d.base, d.depth, d.readErr, d.long = 0, 0, 0, nil, nil
	d.keep, d.restOver, d.r, d.slowFloats = -1, false, nil, 0
	d.prompt, d.promptAt, d.promptKeep = d.prompt[:0], 0, -1
}

func (d *Decoder) run(dst *Reply) error {
	dst.Reset()
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

// fill reads more bytes after buf[:n] and reports whether it got any. It can move buf[i:n], so
// callers must store positions in buf relative to i.
func (d *Decoder) fill() bool {
	if d.eof {
		return false
	}
	if len(d.buf)-d.n < len(d.buf)/4 {
		d.flushRest()
		d.flushPrompt()
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

// need reads until the buffer has k bytes that have not been consumed, and reports whether it
// succeeded.
func (d *Decoder) need(k int) bool {
	for d.n-d.i < k {
		if !d.fill() {
			return false
		}
	}
	return true
}

// flushRest copies the consumed bytes that belong to Rest. It must be called before the buffer
// changes.
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
	d.keep = 0 // fill moves buf[i] to buf[0]
}

// space skips white space and returns the next byte without consuming it. It returns 0 at the end
// of the input and 1 for a control character.
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

// object reads an object. It calls the function member at the opening quote of each key. The
// function must read the key and the value. The string what describes the object in errors.
func (d *Decoder) object(what string, member func() error) error {
	if c := d.space(); c != '{' {
		return d.wrongType(what, c)
	}
	if err := d.enter(); err != nil {
		return err
	}
	for first := true; ; first = false {
		switch c := d.space(); {
		case c == '}' && first:
			d.leave()
			return nil
		case c != '"':
			return d.expected("a key", c)
		}
		if err := member(); err != nil {
			return err
		}
		switch c := d.space(); c {
		case ',':
			d.i++
		case '}':
			d.leave()
			return nil
		default:
			return d.expected("',' or '}'", c)
		}
	}
}

// array reads an array. It calls the function element at the start of each value. The function must
// read the value. The string what describes the array in errors.
func (d *Decoder) array(what string, element func(i int) error) error {
	if c := d.space(); c != '[' {
		return d.wrongType(what, c)
	}
	if err := d.enter(); err != nil {
		return err
	}
	for i := 0; ; i++ {
		if c := d.space(); c == ']' && i == 0 {
			d.leave()
			return nil
		}
		if err := element(i); err != nil {
			return err
		}
		switch c := d.space(); c {
		case ',':
			d.i++
		case ']':
			d.leave()
			return nil
		default:
			return d.expected("',' or ']'", c)
		}
	}
}

// enter moves past the bracket that opens an array or an object.
func (d *Decoder) enter() error {
	if d.depth >= d.cfg.MaxDepth {
		return &DecodeError{Offset: d.offset(), Err: limitError("MaxDepth", int64(d.cfg.MaxDepth))}
	}
	d.depth++
	d.i++
	return nil
}

// leave moves past the bracket that closes an array or an object.
func (d *Decoder) leave() {
	d.depth--
	d.i++
}

func (d *Decoder) offset() int64 { return d.base + int64(d.i) }

// end returns the error for input that ends too early.
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

// fail returns a *DecodeError at the first byte that has not been consumed. The string what
// describes the problem.
func (d *Decoder) fail(err error, what string) error {
	return &DecodeError{Offset: d.offset(), Err: &detailError{err, what}}
}

// The method expected returns the error for a byte c that cannot begin the expected text. The byte
// c must be a result of the method space. The string what describes the expected text.
func (d *Decoder) expected(what string, c byte) error {
	if c == 0 {
		return d.end()
	}
	return d.fail(ErrSyntax, "expected "+what)
}

// wrongType returns the error for a value that begins with c and has the wrong type.
func (d *Decoder) wrongType(what string, c byte) error {
	switch c {
	case '"', '{', '[', 't', 'f', 'n', '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return d.fail(ErrSchema, "expected "+what)
	}
	return d.expected(what, c)
}

type detailError struct {
	sentinel error
	detail   string
}

func (e *detailError) Error() string { return e.sentinel.Error() + ": " + e.detail }
func (e *detailError) Unwrap() error { return e.sentinel }

func limitError(name string, limit int64) error {
	return &detailError{ErrTooLarge, name + " is " + strconv.FormatInt(limit, 10)}
}

// below prepends key to the path of a *DecodeError.
func below(err error, key string) error {
	if e, ok := err.(*DecodeError); ok { //nolint:errorlint // made here, never wrapped
		e.Path = "/" + pointerEscaper.Replace(key) + e.Path
	}
	return err
}

var pointerEscaper = strings.NewReplacer("~", "~0", "/", "~1")

// belowIndex is like below, but for an array index.
func belowIndex(err error, i int) error { return below(err, strconv.Itoa(i)) }
