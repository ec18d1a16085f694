package harness

import (
	"context"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/session/store"
)

// FromStore returns the Sessions of a store in this process.
func FromStore(s *store.Store) Sessions { return stored{s} }

type stored struct{ *store.Store }

func (s stored) End(ctx context.Context, key session.Key, e session.End) error {
	x, err := s.Session(key)
	if err != nil {
		return err
	}
	_, err = x.End(ctx, e, false)
	return err
}
