package agent

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/wait"
)

const lookupTimeout = 2 * time.Minute

// retryLookup repeats a lookup that fails temporarily. It stops after lookupTimeout, or when the
// sample moves to another server. It is safe for concurrent use.
func (g *agent) retryLookup(ctx context.Context, look func() error) error {
	began := time.Now()
	for pause := time.Second; ; pause = min(2*pause, lastLook) {
		err := look()
		if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
			g.outage.Store(true)
		}
		if err == nil || ctx.Err() != nil || !isTemporary(err) || time.Since(began) > lookupTimeout {
			return err
		}
		if !wait.For(ctx, pause, g.attempt.Away) {
			return err
		}
	}
}

func isTemporary(err error) bool {
	return errors.Is(err, letta.ErrConnection) || errors.Is(err, letta.ErrUnavailable) ||
		errors.Is(err, letta.ErrBusy) || errors.Is(err, letta.ErrServer) || errors.Is(err, letta.ErrTimeout)
}
