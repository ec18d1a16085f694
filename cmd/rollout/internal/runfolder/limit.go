package runfolder

import (
	"fmt"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/collector"
)

// CheckLimit rejects a limit that ends inside a group of a run that commits whole groups: the
// samples before the limit would wait forever for the others. Tasks that have not arrived (stream,
// dry run) count with the run's number of samples; see CheckSamples.
func CheckLimit(c *config.Config, set *TaskSet) error {
	limit, samples := c.Tasks.Limit, c.Tasks.Samples
	if limit == 0 || !set.grows && limit >= set.Samples {
		return nil
	}
	before, after := 0, 0
	if set.path != "" && set.Tasks > 0 {
		for t, err := range tasks.Read(set.path, nil) {
			if err != nil {
				return exit.With(exit.Folder, err)
			}
			if before, after = after, after+samplesOf(t.Samples, samples); after > limit {
				break
			}
		}
	}
	if after <= limit {
		before = limit - (limit-after)%samples
		after = before + samples
	}
	if before == limit {
		return nil
	}
	hint := fmt.Sprintf("use --limit %d", after)
	if before > 0 {
		hint = fmt.Sprintf("use --limit %d or %d", before, after)
	}
	return exit.Hint(exit.Usagef("tasks.limit: %d samples end inside a group of %d, which is only committed whole (--stream, --until-groups)", limit, after-before), hint)
}

// CheckSamples rejects a streamed task that sets its own number of samples if the run has a limit.
// The limit could then end inside a group.
func CheckSamples(c *config.Config, t *collector.Task) error {
	if own, samples := samplesOf(t.Samples, c.Tasks.Samples), c.Tasks.Samples; c.Tasks.Limit > 0 && own != samples {
		return fmt.Errorf("samples: %d, but each task has %d: tasks.limit could end inside a group; remove one of the two", own, samples)
	}
	return nil
}
