package runfolder

import (
	"fmt"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
)

// CheckLimit refuses a limit that ends inside a group, for a run that commits whole groups: the
// samples before the limit would wait for the others for ever. Where the tasks cannot be read now
// (a stream, a dry run), it assumes that none has a number of samples of its own.
func CheckLimit(c *config.Config, set *TaskSet) error {
	limit, samples := c.Tasks.Limit, c.Tasks.Samples
	if limit == 0 || !set.grows && limit >= set.Samples {
		return nil
	}
	before := limit - limit%samples
	after := before + samples
	if set.path != "" && !set.grows {
		before, after = 0, 0
		for t, err := range tasks.Read(set.path, nil) {
			if err != nil {
				return exit.With(exit.Folder, err)
			}
			if before, after = after, after+samplesOf(t.Samples, samples); after > limit {
				break
			}
		}
	}
	if before == limit {
		return nil
	}
	hint := fmt.Sprintf("give --limit %d", after)
	if before > 0 {
		hint = fmt.Sprintf("give --limit %d or %d", before, after)
	}
	return exit.Hint(exit.Usagef("tasks.limit: %d samples end inside a group of %d, which is committed whole or not at all (--stream, --until-groups)", limit, after-before), hint)
}
