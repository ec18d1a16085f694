package tokenize

import "io"

// A Scanner reads one JSON document of any shape, in order, with the fast paths and the exact
// numbers of the Decoder: the caller says what it expects next. It is for answers of inference
// engines, whose shapes differ where their lists of ids and log-probabilities do not.
//
// The syntax is checked as the Decoder checks it. Limits are those of the DecoderConfig. A
// Scanner may be used for any number of documents, one at a time; it is not safe for
// concurrent use.
type Scanner struct {
	d     Decoder
	out   Reply
	depth int
	chunk []byte // the read buffer, between documents
}

// NewScanner returns a Scanner with the given limits.
func NewScanner(cfg DecoderConfig) *Scanner {
	s := &Scanner{}
	s.d.cfg = cfg.withDefaults()
	s.d.key = make([]byte, 0, maxKeyBytes)
	return s
}

// Reset begins a document that is read from r, ChunkBytes at a time.
func (s *Scanner) Reset(r io.Reader) {
	if s.chunk == nil {
		s.chunk = make([]byte, s.d.cfg.ChunkBytes)
	}
	s.begin()
	s.d.buf, s.d.n, s.d.r, s.d.eof = s.chunk, 0, r, false
}

// ResetBytes begins a document that is in memory. The Scanner refers to b until the next Reset.
func (s *Scanner) ResetBytes(b []byte) {
	s.begin()
	s.d.over = int64(len(b)) > s.d.cfg.MaxReplyBytes
	if s.d.over {
		b = b[:s.d.cfg.MaxReplyBytes]
	}
	s.d.buf, s.d.n, s.d.r, s.d.eof = b, len(b), nil, true
}

func (s *Scanner) begin() {
	d := &s.d
	d.i, d.base, d.readErr, d.over = 0, 0, nil, false
	d.keep, d.restOver, d.slowFloats, d.long = -1, false, 0, nil
	d.out, s.out, s.depth = &s.out, Reply{}, 0
}

// Next returns the first byte of the next value, or of what follows the last one, and reads
// nothing but white space: '{', '[', '"', 't', 'f', 'n', '-' or a digit; 0 at the end.
func (s *Scanner) Next() byte { return s.d.space() }

// Offset is the number of bytes read so far: after Next, where the next value begins; after a
// value was read, where it ended.
func (s *Scanner) Offset() int64 { return s.d.offset() }

// Object reads an object. It calls member for each key; member must read the value, by one
// call of a method. The key is cut at 64 bytes, and valid until the value is read.
func (s *Scanner) Object(member func(key []byte) error) error {
	d := &s.d
	if c := d.space(); c != '{' {
		return d.wrongType("an object", c)
	}
	if err := s.enter(); err != nil {
		return err
	}
	for first := true; ; first = false {
		c := d.space()
		if c == '}' && first {
			break
		}
		if c != '"' {
			return d.expected("a key", c)
		}
		if err := d.readKey(); err != nil {
			return err
		}
		if err := d.colon(); err != nil {
			return err
		}
		if err := member(d.key); err != nil {
			return err
		}
		if c := d.space(); c == ',' {
			d.i++
			continue
		} else if c != '}' {
			return d.expected("',' or '}'", c)
		}
		break
	}
	d.i++
	s.depth--
	return nil
}

// Array reads an array. It calls element before each value; element must read it, by one call
// of a method.
func (s *Scanner) Array(element func(i int) error) error {
	d := &s.d
	if c := d.space(); c != '[' {
		return d.wrongType("an array", c)
	}
	if err := s.enter(); err != nil {
		return err
	}
	for i := 0; ; i++ {
		if c := d.space(); c == ']' && i == 0 {
			break
		}
		if err := element(i); err != nil {
			return err
		}
		if c := d.space(); c == ',' {
			d.i++
			continue
		} else if c != ']' {
			return d.expected("',' or ']'", c)
		}
		break
	}
	d.i++
	s.depth--
	return nil
}

// enter consumes the bracket of an object or array.
func (s *Scanner) enter() error {
	if s.depth >= s.d.cfg.MaxDepth {
		return &DecodeError{Offset: s.d.offset(), Err: limitError("MaxDepth", int64(s.d.cfg.MaxDepth))}
	}
	s.depth++
	s.d.i++
	return nil
}

// IDs reads a list of token ids and appends them to dst, which holds no more than MaxTokens
// then. After an error dst is as it was.
func (s *Scanner) IDs(dst []int32) ([]int32, error) {
	if c := s.d.space(); c != '[' {
		return dst, s.d.wrongType("a list of token ids", c)
	}
	s.out.ids = dst
	_, err := s.d.ids()
	ids := s.out.ids
	s.out.ids = nil
	if err != nil {
		return dst, err
	}
	return ids, nil
}

// Logprobs reads a list of [logprob, id, …]. It appends the log-probabilities to dst, NaN
// where one is null, and the ids to ids. Each is the float32 of the double that is spelled:
// the Decoder reads the same bits from the turns of a server, whatever spelling that uses.
// After an error both are as they were.
func (s *Scanner) Logprobs(dst []float32, ids []int32) ([]float32, []int32, error) {
	if c := s.d.space(); c != '[' {
		return dst, ids, s.d.wrongType("a list of [logprob, id, …]", c)
	}
	s.out.logprobs, s.out.ids = dst, ids
	_, _, err := s.d.logprobs(nil)
	read, readIDs := s.out.logprobs, s.out.ids
	s.out.logprobs, s.out.ids = nil, nil
	if err != nil {
		return dst, ids, err
	}
	return read, readIDs, nil
}

// Float32 reads a number with the bits that Logprobs gives it. Beyond the range of a double it
// is infinite.
func (s *Scanner) Float32() (float32, error) {
	text, err := s.Number()
	if err != nil {
		return 0, err
	}
	v, _ := float32Of(text)
	return v, nil
}

// Number reads a number and returns its text, valid until the next call.
func (s *Scanner) Number() ([]byte, error) {
	if c := s.d.space(); c != '-' && c-'0' > 9 {
		return nil, s.d.wrongType("a number", c)
	}
	return s.d.number()
}

// Text reads a string. One of more than limit bytes is an error.
func (s *Scanner) Text(limit int) (string, error) {
	d := &s.d
	if c := d.space(); c != '"' {
		return "", d.wrongType("a string", c)
	}
	at := d.offset()
	d.i++
	text, err := d.str(nil, limit+1)
	if err == nil && len(text) > limit {
		err = &DecodeError{Offset: at, Err: limitError("the longest text here", int64(limit))}
	}
	if err != nil {
		return "", err
	}
	return string(text), nil
}

// Skip reads a value of any type and forgets it.
func (s *Scanner) Skip() error { return s.d.skip(s.depth) }

// End reports an error if anything follows the document, or if its reader failed.
func (s *Scanner) End() error {
	if c := s.d.space(); c != 0 {
		return s.d.fail(ErrSyntax, "expected the end of the document")
	}
	if s.d.readErr != nil || s.d.over {
		return s.d.end()
	}
	return nil
}
