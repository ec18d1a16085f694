package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/sink/frame"
)

// cancelGrace is how long End waits for cancelled calls.
const cancelGrace = 10 * time.Second

// End seals the session and returns its end. From the start of End, the session admits no new call.
//
// If wait is false, End cancels the calls in flight, and then waits until each has called Done, at
// most 10 s. A cancelled call can still be added, with the part of the answer that arrived. If wait
// is true, End waits for the calls in flight until ctx ends. When no call is in flight, End writes
// the end of the session with the number and the digest of its calls, syncs the file and moves it to
// the sealed sessions. When End returns nil, the sealed session survives a power failure.
//
// End uses e.At (if zero, the current time), e.Reward, e.Metadata and e.FinalText. It sets e.Calls
// and e.Digest. If the session was already ended with the same reward, metadata and final text, End
// returns the first result, also after a restart. If they differ, the error wraps ErrConflict. If
// End fails for another reason, it can be repeated. Until the store is closed, the session then
// still admits no call. If nobody repeats End, the store completes it if the end was written, and
// otherwise the session is removed after MaxAge.
func (x *Session) End(ctx context.Context, e session.End, wait bool) (session.End, error) {
	e, body, err := normalize(e)
	if err != nil {
		return session.End{}, x.err(err)
	}
	cancels, drained, err := x.beginEnd(body, wait)
	if err != nil {
		return session.End{}, err
	}
	for _, cancel := range cancels {
		cancel(x.err(ErrSealed))
	}
	var grace <-chan time.Time // nil, and so never ready, if wait is true
	if !wait {
		timer := time.NewTimer(cancelGrace)
		defer timer.Stop()
		grace = timer.C
	}
	select {
	case <-drained:
	case <-grace:
	case <-x.store.quit: // seal returns ErrClosed
	case <-ctx.Done():
		return session.End{}, x.err(context.Cause(ctx))
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.seal(e); err != nil {
		return session.End{}, err
	}
	return *x.end, nil
}

// normalize returns the end as it is read from a file, and its reward, metadata and final text as
// JSON.
func normalize(e session.End) (session.End, string, error) {
	if e.At.IsZero() {
		e.At = time.Now().UTC()
	}
	text, err := json.Marshal(e)
	if err != nil {
		return e, "", fmt.Errorf("end: %w", err)
	}
	if len(text) > maxPayload-1<<10 {
		return e, "", fmt.Errorf("end: %w", ErrTooLarge)
	}
	e = session.End{}
	if err := json.Unmarshal(text, &e); err != nil { // the metadata is nested too deeply
		return e, "", fmt.Errorf("end: %w", err)
	}
	return e, bodyOf(&e), nil
}

// bodyOf returns the reward, metadata and final text of an end that was parsed from JSON.
func bodyOf(e *session.End) string {
	text, _ := json.Marshal(session.End{Reward: e.Reward, Metadata: e.Metadata, FinalText: e.FinalText}) // cannot fail
	return string(text)
}

// beginEnd stops the admission of calls. It returns the functions that cancel the calls in flight,
// and a channel that is closed when no call is in flight.
func (x *Session) beginEnd(body string, wait bool) (cancels []func(error), drained chan struct{}, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.ready(); err != nil {
		return nil, nil, err
	}
	if err := x.readEnd(); err != nil {
		return nil, nil, err
	}
	if x.phase != phaseOpen && x.ending != body {
		return nil, nil, x.err(ErrConflict)
	}
	if x.phase == phaseOpen {
		x.phase, x.ending, x.drained = phaseEnding, body, make(chan struct{})
	}
	x.drain()
	if !wait {
		for a := range x.flights {
			if a.cancel != nil {
				cancels = append(cancels, a.cancel)
				a.cancel = nil
			}
		}
	}
	return cancels, x.drained, nil
}

// readEnd makes x.end and x.ending available if the session is sealed. The caller must hold x.mu.
func (x *Session) readEnd() error {
	if x.phase != phaseSealed || x.drained != nil {
		return nil
	}
	if x.end == nil { // an earlier process sealed the session
		rec, err := x.store.Read(x.id)
		if err != nil {
			return err
		}
		x.end = rec.End
	}
	x.ended()
	return nil
}

// ended sets the fields of the session that follow from x.end, if no call can be in flight.
func (x *Session) ended() {
	x.ending, x.drained = bodyOf(x.end), make(chan struct{})
	close(x.drained)
}

// seal writes the end of the session and moves the file. Each step that succeeded is skipped when
// seal is called again. The caller must hold x.mu.
func (x *Session) seal(e session.End) error {
	if x.store.isClosed() {
		return x.err(ErrClosed)
	}
	if x.phase == phaseGone {
		return x.err(ErrUnknown)
	}
	if x.failed != nil {
		return x.failed
	}
	if x.end == nil {
		if err := x.deliver(); err != nil {
			return err
		}
		e.Calls, e.Digest = x.state.calls, x.state.sum.String()
		payload := endPayload(e)
		if err := x.write(func(w *frame.Writer) error { return w.Write(payload) }); err != nil {
			return err
		}
		x.end = &e
	}
	return x.place()
}

// place syncs the file, which contains the end of the session, and moves it to the sealed sessions.
// The caller must hold x.mu.
func (x *Session) place() error {
	s := x.store
	if x.phase != phaseSealed {
		if err := x.sync(); err != nil {
			return err
		}
		if err := s.publish(x); err != nil {
			return x.err(s.failed(err))
		}
		x.phase, x.state, x.flights = phaseSealed, nil, nil
	}
	if err := s.syncNames(); err != nil {
		return x.err(s.failed(err))
	}
	return nil
}

// publish gives the session the next name and moves its file. The names are assigned under the lock,
// so that no reader sees a session before an earlier one.
func (s *Store) publish(x *Session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := max(s.last+1, time.Now().UnixNano())
	name := nameOf(n, x.id)
	if err := s.disk.rename(x.path, s.sealedPath(name)); err != nil {
		return err
	}
	s.names.changed.Store(true)
	s.last = n
	writeLast(s.lock, n)
	delete(s.sessions, x.id)
	s.sealed[x.id] = name
	close(s.news)
	s.news = make(chan struct{})
	return nil
}
