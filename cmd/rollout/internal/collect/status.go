package collect

import (
	"fmt"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/show"
)

// view returns the state of the run for the display.
func (r *Running) view() show.View {
	v := show.View{Stats: r.collector.Stats(), Sink: r.opened.dataset.Stats(), Failing: r.host.Tally.Failures(), Recovery: r.opened.recovery}
	if r.plan.config.Reward.Kind != config.RewardNone {
		v.Rewards = new(r.host.Tally.Rewards())
	}
	v.Draining, v.Stopping = r.ends.draining(), r.ends.stopping()
	if until := r.ends.until.Load(); until != nil {
		v.Until = *until
	}
	return v
}

const statusOldest = 10

// showStatus prints the current state of the run.
func (r *Running) showStatus() {
	v := r.view()
	v.Now = time.Now()
	r.host.Block(fmt.Sprintf("status of run %s in %s: %s, for %s", r.plan.info.ID, r.plan.dir(), r.host.Phase(), format.Duration(time.Since(r.began))),
		v.Status(r.collector.Oldest(statusOldest)))
}
