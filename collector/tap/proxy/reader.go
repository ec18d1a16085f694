package proxy

import (
	"bytes"
	"errors"
	"io"
	"iter"

	"github.com/rollout-rl/rollout/collector/tap"
)

// A reader reads an answer while it passes. It is given the bytes as they come, and holds none
// of them but the beginning of an event.
type reader struct {
	d   dialect
	a   *answer
	err error // the first; nothing is read after it

	// One document: doc reads it in a coroutine, which asks for more by yield.
	chunk []byte
	ended bool
	over  bool                    // the document, or the word that ends a stream, was read
	more  func() (struct{}, bool) // nil before the first byte
	stop  func()
	yield func(struct{}) bool

	// A stream: line is the beginning of a line, event the data of the event so far.
	line, event []byte
}

// newReader returns a reader, which must be closed.
func newReader(d dialect, streamed bool) *reader {
	return &reader{d: d, a: newAnswer(streamed)}
}

// write reads the next bytes. It keeps no reference to them.
func (r *reader) write(b []byte) {
	switch {
	case r.err != nil:
	case r.a.streamed:
		r.lines(b)
	default:
		r.begin()
		r.chunk = b
		r.more()
		r.chunk = nil
	}
}

// begin begins the document. A reader that waits for an engine has nothing of what it needs.
func (r *reader) begin() {
	if r.a.tray == nil {
		r.a.tray = newTray()
		r.more, r.stop = iter.Pull(r.document)
	}
}

// end says that the answer has ended.
func (r *reader) end() {
	r.ended = true
	if r.err == nil && !r.a.streamed {
		r.begin()
		r.more()
	}
}

// close frees what the reader holds, and what its answer gave to a call.
func (r *reader) close() {
	if r.stop != nil {
		r.stop()
	}
	if t := r.a.tray; t != nil {
		r.a.tray = nil
		t.free()
	}
	r.a, r.line, r.event = nil, nil, nil
}

// document is the coroutine that reads an answer of one document.
func (r *reader) document(yield func(struct{}) bool) {
	r.yield = yield
	s := r.a.tray.s
	s.Reset(source{r})
	err := r.d.answer(s, r.a)
	if err == nil {
		err = s.End()
	}
	r.err, r.over = err, err == nil
}

// A source gives the coroutine what is written to the reader.
type source struct{ r *reader }

var errStopped = errors.New("proxy: the reading was stopped")

func (s source) Read(p []byte) (int, error) {
	for len(s.r.chunk) == 0 {
		if s.r.ended {
			return 0, io.EOF
		}
		if !s.r.yield(struct{}{}) {
			return 0, errStopped
		}
	}
	n := copy(p, s.r.chunk)
	s.r.chunk = s.r.chunk[n:]
	return n, nil
}

// errEvent is the error for a stream whose events are too long to be read.
var errEvent = errors.New("proxy: an event is too long")

// lines reads the lines of a stream of server-sent events.
func (r *reader) lines(b []byte) {
	for len(b) > 0 {
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			r.line = append(r.line, b...)
			if len(r.line) > maxEvent {
				r.err = errEvent
			}
			return
		}
		line := b[:end]
		if len(r.line) > 0 {
			r.line = append(r.line, line...)
			line = r.line
		}
		b = b[end+1:]
		r.read(bytes.TrimSuffix(line, []byte("\r")))
		r.line = r.line[:0]
		if cap(r.line) > chunkBytes {
			r.line = nil
		}
		if r.err != nil {
			return
		}
	}
}

// read reads one line.
func (r *reader) read(line []byte) {
	if len(line) > 0 {
		data, ok := bytes.CutPrefix(line, []byte("data:"))
		if !ok {
			return // another field, or a comment
		}
		if len(r.event) > 0 {
			r.event = append(r.event, '\n')
		}
		r.event = append(r.event, bytes.TrimPrefix(data, []byte(" "))...)
		if len(r.event) > maxEvent {
			r.err = errEvent
		}
		return
	}
	if string(r.event) == "[DONE]" {
		r.over = true
	} else if len(r.event) > 0 {
		r.said()
	}
	r.event = r.event[:0]
	if cap(r.event) > chunkBytes {
		r.event = nil
	}
}

// said reads the event.
func (r *reader) said() {
	t := newTray()
	r.a.tray = t
	t.s.ResetBytes(r.event)
	if r.err = r.d.answer(t.s, r.a); r.err == nil {
		r.err = t.s.End()
	}
	r.a.tray = nil
	t.free()
}

// call gives c what was read, until close, and says why its output is not known, or nothing.
// What the engine says of its prompt is put in room.
func (r *reader) call(c *tap.Call, room []int32) (unread string, samePrompt bool) {
	switch {
	case r.err != nil || r.ended && !r.a.streamed && !r.over:
		return "malformed", true
	case !r.ended:
		return "cut", true
	}
	samePrompt = r.a.fill(c, room)
	return r.a.unread(), samePrompt
}
