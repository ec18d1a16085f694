package proxy

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
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
	call     *tap.Call // nil if not a generation; finish sets the prompt
	parsed   bool      // whether the request could be parsed; otherwise call gets no contents
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
	x.call = newCall(d)
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
	arrived := time.Now()
	x.d, x.parsed = d, true
	if !p.guard("request", func() { x.understand(r.URL.Path, body, desk) }) {
		x.body, x.parsed, x.set = nil, false, false
		x.prompt, x.asked, x.own, x.spliced = tap.IDs{}, tap.IDs{}, idList{}, 0
		p.unread("panic")
	}
	if x.parsed {
		x.call.Began = arrived
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
		x.parsed = false
		p.unread("malformed")
		return
	}
	var asks []ask
	if p.cfg.AskIDs {
		asks = x.d.asks(q)
	}
	asks = append(asks, insideAsks(p.cfg.Inside)...)
	edits := q.edits(&p.cfg.Set, asks)
	x.set = p.cfg.Set.members(q.keys) != nil
	if q.several {
		x.parsed = false
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
	if x.parsed {
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
	if x.parsed {
		x.call.Engine = e.name
	}
	if x.prepare != nil {
		return x.prepare(e)
	}
	return nil
}
