package harness_test

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/rollout-rl/rollout/collector/harness"
	"github.com/rollout-rl/rollout/collector/session"
)

// A keeper remembers the key of the last session, its end as JSON, and the number of its calls.
type keeper struct {
	harness.Sessions
	key   session.Key
	last  string
	calls int
}

func (k *keeper) Read(id string) (*session.Record, error) {
	record, err := k.Sessions.Read(id)
	if err == nil {
		k.calls = len(record.Calls)
	}
	return record, err
}

func (k *keeper) Begin(h session.Head) (session.Key, error) {
	var err error
	k.key, err = k.Sessions.Begin(h)
	return k.key, err
}

func (k *keeper) End(ctx context.Context, key session.Key, e session.End) error {
	text, _ := json.Marshal(e)
	k.last = string(text)
	return k.Sessions.End(ctx, key, e)
}

// broken cannot begin a session.
type broken struct{ harness.Sessions }

func (broken) Begin(session.Head) (session.Key, error) { return "", errors.New("no space left") }
