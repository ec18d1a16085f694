package harness

import (
	"context"

	"github.com/rollout-rl/rollout/collector/session"
)

// Sessions stores the sessions that the proxy serves under Config.BaseURL. Its methods must be safe
// for concurrent use.
type Sessions interface {
	// Begin begins a session and returns its key.
	Begin(h session.Head) (session.Key, error)
	// End seals a session and cancels its calls in flight. When End has returned, the record is
	// complete and synced.
	End(ctx context.Context, key session.Key, e session.End) error
	// Read returns a sealed session. If there is no such session, it returns an error.
	Read(id string) (*session.Record, error)
	// Remove removes a sealed session. Removing a session that does not exist is an error.
	Remove(id string) error
}
