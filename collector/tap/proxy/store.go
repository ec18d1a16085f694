package proxy

import (
	"context"
	"errors"
	"net/http"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/session/store"
)

// FromStore returns the Sessions of a store.
func FromStore(s *store.Store) Sessions { return storeSessions{s} }

type storeSessions struct{ *store.Store }

func (s storeSessions) Open() int { return s.Stats().Open }

func (s storeSessions) Known(key session.Key) error {
	_, err := s.Session(key)
	return err
}

func (s storeSessions) Admit(key session.Key, cancel func(error)) (Admission, error) {
	x, err := s.Session(key)
	if err != nil {
		return nil, err
	}
	a, err := x.Admit(cancel)
	if err != nil {
		return nil, err // without a, which would be a nil pointer in an interface
	}
	return a, nil
}

func (s storeSessions) End(ctx context.Context, key session.Key, e session.End, wait bool) (session.End, error) {
	x, err := s.Session(key)
	if err != nil {
		return session.End{}, err
	}
	return x.End(ctx, e, wait)
}

// refused returns the answer to a client whose request the Sessions refused.
func (p *Proxy) refused(err error) *refusal {
	switch {
	case errors.Is(err, store.ErrUnknown):
		return errUnknownKey
	case errors.Is(err, store.ErrSealed):
		return errSealed
	case errors.Is(err, store.ErrConflict):
		return &refusal{http.StatusConflict, "conflict", "the session has already been ended with a different reward, metadata or final text"}
	case errors.Is(err, store.ErrTooLarge):
		return &refusal{http.StatusRequestEntityTooLarge, "too_large", err.Error()}
	case errors.Is(err, store.ErrClosed):
		return errDraining
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &refusal{http.StatusServiceUnavailable, "canceled", "the request was canceled before the session was sealed; repeat it"}
	}
	return &refusal{http.StatusInsufficientStorage, "not_recorded", "the session cannot be recorded: " + err.Error()}
}
