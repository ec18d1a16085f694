package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"time"

	"github.com/rollout-rl/rollout/collector/tap"
)

// An exchange is one request and its answer. Only one goroutine at a time calls its methods, in
// this order:
//
//	begin      reads and rewrites the request           only for a generation
//	chosen     an engine has been selected              once for each engine that is tried
//	restore    the engine refused the Continuer's prompt; restores the server's own prompt
//	answered   the head of the answer has arrived
//	           then the body is forwarded, and the reader parses it
//	finish     records the call, before the client has the end of the answer
//	end        frees the memory
type exchange struct {
	p        *Proxy
	d        dialect
	call     *tap.Call // nil if not a generation or not parsed; finish sets the prompt
	blind    *tap.Call // nil if not a generation; recorded if call is nil
	body     *payload  // the request body, until the head of the answer arrives
	held     int64     // the exchange's share of p.memory
	streamed bool
	set      bool // whether Config.Set changed the request
	chain    chain
	prompt   tap.IDs // the ids sent to the engine, if known
	asked    tap.IDs // the ids that the server sent, if different
	spliced  int     // number of turns in which the two prompts differ
	own      idList  // the server's prompt as a list in the body
	engine   *engine
	reader   *reader
	began    time.Time // when the request was sent to the engine
	headed   bool      // whether the head of the engine's answer is forwarded to the client
	finished bool
	// prepare, if not nil, sets body for the chosen engine. After an error, the next engine is tried.
	prepare func(e *engine) error
	// retract, if not nil, replaces restore.
	retract func(*http.Response) bool
}

// begin reads and rewrites a request for a generation. A body that exceeds the limits is forwarded
// without being parsed. begin returns false if it cannot read the whole body.
func (x *exchange) begin(d dialect, r *http.Request) bool {
	p := x.p
	x.blind = newCall(d)
	if p.cfg.Continuer != nil {
		r.Header.Set("Accept-Encoding", "identity") // because a compressed answer cannot be marked
	}
	if r.ContentLength > p.limits.BodyBytes || p.memory.Load() > p.limits.MemoryBytes {
		p.unread("too_large")
		return true
	}
	desk := newDesk()
	defer desk.free()
	body, whole, err := x.read(r, desk)
	if err != nil {
		return false
	}
	if !whole {
		p.unread("too_large")
		x.hold(0)
		r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(slices.Clone(body)), r.Body))
		return true
	}
	x.d, x.call = d, newCall(d)
	if !p.guard("request", func() { x.understand(r.URL.Path, body, desk) }) {
		x.body, x.call, x.set = nil, nil, false
		x.prompt, x.asked, x.own, x.spliced = tap.IDs{}, tap.IDs{}, idList{}, 0
		p.unread("panic")
	}
	if x.body == nil {
		x.body = &payload{front: slices.Clone(body)}
	}
	if n := x.body.size(); n != r.ContentLength && r.ContentLength >= 0 {
		r.ContentLength = n
		r.Header.Del("Content-Length") // net/http sets the correct value
	}
	b := x.body
	x.hold(int64(len(b.front) + len(b.list.raw) + len(b.back) + len(x.own.raw) + x.prompt.Bytes() + x.asked.Bytes()))
	return true
}

// read reads the body of a request into the memory of the desk. It stops if the body exceeds the
// limits; whole is then false.
func (x *exchange) read(r *http.Request, desk *desk) (body []byte, whole bool, err error) {
	x.hold(max(0, r.ContentLength)) // reserve before reading, because many bodies can arrive at the same time
	return desk.read(r.Body, r.ContentLength, func(n int64) bool {
		x.hold(n)
		return n <= x.p.limits.BodyBytes && x.p.memory.Load() <= x.p.limits.MemoryBytes
	})
}

func newCall(d dialect) *tap.Call {
	return &tap.Call{Began: time.Now(), Dialect: d.name(), Matched: -1, PromptTokens: -1, OutputTokens: -1, Cached: -1}
}

// hold sets the exchange's share of p.memory to n bytes.
func (x *exchange) hold(n int64) {
	x.p.memory.Add(n - x.held)
	x.held = n
}

// understand parses and rewrites a body. If the body cannot be parsed, it is forwarded unchanged
// and the call is recorded without contents.
func (x *exchange) understand(path string, body []byte, desk *desk) {
	p := x.p
	q := &request{path: path, body: body, room: desk.ids}
	desk.s.ResetBytes(body)
	err := x.d.request(desk.s, q)
	if err == nil {
		err = desk.s.End()
	}
	if q.prompt != nil {
		desk.ids = q.prompt // q.prompt might be a larger slice
	}
	if err != nil {
		x.call = nil
		p.unread("malformed")
		return
	}
	var asks []ask
	if p.cfg.AskIDs {
		asks = x.d.asks(q)
	}
	edits := q.edits(&p.cfg.Set, asks)
	x.set = p.cfg.Set.members(q.keys) != nil
	if q.several {
		x.call = nil
		p.unread("several")
	}
	prompt := q.prompt
	if q.several || q.foreign {
		prompt = nil
	}
	if prompt == nil {
		x.body = &payload{front: edited(body, edits)}
		x.chain = chainOfText(q.grows)
	} else {
		x.body = around(body, q.promptAt, edits)
		x.own = pack(body[q.promptAt.from:q.promptAt.to], prompt)
		x.give(x.own, prompt)
		if sent := x.continued(prompt); sent != nil {
			x.asked = x.prompt
			x.give(packed(sent), sent)
		} else {
			x.own = idList{}
		}
	}
	if x.call != nil {
		x.call.Sampling = q.told(&p.cfg.Set)
		x.streamed = q.streamed
	}
}

