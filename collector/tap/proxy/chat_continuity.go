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

// retract makes the proxy send the client's own messages, if the engine refused the changed
// messages. It reports whether the request must be sent again.
func (c *chatCall) retract(status int) bool {
	if len(c.splices) == 0 || !slices.Contains(refusals[:], status) {
		return false
	}
	c.splices, c.call.Spliced = nil, false
	c.x.body = &payload{parts: c.q.parts(&c.p.cfg.Set, c.able, nil)}
	c.p.count(func(s *Stats) { s.SplicesRefused[status]++ })
	c.p.once(slog.LevelWarn, "splice_refused", fmt.Errorf("an engine answered %d to a request that continuity changed; the tap sent the client's own request instead", status))
	return true
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
