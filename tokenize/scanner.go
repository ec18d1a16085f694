package tokenize

import "io"

// A Scanner reads one JSON document of any shape from front to back. It uses the fast paths of the
// Decoder and converts numbers just as exactly. The caller calls one method for each value that the
// caller expects. A Scanner is meant for replies from inference engines. Such replies contain the
// same lists of ids and log-probabilities as replies from Letta, but in other places.
//
// A Scanner validates the syntax as the Decoder does, within the limits of the DecoderConfig. It
// can read any number of documents, one at a time. It is not safe for concurrent use.
type Scanner struct {
	d   Decoder
	out Reply
}

// NewScanner returns a Scanner with the given limits.
func NewScanner(cfg DecoderConfig) *Scanner {
	s := &Scanner{d: *NewDecoder(cfg)}
	s.d.out = &s.out
	return s
}

// Reset starts a document that is read from r in chunks of ChunkBytes.
func (s *Scanner) Reset(r io.Reader) {
	s.d.open(r)
	s.out = Reply{}
}

// ResetBytes starts a document in memory. The Scanner keeps a reference to b until the next call of
// Reset or ResetBytes.
func (s *Scanner) ResetBytes(b []byte) {
	s.d.openBytes(b)
	s.out = Reply{}
}

// Next skips white space and returns the first byte of the next value without consuming it: '{',
// '[', '"', 't', 'f', 'n', '-' or a digit. It returns 0 at the end of the document. Any other byte
// means that no value follows.
func (s *Scanner) Next() byte { return s.d.space() }

// Offset returns the number of bytes consumed. After Next, this is the start of the next value.
func (s *Scanner) Offset() int64 { return s.d.offset() }

// Object reads an object. It calls the function member for each key. The function must read the
// value with one method call. The key is cut off after 64 bytes and is valid until the value is
// read.
func (s *Scanner) Object(member func(key []byte) error) error {
	d := &s.d
	return d.object("an object", func() error {
		if err := d.readKey(); err != nil {
			return err
		}
		if err := d.colon(); err != nil {
			return err
		}
		return member(d.key)
	})
}

// Array reads an array. It calls the function element for each value. The function must read the
// value with one method call.
func (s *Scanner) Array(element func(i int) error) error { return s.d.array("an array", element) }

// IDs reads a list of token ids and appends them to dst. The result has at most MaxTokens ids.
// After an error, dst is returned unchanged.
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

// Logprobs reads a list of triples [logprob, id, …]. It appends the log-probabilities to dst, with
// NaN for null, and the token ids to the slice ids. It parses each log-probability as a double and
// rounds the double to a float32. The Decoder gets the same bits for the same number, even if a
// Letta server and the engine format the number differently. After an error, both slices are
// returned unchanged.
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

// Float32 reads a number and rounds it in the same way as Logprobs. The result is infinite if the
// number is too large for a float32.
func (s *Scanner) Float32() (float32, error) {
	text, err := s.Number()
	if err != nil {
		return 0, err
	}
	v, _ := float32Of(text)
	return v, nil
}

// Number reads a number and returns its text, which is valid until the next method call.
func (s *Scanner) Number() ([]byte, error) {
	if c := s.d.space(); c != '-' && c-'0' > 9 {
		return nil, s.d.wrongType("a number", c)
	}
	return s.d.number()
}

// Text reads a string. A string that is longer than limit bytes is an error.
func (s *Scanner) Text(limit int) (string, error) {
	d := &s.d
	if c := d.space(); c != '"' {
		return "", d.wrongType("a string", c)
	}
	at := d.offset()
	d.i++
	text, err := d.str(nil, limit+1)
	if err == nil && len(text) > limit {
		err = &DecodeError{Offset: at, Err: limitError("maximum text length", int64(limit))}
	}
	if err != nil {
		return "", err
	}
	return string(text), nil
}

// Skip reads and discards a value of any type.
func (s *Scanner) Skip() error { return s.d.skip() }

// End returns an error if anything follows the document or if the reader failed.
func (s *Scanner) End() error {
	if c := s.d.space(); c != 0 {
		return s.d.fail(ErrSyntax, "expected the end of the document")
	}
	if s.d.readErr != nil || s.d.over {
		return s.d.end()
	}
	return nil
}
