package policy

import (
	"context"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/collector/wait"
	"github.com/rollout-rl/rollout/tokenize"
)

// A Span represents one send, from just before the send starts until its answer has been read. The
// version of a nil Span is unknown.
type Span struct {
	source *Source
	before int32 // number on the page before the send, or the claim; can be Unknown
	gaps   int   // Source.gaps at the start of the send
	claims int   // Source.claims at the start of the send
	from   time.Time
	once   sync.Once
	done   chan struct{} // closed when the field after is final
	after  int32
}

// Begin records that a send is about to start. It waits for the first answer from the page, for at
// most Patience plus Delay. It does not wait for later answers.
func (s *Source) Begin(ctx context.Context) *Span {
	if s == nil {
		return nil
	}
	sp := &Span{source: s, before: Unknown, after: Unknown, done: make(chan struct{})}
	if s.cfg.URL == "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		sp.before, sp.claims = s.claim, s.claims
		return sp
	}
	s.awaitFirst(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running && !s.discredited && s.cfg.OneEngine {
		sp.before, sp.gaps = s.versionAt(time.Now().Add(-s.cfg.Delay)), s.gaps
	}
	return sp
}

// awaitFirst waits until an answer from the page is old enough to be used as the answer before a
// send.
func (s *Source) awaitFirst(ctx context.Context) {
	s.mu.Lock()
	idle := !s.running || s.discredited || !s.cfg.OneEngine
	s.mu.Unlock()
	if idle {
		return
	}
	if wait.For(ctx, s.cfg.Patience, s.first) || ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	left := time.Duration(0)
	if len(s.answers) > 0 {
		left = time.Until(s.answers[0].ended.Add(s.cfg.Delay))
	}
	s.mu.Unlock()
	if left > 0 {
		wait.For(ctx, left)
	}
}

// versionAt returns the number from the newest request that ended no later than the given time. The
// caller must hold Source.mu.
func (s *Source) versionAt(then time.Time) int32 {
	newest := -1
	for i := range s.answers {
		if s.answers[i].ended.After(then) {
			break
		}
		newest = i
	}
	if newest < 0 {
		return Unknown
	}
	s.answers = s.answers[newest:] // older answers are no longer needed, because time only advances
	return s.answers[0].version
}

// End records that the answer to the send has been read, or that the server run of the send has
// ended. Only the first call has an effect.
func (sp *Span) End() {
	if sp == nil {
		return
	}
	sp.once.Do(func() {
		s := sp.source
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.cfg.URL == "" && sp.claims == s.claims {
			sp.after = sp.before
		}
		if s.cfg.URL == "" || sp.before == Unknown {
			close(sp.done)
			return
		}
		if !s.running || s.discredited {
			close(sp.done)
			return
		}
		sp.from = time.Now().Add(s.cfg.Delay)
		s.pending = append(s.pending, sp)
		select {
		case s.nudge <- struct{}{}:
		default: // Run has already been nudged
		}
	})
}

// Version returns the version that sampled every call of the send, and the source of that version.
// The version is Unknown if the page returned different numbers before and after the send, or did
// not answer in time. Version waits for the answer after the send, for at most Delay + Gap + 2 ×
// Patience. End must have been called.
func (sp *Span) Version(ctx context.Context) (int32, tokenize.VersionSource) {
	if sp == nil {
		return Unknown, tokenize.VersionTrace
	}
	s := sp.source
	if s.cfg.URL == "" {
		from := tokenize.VersionFlag
		if sp.claims > 0 {
			from = tokenize.VersionSet
		}
		return sp.claimed(), from
	}
	limit := time.Until(sp.from) + s.cfg.Gap + 2*s.cfg.Patience // an earlier request might still be in progress
	if wait.For(ctx, limit, sp.done) || ctx.Err() != nil {
		return Unknown, tokenize.VersionURL
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sp.before == Unknown || sp.before != sp.after || s.discredited {
		return Unknown, tokenize.VersionURL
	}
	return sp.before, tokenize.VersionURL
}
