package collect

import (
	"cmp"
	"context"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/machine"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/plainjson"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/serverruns"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
)

func (c *collection) dryRun(ctx context.Context) error {
	p, resumed := c.program, c.earlier != nil
	var committed, waiting, failed int
	if resumed {
		var err error
		if committed, waiting, failed, err = heldOf(c.config.Output.Dir); err != nil {
			return err
		}
	}
	var found serverruns.Counts
	if c.options.FromRuns {
		var err error
		if found, err = c.countRuns(ctx); err != nil {
			return err
		}
	}
	slots := machine.Sum(c.inFlight)
	if c.options.JSON {
		plan := map[string]any{
			"event": "plan", "tasks": c.tasks.Tasks, "planned": c.info.Tasks.Planned, "bad_tasks": c.tasks.Bad, "servers": c.info.Servers,
			"max_in_flight": slots, "dir": c.config.Output.Dir, "format": c.config.Output.Format, "prompts": c.config.Tokens.Prompts, "preflight": c.config.Run.Preflight,
			"resumed": resumed, "committed": committed, "waiting": waiting, "failed": failed,
		}
		if c.options.FromRuns {
			plan["server_runs"] = map[string]int{"new": found.Given, "known": found.Known, "running": found.Running}
		}
		if err := plainjson.NewEncoder(p.Stdout).Encode(plan); err != nil {
			return err
		}
		return c.dryMatched(found)
	}
	termsafe.Fprintf(p.Stdout, "tasks      %d, %d bad ones skipped\n", c.tasks.Tasks, c.tasks.Bad)
	termsafe.Fprintf(p.Stdout, "planned    %d samples", c.info.Tasks.Planned)
	if resumed {
		termsafe.Fprintf(p.Stdout, ", %d of them committed, %d failed", committed, failed)
	}
	if waiting > 0 {
		termsafe.Fprintf(p.Stdout, ", %d finished (in the write-ahead log)", waiting)
	}
	termsafe.Fprintf(p.Stdout, "\n")
	for _, s := range c.info.Servers {
		termsafe.Fprintf(p.Stdout, "server     %s, version %s\n", s.URL, s.Version)
	}
	if c.options.FromRuns {
		termsafe.Fprintf(p.Stdout, "runs       %s\n", foundText(found))
	} else {
		termsafe.Fprintf(p.Stdout, "model      %s\n", cmp.Or(c.config.Agent.Model, "-"))
	}
	termsafe.Fprintf(p.Stdout, "in flight  at most %d\n", slots)
	termsafe.Fprintf(p.Stdout, "prompts    %s\n", c.config.Tokens.Prompts)
	if c.config.Run.Preflight == config.PreflightCall && !c.options.FromRuns {
		termsafe.Fprintf(p.Stdout, "preflight  one model call per server at the start of the run; rollout doctor makes it now\n")
	}
	termsafe.Fprintf(p.Stdout, "output     %s, %s\n", c.config.Output.Dir, c.config.Output.Format)
	return c.dryMatched(found)
}

// dryMatched returns the error of a dry run that matches no server run.
func (c *collection) dryMatched(found serverruns.Counts) error {
	if c.options.FromRuns && !c.options.RetryFailed && found.Total() == 0 && !c.config.Tasks.Follow {
		return c.unmatchedError()
	}
	return nil
}
