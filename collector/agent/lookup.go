package agent

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/rollout-rl/rollout/collector/letta"
)

const patience = 2 * time.Minute

// patiently repeats a lookup that fails temporarily, until the sample moves to another server. It
// is safe for concurrent use.
func (g *agent) patiently(ctx context.Context, look func() error) error {
	began := time.Now()
	for pause := time.Second; ; pause = min(2*pause, lastLook) {
		err := look()
		if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
			g.outage.Store(true)
		}
		if err == nil || ctx.Err() != nil || !passing(err) || time.Since(began) > patience {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
			continue
		case <-g.attempt.Away:
		case <-ctx.Done():
		}
		timer.Stop()
		return err
	}
}

func passing(err error) bool {
	return errors.Is(err, letta.ErrConnection) || errors.Is(err, letta.ErrUnavailable) ||
		errors.Is(err, letta.ErrBusy) || errors.Is(err, letta.ErrServer) || errors.Is(err, letta.ErrTimeout)
}
