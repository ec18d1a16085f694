package collect

import (
	"fmt"
	"strings"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector"
)

// Options are the flags of collect that are not settings.
type Options struct {
	DryRun, JSON, Quiet bool
	Resume              bool
	Stream, Attached    bool   // Stream: tasks arrive during the run; Attached: standard input is a pipe from the parent process
	StreamFlag          bool   // true if --stream was given
	Reads               bool   // true if the run reads server runs or sessions, and does not drive agents
	IgnoreClaim         bool   // --unclaimed: set-version has replaced the claimed policy version
	Unpaced             bool   // --unpaced: the client applies the limits on groups, to several collectors
	RetryFailed         bool   // collect the failed samples instead of the remaining samples
	Fleet               *Fleet // the fleet to work for; nil for a run of its own
}

// ReadRuns sets Reads if tasks.from_runs or tasks.from_sessions is set. Such a run is a stream, except with
// --retry-failed, because all tasks to retry are already known.
func (o *Options) ReadRuns(c *config.Config) {
	o.Reads, o.StreamFlag = c.Tasks.FromRuns != nil || c.Tasks.FromSessions != "", o.Stream
	o.Stream = o.Stream || o.Reads && !o.RetryFailed
}

// CheckSameKind returns an error if a resumed run would get its rollouts from another kind of source
// than before.
func CheckSameKind(l *config.Loader, info *runfolder.Info) error {
	if f := info.Fleet; f != nil {
		return exit.Hint(exit.With(exit.Folder, fmt.Errorf("%s is the spool of a worker for %s", l.Config.Output.Dir, f.Location)), "continue with: "+runfolder.ResumeCommand(l.Config.Output.Dir))
	}
	had := config.NewLoader(func(string) string { return "" })
	had.FromRun(info.Config, "tasks", "harness")
	before, now := had.Config.Kind(), l.Config.Kind()
	if before == now {
		return nil
	}
	key := now.Key // the setting that this invocation has added
	if now == config.KindAgents {
		key = before.Key
	}
	return runfolder.Refuse(l.Config.Output.Dir, exit.Complaints{fmt.Errorf("%s: this run %s and cannot %s", key, before.Does, now.Do)})
}

// arriving reports whether tasks arrive during the run.
func (o *Options) arriving() bool { return o.Stream || o.Fleet != nil }

// Check returns a complaint for each setting that conflicts with --stream or is valid only with it.
func (o *Options) Check(l *config.Loader) (bad exit.Complaints) {
	complain := func(ok bool, format string, args ...any) {
		if !ok {
			bad = append(bad, fmt.Errorf(format, args...))
		}
	}
	c, file := l.Config, l.ByKey["tasks.file"].Given()
	complain(!o.StreamFlag || !o.Reads, "--stream: cannot be used with tasks.from_runs or tasks.from_sessions; --follow collects what ends later")
	complain(o.Stream || !o.Attached, "--attached: needs --stream")
	complain(o.Stream || !o.Unpaced, "--unpaced: needs --stream")
	complain(!o.Unpaced || !o.Reads && c.Tasks.File == "", "--unpaced: several collectors cannot share tasks.file, tasks.from_runs or tasks.from_sessions; pass the tasks over the sockets (rollout.collect: tasks=)")
	complain(!o.Unpaced || c.Run.MetricsAddr == "" || strings.HasSuffix(c.Run.MetricsAddr, ":0"), "--unpaced: several collectors cannot share the port of run.metrics_addr; use port 0, so that each gets a free port")
	complain(!o.Attached || c.Tasks.File != "-" || file == "", "--attached: tasks cannot be read from standard input; remove --tasks -")
	complain(!o.StreamFlag || !o.RetryFailed, "--stream and --retry-failed cannot be used together: --retry-failed accepts no new tasks")
	complain(!o.RetryFailed || !c.Tasks.Follow || l.ByKey["tasks.follow"].Origin != "--follow", // a file can set tasks.follow for other invocations
		"--follow and --retry-failed cannot be used together: --retry-failed reads only what could not be read before")
	complain(!o.Stream || c.Run.Tail.Kind != collector.TailOversample, "run.tail: oversample cannot be used with --stream, because the number of samples is unknown")
	if l.ByKey["run.max_ahead"].Given() != "" {
		complain(o.Stream || c.Run.MaxAhead == 0, "run.max_ahead: needs --stream, because groups are acknowledged over the run's socket")
	}
	if l.ByKey["run.max_lag"].Given() != "" {
		complain(o.Stream || c.Run.MaxLag < 0, "run.max_lag: needs --stream, because groups are acknowledged over the run's socket")
	}
	if l.ByKey["reward.min_std"].Given() != "" {
		complain(o.Stream || c.Tasks.UntilGroups > 0 || c.Reward.MinStd == 0, "reward.min_std: needs --until-groups or --stream")
	}
	return bad
}
