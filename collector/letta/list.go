package letta

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/rollout-rl/rollout/tokenize"
)

// A list is an answer that is decoded element by element, so that a long list is never in memory as
// a whole. The decoder is encoding/json, because the scanner of this package needs the whole text.
// The method decode returns a read error as err and a decode error as undecoded.
type list interface {
	decode(body io.Reader) (undecoded, err error)
}

// An eachOf passes each element of an array to the function each. It calls start before the first
// element, and again before the first element of each retry.
type eachOf[T any] struct {
	start func()
	each  func(*T)
}

// maxElements and maxListBytes limit a list. maxElementBytes limits each element.
const (
	maxElements     = 1 << 20
	maxListBytes    = 256 << 20
	maxElementBytes = 4 << 20
)

func (l *eachOf[T]) decode(body io.Reader) (undecoded, err error) {
	in := &boundedReader{r: body, most: maxListBytes, element: maxElementBytes}
	undecoded = l.elements(json.NewDecoder(in), in)
	if in.err != nil { // the decoder's error would only report the end of the data
		return nil, in.err
	}
	return undecoded, nil
}

func (l *eachOf[T]) elements(d *json.Decoder, in *boundedReader) error {
	l.start()
	switch t, err := d.Token(); {
	case err != nil:
		return err
	case t == nil:
		return nil // null is an empty list
	case t != json.Delim('['):
		return fmt.Errorf("want a list, got %v", t)
	}
	for n := 0; d.More(); n++ {
		if n == maxElements {
			return fmt.Errorf("the list has more than %d elements: %w", maxElements, tokenize.ErrTooLarge)
		}
		var v T
		in.since = 0
		if err := d.Decode(&v); err != nil {
			return err
		}
		l.each(&v)
	}
	if _, err := d.Token(); err != nil { // the closing bracket
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("unexpected data after the list")
	}
	return nil
}

// A boundedReader limits the number of bytes. The field most is the limit for all bytes, and the
// field element is the limit for each element. The caller sets the field since to 0 at the start of
// each element. Any error other than io.EOF is permanent.
type boundedReader struct {
	r             io.Reader
	most, element int64
	read, since   int64
	err           error
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.r.Read(p)
	b.read += int64(n)
	b.since += int64(n)
	switch {
	case b.read > b.most:
		b.err = tooLong(b.most)
	case b.since > b.element:
		b.err = &tokenize.DecodeError{Offset: b.read, Err: fmt.Errorf("a list element has more than %d bytes: %w", b.element, tokenize.ErrTooLarge)}
	case err != nil && !errors.Is(err, io.EOF):
		b.err = err
	}
	if b.err != nil {
		return 0, b.err
	}
	return n, err
}
