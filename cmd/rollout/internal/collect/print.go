package collect

import (
	"cmp"
	"context"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/machine"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/serverruns"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/sink"
)

// Print prints the plan of a dry run.
func (p *Plan) Print(ctx context.Context) error {
	out, resumed := p.host.Stdout, p.earlier != nil
	var committed, waiting, failed int
	if resumed {
		var err error
		if committed, waiting, failed, err = countHeld(p.dir()); err != nil {
			return err
		}
	}
	var found serverruns.Counts
	if p.options.Reads {
		var err error
		if found, err = p.countRuns(ctx); err != nil {
			return err
		}
	}
	slots := machine.Sum(p.inFlight)
	if p.options.JSON {
		plan := map[string]any{
			"event": "plan", "tasks": p.tasks.Tasks, "planned": p.info.Tasks.Planned, "bad_tasks": p.tasks.Bad, "servers": p.info.Servers,
			"max_in_flight": slots, "dir": p.dir(), "format": p.config.Output.Format, "prompts": p.config.Tokens.Prompts, "preflight": p.config.Run.Preflight,
			"resumed": resumed, "committed": committed, "waiting": waiting, "failed": failed,
		}
		if p.config.Recorded() {
			delete(plan, "prompts")
		}
		if p.options.Reads {
			name := "server_runs"
			if p.config.Kind() == config.KindSessions {
				name = "sessions"
			}
			plan[name] = map[string]int{"new": found.Given, "known": found.Known, "running": found.Running}
		}
		if err := format.NewJSONEncoder(out).Encode(plan); err != nil {
			return err
		}
		return p.checkMatched(found)
	}
	termsafe.Fprintf(out, "tasks      %d, %d bad tasks skipped\n", p.tasks.Tasks, p.tasks.Bad)
	termsafe.Fprintf(out, "planned    %d samples", p.info.Tasks.Planned)
	if resumed {
		termsafe.Fprintf(out, ", %d of them committed, %d failed", committed, failed)
	}
	if waiting > 0 {
		termsafe.Fprintf(out, ", %d finished (in the write-ahead log)", waiting)
	}
	termsafe.Fprintf(out, "\n")
	kind := p.config.Kind()
	for _, s := range p.info.Servers {
		switch kind {
		case config.KindHarness:
			termsafe.Fprintf(out, "harness    %s\n", p.config.HarnessName())
			termsafe.Fprintf(out, "engine     %s, model %s\n", s.URL, termsafe.Text(s.Model.Name, 80))
		case config.KindSessions:
			termsafe.Fprintf(out, "sessions   %s\n", s.URL)
		default:
			termsafe.Fprintf(out, "server     %s, version %s\n", s.URL, s.Version)
		}
	}
	if p.options.Reads {
		termsafe.Fprintf(out, "found      %s\n", p.describeFound(found))
	} else if kind == config.KindAgents {
		termsafe.Fprintf(out, "model      %s\n", cmp.Or(p.config.Agent.Model, "-"))
	}
	termsafe.Fprintf(out, "in flight  at most %d\n", slots)
	if !p.config.Recorded() {
		termsafe.Fprintf(out, "prompts    %s\n", p.config.Tokens.Prompts)
	}
	if p.config.Run.Preflight == config.PreflightCall && p.checks[0].Try != nil {
		termsafe.Fprintf(out, "preflight  one model call per server at the start of the run; to make it now, run rollout doctor\n")
	}
	termsafe.Fprintf(out, "output     %s, %s\n", p.dir(), p.config.Output.Format)
	return p.checkMatched(found)
}

// checkMatched returns an error if a dry run finds no server runs or sessions.
func (p *Plan) checkMatched(found serverruns.Counts) error {
	if p.options.Reads && !p.options.RetryFailed && found.Total() == 0 && !p.config.Tasks.Follow {
		return p.unmatchedError()
	}
	return nil
}

// countHeld returns the numbers of a run's samples that are committed, that are in the write-ahead
// log, and that have failed.
func countHeld(dir string) (committed, waiting, failed int, err error) {
	held, err := sink.ReadLedger(nil, dir)
	if err != nil {
		return 0, 0, 0, runfolder.ReadError(dir, err)
	}
	done, failed := held.Counts()
	waiting = held.Waiting()
	return done - waiting, waiting, failed, nil
}

// countRuns counts the server runs or sessions that the run would read.
func (p *Plan) countRuns(ctx context.Context) (serverruns.Counts, error) {
	feed := p.feed(p.tasks.Has)
	for _, err := range feed.Tasks(ctx) {
		if err != nil {
			return serverruns.Counts{}, p.runsError(err)
		}
	}
	return feed.Counts(), context.Cause(ctx)
}
