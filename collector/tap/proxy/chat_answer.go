package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/rollout-rl/rollout/collector/session"
)

// respond changes the answer and passes it to the client.
func (c *chatCall) respond(ctx context.Context, a engineAnswer) {
	if a.res != nil {
		c.call.Status = a.res.StatusCode
		c.p.answered(a.res.StatusCode, c.p.cfg.Set != (Set{}))
	}
	switch {
	case a.err != nil:
		c.fail(c.unsent(ctx, a.err))
	case a.res.StatusCode != http.StatusOK:
		c.refusal(a)
	case encoded(a.res.Header):
		c.call.Unread = "encoded"
		c.fail(&refusal{http.StatusBadGateway, "encoded", "the engine compressed the answer although the tap asked for no compression"})
	case a.body == nil && (c.reply != nil || c.rendered != nil):
		c.call.Unread = "content_type"
		c.fail(&refusal{http.StatusBadGateway, "content_type", "the engine answered with a stream although the tap asked for a whole answer"})
	case a.body == nil:
		c.stream(ctx, a.res)
	default:
		c.document(a)
	}
}

// fail records the call and sends an error to the client. If the head of the answer has already been
// sent, the error becomes the last event, and the answer ends without its end marker.
func (c *chatCall) fail(bad *refusal) {
	if err := c.record(true); err != nil && bad != errCanceled {
		bad = refused(err)
	}
	if !c.headed {
		if c.client.Err() == nil {
			bad.send(c.w, c.dialect)
		}
		return
	}
	c.abort(bad)
}

// abort sends an error as an event and cuts off the answer.
func (c *chatCall) abort(bad *refusal) {
	if c.reply != nil {
		c.out = c.reply.Failed(c.out, bad.translated())
	} else {
		c.append(bad.text(nil))
	}
	c.cutOff()
}

// append appends an event with the data to c.out.
func (c *chatCall) append(data []byte) {
	c.out = append(append(append(c.out, "data: "...), data...), "\n\n"...)
}

// cutOff writes the events in c.out and ends the connection.
func (c *chatCall) cutOff() {
	_ = c.flush() // the answer is cut off anyway
	panic(http.ErrAbortHandler)
}

// refusal passes an error of the engine to the client.
func (c *chatCall) refusal(a engineAnswer) {
	if status := a.res.StatusCode; status >= 400 && status < 500 && statesOverflow(a.body) {
		c.call.Unread = session.UnreadOverflow
	}
	if err := c.record(false); err != nil {
		c.fail(refused(err))
		return
	}
	if c.reply != nil {
		c.translatedRefusal(a)
		return
	}
	if !c.headed {
		_ = c.write(a.res, a.body) // an error means that the client disconnected
		return
	}
	text := bytes.ReplaceAll(a.body, []byte("\n"), []byte(" "))
	if !bytes.Contains(text, []byte(`"error"`)) || !bytes.HasPrefix(text, []byte("{")) {
		text = (&refusal{a.res.StatusCode, strconv.Itoa(a.res.StatusCode), "the engine answered: " + string(text[:min(len(text), 1<<10)])}).text(nil)
	}
	c.append(text)
	c.cutOff()
}

// head copies the header of the engine's answer.
func (c *chatCall) head(res *http.Response) {
	h := c.w.Header()
	for name, values := range res.Header {
		switch name {
		case "Connection", "Keep-Alive", "Proxy-Authenticate", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Date":
		default:
			h[name] = values
		}
	}
}

// write sends a whole answer.
func (c *chatCall) write(res *http.Response, body []byte) error {
	c.head(res)
	if c.reply != nil { // the tap made the body
		c.w.Header().Set("Content-Type", "application/json")
		c.w.Header().Del("Content-Encoding")
	}
	c.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	c.w.WriteHeader(res.StatusCode)
	c.headed = true
	if _, err := c.w.Write(body); err != nil {
		return err
	}
	return http.NewResponseController(c.w).Flush()
}

// begin sends the head of a stream that the tap makes.
func (c *chatCall) begin() {
	if c.headed {
		return
	}
	h := c.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	c.w.WriteHeader(http.StatusOK)
	c.headed = true
}

// flush writes c.out to the client.
func (c *chatCall) flush() error {
	out := c.out
	if c.out = out[:0]; cap(out) > maxRoomBytes {
		c.out = nil
	}
	if len(out) > 0 {
		if _, err := c.w.Write(out); err != nil {
			return err
		}
	}
	return http.NewResponseController(c.w).Flush()
}

