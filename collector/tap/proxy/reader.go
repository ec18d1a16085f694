package proxy

import (
	"errors"
	"io"
	"iter"

	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/tokenize"
)

// A reader parses an answer while the answer is forwarded. It buffers at most one event of a
// stream.
type reader struct {
	d   dialect
	a   *answer
	err error // the first error, after which nothing more is parsed

	// These fields are used for a single document. The method document parses it in a coroutine and
	// calls yield to request more bytes.
	chunk []byte
	ended bool
	over  bool                    // the document, or the end marker of a stream, has been parsed
	more  func() (struct{}, bool) // resumes the coroutine; nil before the first byte
	stop  func()
	yield func(struct{}) bool

	events splitter // of a stream
}

// newReader returns a reader. The caller must close it.
func newReader(d dialect, streamed bool) *reader {
	return &reader{d: d, a: newAnswer(streamed)}
}

// keep selects the values from inside the call that the reader parses. By default, it skips them.
func (r *reader) keep(inside tokenize.Inside) *reader {
	r.a.inside = inside
	return r
}

// write parses the next bytes of the answer. It keeps no reference to b.
func (r *reader) write(b []byte) {
	switch {
	case r.err != nil:
	case r.a.streamed:
		r.err = r.events.write(b, r.event)
	default:
		r.begin()
		r.chunk = b
		r.more()
		r.chunk = nil
	}
}

// begin starts to parse the document. A reader does not take pooled memory before the first byte
// arrives.
func (r *reader) begin() {
	if r.a.tray == nil {
		r.a.tray = newTray()
		r.more, r.stop = iter.Pull(r.document)
	}
}

func (r *reader) end() {
	r.ended = true
	if r.err == nil && !r.a.streamed {
		r.begin()
		r.more()
	}
}

// close frees the memory of the reader. It invalidates the slices that the method call stored in a
// tap.Call.
func (r *reader) close() {
	if r.stop != nil {
		r.stop()
	}
	if t := r.a.tray; t != nil {
		r.a.tray = nil
		t.free()
	}
	r.a = nil
	r.events.close()
}

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

// A source passes the bytes that write receives to the coroutine.
type source struct{ r *reader }

var errStopped = errors.New("proxy: reading stopped")

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

// event parses an event of a stream.
func (r *reader) event(raw []byte) error {
	switch data, _ := dataOf(raw); string(data) {
	case "":
	case "[DONE]":
		r.over = true
	default:
		t := newTray()
		r.a.tray = t
		t.s.ResetBytes(data)
		if r.err = r.d.answer(t.s, r.a); r.err == nil {
			r.err = t.s.End()
		}
		r.a.tray = nil
		t.free()
	}
	return r.err
}

// pass parses a document for the client's view and, until the first error, for the ids. It keeps no
// reference to data if the answer is a stream. Otherwise, data must not change until close.
func (r *reader) pass(v *view, data []byte) (drop bool, err error) {
	t := newTray()
	r.a.tray = t
	a := r.a
	if r.err != nil {
		a = nil
	}
	drop, err = v.document(t.s, data, a)
	if err != nil && a != nil {
		r.err = err
		drop, err = v.document(t.s, data, nil) // the client must not see the ids of this answer either
	}
	if r.a.streamed {
		r.a.tray = nil
		t.free()
	} else {
		r.over = r.err == nil
	}
	return drop, err
}

// call copies the parsed answer into c. The slices in c are valid until close. If the output is
// unknown, unread is the reason. If a stream contains the engine's prompt, call stores the prompt in
// the memory of room. samePrompt is false if the length of the prompt differs from the engine's
// token count.
func (r *reader) call(c *tap.Call, room []int32) (unread string, samePrompt bool) {
	switch {
	case r.err != nil || r.ended && !r.a.streamed && !r.over:
		return "malformed", true
	case !r.ended:
		return "cut", true
	}
	samePrompt = r.a.fill(c, room)
	if unread = r.a.unread(); unread == "" && samePrompt {
		unread = r.a.fillInside(c)
	}
	return unread, samePrompt
}