func (x *exchange) give(list idList, ids []int32) {
	x.body = &payload{front: x.body.front, list: list, back: x.body.back}
	if x.prompt = list.ids; x.prompt.Len() == 0 {
		x.prompt = tap.PackIDs(ids)
	}
	x.chain = chainOf(ids)
}

// continued returns the Continuer's replacement for the server's prompt, or nil if the server's
// prompt must be sent unchanged.
func (x *exchange) continued(asked []int32) (sent []int32) {
	p := x.p
	if p.cfg.Continuer == nil || p.unmarked.Load() {
		return nil
	}
	began := time.Now()
	spliced := 0
	p.guard("continuity", func() { sent, spliced = p.cfg.Continuer.Prompt(asked) })
	took := time.Since(began)
	p.count(func(s *Stats) { s.Continuity.observe(took) })
	if len(sent) == 0 || slices.Equal(sent, asked) || slices.Min(sent) < 0 {
		return nil
	}
	p.count(func(s *Stats) { s.Continued++ })
	x.spliced = max(spliced, 1)
	return sent
}

// restore restores the server's prompt if the engine refused a changed prompt. It reports whether
// the request must be sent again.
func (x *exchange) restore(res *http.Response) bool {
	if x.retract != nil {
		return x.retract(res)
	}
	status := res.StatusCode
	if x.own.size == 0 || !slices.Contains(refusals[:], status) {
		return false
	}
	n := x.asked.Len()
	x.give(x.own, x.asked.AppendTo(make([]int32, 0, n), n))
	x.own, x.asked, x.spliced = idList{}, tap.IDs{}, 0
	x.p.count(func(s *Stats) { s.SplicesRefused[status]++ })
	x.p.once(slog.LevelWarn, "splice_refused", fmt.Errorf("an engine answered %d to a prompt that --continuity changed; the tap sent the server's own prompt instead", status))
	return true
}

// refusals contains the statuses with which an engine refuses a request body, for example because
// the prompt is too long or contains unknown ids. Errors with other statuses do not depend on the
// prompt.
var refusals = [...]int{http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity}

func (x *exchange) chosen(e *engine) error {
	x.engine, x.began = e, time.Now()
	if x.call != nil {
		x.call.Engine = e.name
	}
	if x.prepare != nil {
		return x.prepare(e)
	}
	return nil
}

// answered handles the head of the answer and wraps the body so that the reader parses it. It
// returns an error if the answer must not be forwarded to the client.
func (x *exchange) answered(res *http.Response) error {
	x.p.answered(res.StatusCode, x.set)
	x.body, x.own = nil, idList{}
	x.hold(0)
	if x.blind == nil {
		return nil
	}
	understood := x.call != nil
	if !understood {
		// Record a call without contents, so that readers of the calls know that this call exists.
		x.call = x.blind
		x.call.Engine = x.engine.name
	}
	x.call.Status = res.StatusCode
	if understood && res.StatusCode == http.StatusOK && x.readable(res.Header) {
		x.p.guard("answer", func() { x.reader = newReader(x.d, x.streamed) })
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

// finish records the call. through must be true only if the answer was complete.
func (x *exchange) finish(through bool) {
	p, c := x.p, x.call
	if c == nil || x.finished {
		return
	}
	x.finished = true
	c.Cut, c.Ended = !through, time.Now()
	if x.engine != nil {
		p.count(func(s *Stats) { s.Time.observe(c.Ended.Sub(x.began)) })
	}
	desk := newDesk()
	defer desk.free() // the memory of c is invalid afterwards
	sent := x.ids(desk)
	p.guard("answer", func() { x.fill(through, desk) })
	if p.cfg.Continuer != nil {
		p.guard("continuity", func() { p.cfg.Continuer.Answered(x.told(sent)) })
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
	if sent.prompt != nil && slices.Equal(c.Prompt, sent.prompt) && c.Output != nil {
		p.guard("balance", func() { p.balance.places.put(x.chain.grow(c.Prompt, c.Output), x.engine) })
	}
	p.cfg.Log.Debug("call", "dialect", c.Dialect, "engine", c.Engine, "status", c.Status, "prompt", len(c.Prompt), "output", len(c.Output), "cut", c.Cut)
	c.Prompt, c.Asked, c.Output, c.Logprobs = nil, nil, nil, nil
}

type prompts struct{ prompt, asked []int32 }

// ids unpacks the call's prompts into the memory of the desk and frees the packed ids.
func (x *exchange) ids(desk *desk) (sent prompts) {
	n, m := x.prompt.Len(), x.asked.Len()
	room := x.asked.AppendTo(x.prompt.AppendTo(slices.Grow(desk.ids[:0], n+m), n), m)
	desk.ids = room
	if n > 0 {
		sent.prompt = room[:n:n]
	}
	if m > 0 {
		sent.asked = room[n:]
	}
	x.call.Prompt, x.call.Asked = sent.prompt, sent.asked
	x.prompt, x.asked = tap.IDs{}, tap.IDs{}
	return sent
}

// told returns the call that is passed to Continuer.Answered. sent contains the prompts for this
// call. If the engine used a different prompt, the returned call has no output.
func (x *exchange) told(sent prompts) *tap.Call {
	if sent.prompt == nil || slices.Equal(x.call.Prompt, sent.prompt) {
		return x.call
	}
	c := *x.call
	c.Prompt, c.Asked, c.Output, c.Logprobs = sent.prompt, sent.asked, nil, nil
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
	if !same {
		x.p.unread("prompt_tokens")
	}
}

// unread counts a body from which the proxy was unable to record everything.
func (p *Proxy) unread(why string) {
	p.count(func(s *Stats) { s.Unread[why]++ })
	p.once(slog.LevelInfo, "unread_"+why, errors.New("a request or answer passed through without being parsed"))
}
