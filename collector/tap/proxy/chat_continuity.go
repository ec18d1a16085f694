package proxy

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"
)

// splice finds the place of the request and the changes to its messages.
func (c *chatCall) splice() {
	if c.p.turns == nil {
		return
	}
	began := time.Now()
	c.placed = c.p.guard("continuity", func() { c.at, c.splices = c.p.turns.splice(c.session, c.q) })
	took := time.Since(began)
	c.call.Spliced = len(c.splices) > 0
	c.p.count(func(s *Stats) {
		s.Continuity.observe(took)
		if c.call.Spliced {
			s.Continued++
		}
	})
}

// retract changes the request after the engine refused it, and reports whether it must be sent again.
// It sends the client's own messages instead of changed messages. If the engine was restarted with
// another version or model, it asks for ids in the new way, or uses the new name of the model.
func (c *chatCall) retract(res *http.Response) bool {
	e, status := c.x.engine, res.StatusCode
	switch {
	case len(c.splices) > 0 && slices.Contains(refusals[:], status):
		c.splices, c.call.Spliced = nil, false
		c.p.count(func(s *Stats) { s.SplicesRefused[status]++ })
		c.p.once(slog.LevelWarn, "splice_refused", fmt.Errorf("an engine answered %d to a request that continuity changed; the tap sent the client's own request instead", status))
		return c.prepare(e) == nil
	case status == http.StatusBadRequest, status == http.StatusNotFound, status == http.StatusUnprocessableEntity:
		if statesOverflow(peek(res)) || !c.p.doubtful(e, c.able) {
			return false
		}
		before, model := c.able, c.model
		a, err := c.p.able(c.req.Context(), e, before)
		return err == nil && c.fit(e, a) == nil && (c.able.mode != before.mode || c.able.colon != before.colon || c.model != model)
	}
	return false
}

// remember keeps the answer, so that it is recognized in later requests.
func (c *chatCall) remember(cut bool) {
	if !c.placed || c.call.Status != http.StatusOK {
		return
	}
	var a *said
	switch m := c.view.message; {
	case m == nil: // several answers
		a = &said{wild: true}
	case c.call.Answer != nil:
		name := 0
		if !m.thoughts.known() && m.reasoning.known() {
			name = 1
		}
		a = newSaid(string(c.call.Answer), name, !cut)
	}
	if a != nil {
		c.p.turns.add(c.session, c.at, a)
	}
}
