package proxy

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"time"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/tokenize"
)

// answered handles the head of the answer and wraps the body so that the reader parses it. It
// returns an error if the answer must not be forwarded to the client.
func (x *exchange) answered(res *http.Response) error {
	x.p.answered(res.StatusCode, x.set)
	x.body, x.own = nil, idList{}
	x.hold(0)
	if x.call == nil {
		return nil
	}
	x.call.Status, x.call.Engine = res.StatusCode, x.engine.name
	if x.parsed && res.StatusCode == http.StatusOK && x.readable(res.Header) {
		x.p.guard("answer", func() { x.reader = newReader(x.d, x.streamed).keep(x.p.cfg.Inside) })
	}
	if x.marked(res.StatusCode) {
		if err := x.mark(res); err != nil {
			return err
		}
	}
	res.Body = &passing{body: res.Body, x: x}
	if res.ContentLength == 0 {
		x.finish(true)
	}
	return nil
}

// answered counts the answer of an engine. set must be true if Config.Set changed the request.
func (p *Proxy) answered(status int, set bool) {
	p.count(func(s *Stats) {
		if i := status / 100; i < len(s.Answers) {
			s.Answers[i]++
		}
	})
	if set && slices.Contains(refusals[:], status) {
		p.once(slog.LevelWarn, "set_refused", fmt.Errorf("an engine answered with status %d to a request after --set had changed %s", status, p.cfg.Set.names()))
	}
}

// encoded reports whether a body with this header is compressed.
func encoded(h http.Header) bool {
	v := h.Get("Content-Encoding")
	return v != "" && v != "identity"
}

// readable reports whether a reader can parse the body of an answer with this header. If not, it
// counts the reason.
func (x *exchange) readable(h http.Header) bool {
	if encoded(h) {
		x.p.unread("encoded")
		return false
	}
	if x.streamed != isStream(h) {
		x.p.unread("content_type")
		return false
	}
	return true
}

func isStream(h http.Header) bool {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return kind == "text/event-stream"
}

func (x *exchange) drop() {
	if r := x.reader; r != nil {
		x.reader = nil
		x.p.guard("answer", r.close)
	}
}

// A passing wraps an answer body. It passes each piece to the exchange's reader before it returns
// the piece.
type passing struct {
	body io.ReadCloser
	x    *exchange
}

func (b *passing) Read(buf []byte) (int, error) {
	n, err := b.body.Read(buf)
	x := b.x
	if n > 0 && x.reader != nil && !x.p.guard("answer", func() { x.reader.write(buf[:n]) }) {
		x.p.unread("panic")
		x.drop()
	}
	// Record the call before the client receives the end of the answer. A body with a known length
	// returns io.EOF with its last bytes. A chunked body returns io.EOF before the final chunk is
	// forwarded. The last event of a stream also counts as the end, because a client can stop
	// reading there.
	if err == io.EOF || x.streamed && x.reader != nil && x.reader.over {
		x.finish(true)
		x.drop()
	}
	return n, err
}

func (b *passing) Close() error { return b.body.Close() }

// finish records the call. through must be true only if the answer was complete. A call whose request
// was not parsed is recorded only if an engine answered, so that readers of the calls know that it exists.
func (x *exchange) finish(through bool) {
	p, c := x.p, x.call
	if c == nil || x.finished || !x.parsed && c.Engine == "" {
		return
	}
	x.finished = true
	c.Cut, c.Ended = !through, time.Now()
	if x.engine != nil {
		p.count(func(s *Stats) { s.Time.observe(c.Ended.Sub(x.began)) })
	}
	desk := newDesk()
	defer desk.free() // the memory of c is invalid afterwards
	prompt, asked := x.ids(desk)
	p.guard("answer", func() { x.fill(through, desk) })
	if p.cfg.Continuer != nil {
		p.guard("continuity", func() { p.cfg.Continuer.Answered(x.told(prompt, asked)) })
	}
	kept := false
	p.guard("keep", func() { kept = p.cfg.Keep(c) })
	p.count(func(s *Stats) {
		if kept {
			s.Kept++
		} else {
			s.Dropped++
		}
	})
	if prompt != nil && slices.Equal(c.Prompt, prompt) && c.Output != nil {
		p.guard("balance", func() { p.balance.places.put(x.chain.grow(c.Prompt, c.Output), x.engine) })
	}
	p.cfg.Log.Debug("call", "dialect", c.Dialect, "engine", c.Engine, "status", c.Status, "prompt", len(c.Prompt), "output", len(c.Output), "cut", c.Cut)
	c.Prompt, c.Asked, c.Output, c.Logprobs = nil, nil, nil, nil
	c.Experts, c.SamplingMask, c.MaskLengths = tokenize.Experts{}, nil, nil
}

// ids unpacks the call's prompts into the memory of the desk and frees the packed ids.
func (x *exchange) ids(desk *desk) (prompt, asked []int32) {
	n, m := x.prompt.Len(), x.asked.Len()
	room := x.asked.AppendTo(x.prompt.AppendTo(slices.Grow(desk.ids[:0], n+m), n), m)
	desk.ids = room
	if n > 0 {
		prompt = room[:n:n]
	}
	if m > 0 {
		asked = room[n:]
	}
	x.call.Prompt, x.call.Asked = prompt, asked
	x.prompt, x.asked = tap.IDs{}, tap.IDs{}
	return prompt, asked
}

// told returns the call that is passed to Continuer.Answered. prompt and asked are the prompts of this
// call. If the engine used a different prompt, the returned call has no output.
func (x *exchange) told(prompt, asked []int32) *tap.Call {
	if prompt == nil || slices.Equal(x.call.Prompt, prompt) {
		return x.call
	}
	c := *x.call
	c.Prompt, c.Asked, c.Output, c.Logprobs = prompt, asked, nil, nil
	return &c
}

func (x *exchange) end() {
	x.hold(0)
	x.finish(false)
	x.drop()
	x.leave()
}

// leave ends the exchange's use of its engine.
func (x *exchange) leave() {
	if x.engine != nil {
		x.engine.busy.Add(-1)
		x.engine = nil
	}
}

// fill copies the parsed answer into the call, if the answer is complete.
func (x *exchange) fill(through bool, desk *desk) {
	r := x.reader
	if r == nil {
		return
	}
	if through {
		r.end()
	}
	why, same := r.call(x.call, desk.ids[len(desk.ids):])
	if why != "" {
		x.p.unread(why)
	}
	if why == session.UnreadExperts || why == session.UnreadMask {
		x.call.Output, x.call.Logprobs = nil, nil // a call without ids is never data
	}
	if !same {
		x.p.unread("prompt_tokens")
	}
}

// unread counts a body from which the proxy was unable to record everything.
func (p *Proxy) unread(why string) {
	p.count(func(s *Stats) { s.Unread[why]++ })
	p.once(slog.LevelInfo, "unread_"+why, errors.New("a request or answer passed through without being parsed"))
}
