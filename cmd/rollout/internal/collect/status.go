package collect

import (
	"fmt"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/show"
)

// The status of a running collection, for metrics, display and signals.

// vitals returns the sources of the metrics. They are empty until the run has begun.
func (c *collection) vitals() show.Vitals {
	if c.began.Load() == nil {
		return show.Vitals{}
	}
	v := show.Vitals{Collector: c.collector.Stats, Sink: c.dataset.Stats, Dir: c.folder.Dir}
	if index := c.taps.Index(); index != nil {
		v.Taps = index.Stats
	}
	return v
}

func (c *collection) view() show.View {
	v := show.View{Stats: c.collector.Stats(), Sink: c.dataset.Stats(), Failing: c.Tally.Failures(), Recovery: c.recovery}
	if c.config.Reward.Kind != config.RewardNone {
		v.Rewards = new(c.Tally.Rewards())
	}
	v.Draining, v.Stopping = c.ending.Load() >= endDrain, c.ending.Load() == endStop
	if until := c.until.Load(); until != nil {
		v.Until = *until
	}
	return v
}

const statusOldest = 10

// showStatus prints the current state of the run for SIGUSR1, unless the display is quiet.
func (c *collection) showStatus() {
	if c.Quiet() {
		return
	}
	phase, _ := c.phase.Load().(string)
	began := c.began.Load()
	if began == nil {
		c.Say("status: %s", phase)
		return
	}
	v := c.view()
	v.Now = time.Now()
	c.Block(fmt.Sprintf("status of run %s in %s: %s, for %s", c.info.ID, c.folder.Dir, phase, format.Duration(time.Since(*began))),
		v.Status(c.collector.Oldest(statusOldest)))
}
