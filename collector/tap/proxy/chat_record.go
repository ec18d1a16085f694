package proxy

import (
	"cmp"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

var errPanic = errors.New("internal error in the tap")

// record stores the call. cut must be true unless the answer is complete.
func (c *chatCall) record(cut bool) error {
	if c.stored {
		return c.failed
	}
	c.stored = true
	t := &c.call.Call
	t.Ended, t.Cut = time.Now(), cut
	if c.x.engine != nil {
		c.p.count(func(s *Stats) { s.Time.observe(t.Ended.Sub(c.x.began)) })
	}
	desk := newDesk()
	defer desk.free() // the memory of the prompt is invalid afterwards
	if c.reader != nil && !c.p.guard("answer", func() { c.call.Unread = c.fill(cut, desk) }) {
		c.call.Unread = "panic"
	}
	if c.call.Unread == "" && c.reader == nil && cut && t.Status == http.StatusOK {
		c.call.Unread = "cut"
	}
	if c.call.Unread != "" && t.Status == http.StatusOK {
		c.p.unread(c.call.Unread)
	}
	c.call.Model = c.adapter()
	if t.Status == http.StatusOK {
		c.call.Answer = c.view.message.json()
	}
	err := errPanic
	c.p.guard("keep", func() { err = c.admission.Add(&c.call, c.q.messages, c.q.tools) })
	c.failed = err
	c.p.guard("continuity", func() { c.remember(cut || err != nil) })
	c.p.count(func(s *Stats) {
		if err == nil {
			s.Kept++
			s.Sessions.Kept++
		} else {
			s.Dropped++
			s.Sessions.Dropped++
		}
	})
	if err != nil {
		c.p.once(slog.LevelError, "not_recorded", err)
	}
	c.p.cfg.Log.Debug("call", "dialect", t.Dialect, "engine", t.Engine, "status", t.Status, "prompt", len(t.Prompt), "output", len(t.Output), "cut", cut)
	t.Prompt, t.Output, t.Logprobs = nil, nil, nil
	t.Experts, t.SamplingMask, t.MaskLengths = tokenize.Experts{}, nil, nil
	return err
}

// adapter returns the name of the model that the engine got, or "" for the engine's own model. SGLang
// accepts MODEL:ADAPTER, but lists only the adapter.
func (c *chatCall) adapter() string {
	if c.model == "" { // no engine got the call
		return ""
	}
	name := c.model
	if base, adapter, ok := strings.Cut(name, ":"); ok && !slices.Contains(c.able.models, name) {
		name = cmp.Or(strings.TrimSpace(adapter), base)
	}
	if name == c.able.own() {
		return ""
	}
	return name
}

// deliver calls write, which writes the last part of an answer that has been recorded. If the client
// was still connected and write returns nil, deliver records that the client has the whole answer.
func (c *chatCall) deliver(write func() error) error {
	if c.client.Err() != nil {
		return errGone
	}
	if err := write(); err != nil {
		return err
	}
	if c.failed == nil && !c.call.Cut && c.call.Status == http.StatusOK && !c.delivered {
		c.delivered = true
		c.p.guard("keep", func() {
			if err := c.admission.Delivered(); err != nil {
				c.p.once(slog.LevelError, "delivery_not_recorded", err)
			}
		})
	}
	return nil
}

// fill copies the parsed answer into the call. It returns the reason why the ids are unusable, or "".
func (c *chatCall) fill(cut bool, desk *desk) (unread string) {
	t, r := &c.call.Call, c.reader
	r.ended = !cut
	unread, same := r.call(t, desk.ids[:0])
	if c.q.several {
		t.Output, t.Logprobs = nil, nil // not of one answer
		return "several"
	}
	if unread == "cut" && r.a.streamed { // keep the tokens that arrived
		r.a.fill(t, desk.ids[:0])
		if t.Output == nil && !r.a.failed && !r.a.several && len(r.a.output) > 0 {
			t.Output, t.Logprobs = r.a.output, r.a.aligned()
		}
		return unread
	}
	switch {
	case unread != "":
	case !same:
		unread = "prompt_tokens"
	default:
		unread = unsound(t)
	}
	switch {
	case unread != "no_ids":
	case c.q.streamed && !c.whole.Load():
		c.downgrade()
	case c.p.doubtful(c.x.engine, c.able):
		c.x.engine.trial.doubted.Store(c.able)
	}
	return unread
}

// downgrade makes the tap ask the engine for whole answers from now on, because a stream lacked ids.
// Some versions of vLLM lose ids in streams with tool calls.
func (c *chatCall) downgrade() {
	able := &c.x.engine.trial.able
	for now := able.Load(); now != nil && now.mode == c.able.mode && now.same(c.able); now = able.Load() {
		a := *now
		a.mode = modeWhole
		if !able.CompareAndSwap(now, &a) {
			continue // the list of models was read
		}
		c.p.cfg.Log.Warn("stream_without_ids", "engine", c.x.engine.name, "change", "the tap now asks the engine for whole answers and sends them as streams")
	}
}