// document passes a whole answer to the client, as a stream if the client wants one.
func (c *chatCall) document(a engineAnswer) {
	c.reader = newReader(openai{}, false).keep(c.p.cfg.Inside)
	rewrites := c.streams || c.reply != nil
	if rewrites {
		c.view.parts = newDocument()
	}
	_, err := c.parse(a.body)
	if err != nil && rewrites {
		c.fail(&refusal{http.StatusBadGateway, "malformed", "the engine's answer is not a chat completion"})
		return
	}
	body := a.body
	if err == nil && !rewrites {
		body = c.view.append(make([]byte, 0, len(body)))
	}
	if err := c.record(false); err != nil {
		c.fail(refused(err))
		return
	}
	_ = c.deliver(func() error { // an error means that the client disconnected
		switch {
		case c.streams:
			c.begin()
			c.out = c.events(c.out)
			return c.flush()
		case c.reply != nil:
			body = c.reply.Whole(nil, c.answer())
		}
		return c.write(a.res, body)
	})
}

// events appends the answer as the events of a stream.
func (c *chatCall) events(dst []byte) []byte {
	if c.reply != nil {
		return c.reply.Events(dst, c.answer())
	}
	return append(c.view.parts.events(dst, c.view.usage), "data: [DONE]\n\n"...)
}

// parse parses a whole answer, or the data of an event. After an error, the client gets it unchanged.
func (c *chatCall) parse(data []byte) (drop bool, err error) {
	if !c.p.guard("answer", func() { drop, err = c.reader.pass(c.view, data) }) {
		c.reader.err, err = errPanic, errPanic
	}
	return drop, err
}

// errGone means that the client has disconnected.
var errGone = errors.New("the client has disconnected")

// stream passes a stream to the client event by event.
func (c *chatCall) stream(ctx context.Context, res *http.Response) {
	c.reader = newReader(openai{}, true).keep(c.p.cfg.Inside)
	c.view.streamed = true
	c.head(res)
	c.w.WriteHeader(http.StatusOK)
	c.headed = true
	err := c.flush()
	if err == nil {
		err = c.pass(res.Body)
	}
	switch bad, ok := errors.AsType[*refusal](err); {
	case err == nil, c.stored && !ok: // the client has the whole answer
	case ok:
		c.fail(bad)
	case c.client.Err() != nil, err == errGone:
		_ = c.record(true) // logged
		panic(http.ErrAbortHandler)
	case context.Cause(ctx) != nil:
		c.fail(errCanceled)
	case errors.Is(err, errEvent), errors.Is(err, errLargeAnswer):
		c.fail(&refusal{http.StatusBadGateway, "too_large", err.Error()})
	default: // cut off as the engine did
		_ = c.record(true) // logged
		panic(http.ErrAbortHandler)
	}
}

// pass reads the stream to its end. It returns nil if the stream is complete and recorded.
func (c *chatCall) pass(body io.Reader) error {
	room := streamRooms.Get().(*[streamBytes]byte) //nolint:forcetypeassert // the pool contains nothing else
	defer streamRooms.Put(room)
	buf := room[:]
	var events splitter
	defer events.close()
	request := c.x.held
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if err := events.write(buf[:n], c.event); err != nil {
				return err
			}
			if len(c.out) > 0 && c.flush() != nil {
				return errGone
			}
		}
		if m := c.view.message; m != nil {
			if m.bytes > maxAnswer {
				return errLargeAnswer
			}
			c.x.hold(request + int64(m.bytes))
		}
		switch {
		case err == io.EOF && c.stored:
			return nil
		case err == io.EOF: // without an end marker
			if err := c.record(c.reader.a.finish == ""); err != nil {
				return refused(err)
			}
			return c.deliver(func() error { return nil }) // everything was written before
		case err != nil:
			return err
		}
	}
}

// event appends an event to c.out, as the client must receive it.
func (c *chatCall) event(raw []byte) error {
	data, at := dataOf(raw)
	switch string(data) {
	case "":
		c.out = append(c.out, raw...)
		return nil
	case "[DONE]":
		if c.flush() != nil {
			return errGone
		}
		c.reader.over = true
		if err := c.record(false); err != nil {
			return refused(err)
		}
		c.out = append(c.out, raw...)
		return c.deliver(c.flush)
	}
	switch drop, err := c.parse(data); {
	case err != nil:
		c.out = append(c.out, raw...)
	case drop:
	case len(c.view.edits) == 0:
		c.out = append(c.out, raw...)
	case at != (span{}):
		c.out = append(c.view.append(append(c.out, raw[:at.from]...)), raw[at.to:]...)
	default:
		c.out = appendLines(c.out, c.view.append(nil))
	}
	return nil
}

// recover handles a panic. It cuts off the answer if its head has been sent.
func (c *chatCall) recover() {
	v := recover()
	switch v {
	case nil:
		return
	case http.ErrAbortHandler:
		panic(v)
	}
	c.p.guard("session", func() { panic(v) }) // counts and logs the panic
	c.p.guard("session", func() { _ = c.record(true) })
	if c.headed {
		panic(http.ErrAbortHandler)
	}
	(&refusal{http.StatusInternalServerError, "panic", "internal error in the tap"}).send(c.w, c.dialect)
}
