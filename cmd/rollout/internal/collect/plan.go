package collect

import (
	"context"
	"fmt"
	"math"
	"net"
	"os"
	"slices"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/gateway"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/machine"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/preflight"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/taps"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/harness"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/limit/engine"
	"github.com/rollout-rl/rollout/collector/policy"
	"github.com/rollout-rl/rollout/collector/reward"
	"github.com/rollout-rl/rollout/collector/session/store"
)

// A Plan describes what one invocation will collect. It does not change after NewPlan returns it.
type Plan struct {
	host     *Host
	options  Options
	config   *config.Config
	earlier  *runfolder.Earlier // the run to resume; nil if the run is new
	settings *settings
	taps     *taps.Taps // nil if no tap is configured
	tasks    *runfolder.TaskSet
	source   string            // source of a stream's tasks, besides its socket: a path, "-" or ""
	folder   *runfolder.Folder // locked; nil for a dry run
	clients  []*letta.Client   // one per server, for the backends and the checks
	gateway  *gateway.Gateway  // serves the sessions of the harness; nil if there is no harness
	harness  *harness.Backend  // nil if there is no harness
	sessions store.Source      // nil if the run reads no sessions
	backends []collector.Backend
	checks   []preflight.Server
	info     runfolder.Info
	inFlight []int          // limit on the number of samples in flight, by server
	engine   *engine.Poller // nil if no engine metrics are configured
	versions *policy.Source // nil if policy versions come only from traces
	scrapes  net.Listener   // for requests for the run's metrics; nil if metrics are not served
	unscored bool           // true if reward.kind is not set, not even to none
}

// A planning is a Plan under construction.
type planning struct {
	*Plan
	loader   *config.Loader
	identity runfolder.Identity
	first    *collector.Task // the first task that was read; nil if it must be read from the run's copy of the tasks
}

// NewPlan reads the settings and the tasks, and checks that the run can work. It scores a trial
// sample and checks the servers. If an earlier run is resumed, NewPlan compares the settings, tasks
// and servers with that run. It creates and locks the folder, but does not write to it.
func NewPlan(ctx context.Context, h *Host, l *config.Loader, earlier *runfolder.Earlier, o *Options) (*Plan, error) {
	p := &planning{Plan: &Plan{host: h, options: *o, config: l.Config, earlier: earlier}, loader: l}
	for _, step := range []func(context.Context) error{
		p.readSettings, p.prepareHarness, p.readTasks, p.checkLimit, p.tryFirstScore, p.connect, p.askServers, p.bound, p.checkFiles,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return p.Plan, nil
}

func (p *Plan) dir() string { return p.config.Output.Dir }

// resumed reports whether an earlier process started the run.
func (p *Plan) resumed() bool { return len(p.info.Invocations) > 1 }

// byGroups reports whether the run commits whole groups.
func (p *Plan) byGroups() bool { return p.options.Stream || p.config.Groups() }

func (p *Plan) resumeCommand() string { return runfolder.ResumeCommand(p.dir()) }

// rowsAt returns the place of the run's rows: its folder, or the store of a fleet.
func (p *Plan) rowsAt() string {
	if f := p.options.Fleet; f != nil {
		return f.Location
	}
	return p.dir()
}

// readSettings opens the taps, and builds the other parts of the run that depend only on its
// settings.
func (p *planning) readSettings(context.Context) (err error) {
	h := p.host
	h.phase.Store("checking the tasks")
	p.unscored = p.loader.ByKey["reward.kind"].Given() == "" && p.config.Kind() != config.KindSessions // a session can bring its own reward
	if p.taps, err = taps.Open(p.config, p.tappedSince); err != nil {
		return err
	}
	h.atClose(p.taps.Follow(h.Note))
	if p.settings, err = newSettings(p.config, p.taps.Index(), h.Others()); err != nil {
		return err
	}
	h.atClose(p.settings.scoring.Close)
	h.onAbort(p.settings.scoring.Kill)
	if p.options.RetryFailed && p.loader.ByKey["run.tail"].Given() == "" {
		// --retry-failed explicitly requests the failed samples, so the run's tail policy must not
		// cut them.
		p.settings.collector.Tail = collector.Tail{}
	}
	p.identity, err = runfolder.IdentityOf(p.loader, p.settings.model, p.settings.scoring.Files)
	return err
}

// tryFirstScore scores a trial sample of the first task, if a task is known.
func (p *planning) tryFirstScore(ctx context.Context) (err error) {
	if p.tasks.Tasks == 0 && !p.options.Reads { // a stream without tasks tries the scorer later, with the first task that arrives
		return nil
	}
	task := &collector.Task{ID: "trial"} // server runs have neither task messages nor answers
	switch {
	case p.options.Reads:
	case p.first != nil:
		task = p.first
	default:
		if task, err = p.tasks.First(); err != nil {
			return err
		}
	}
	return p.tryScorer(ctx, task)
}

// Phases in which a run tests its scorer and its servers with the first task.
const (
	phaseScorer = "trying the scorer"
	phaseTrial  = "trying a model call"
)

func (p *Plan) tryScorer(ctx context.Context, task *collector.Task) error {
	if p.settings.scoring.Scorer == nil {
		return nil
	}
	p.host.phase.Store(phaseScorer)
	trial := reward.Trial{Chat: p.config.Recorded()}
	if p.harness != nil {
		dir, err := os.MkdirTemp("", "rollout-trial-")
		if err != nil {
			return exit.With(exit.Storage, fmt.Errorf("the work folder of the trial sample: %w", err))
		}
		defer os.RemoveAll(dir) //nolint:errcheck // an empty folder below the system's temporary folder does no harm
		trial.Workdir = dir
	}
	return p.settings.scoring.Try(ctx, task, trial)
}

// tryServers makes one model call for the task on every server that has not yet passed such a trial
// in this run. It returns the names of the servers that answered.
func (p *Plan) tryServers(ctx context.Context, task *collector.Task) (answered []string, err error) {
	if p.config.Run.Preflight == config.PreflightConnect || p.checks[0].Try == nil {
		return nil, nil
	}
	proven, err := p.earlier.Proven(p.dir(), p.settings.model)
	if err != nil {
		return nil, err
	}
	judge := collector.Config{Align: p.settings.collector.Align, Require: p.settings.collector.Require}
	t, err := preflight.NewTrial(p.config, p.settings.prompts, judge, task, p.host.Note)
	if err != nil {
		return nil, err
	}
	p.host.phase.Store(phaseTrial)
	return t.Servers(ctx, p.checks, p.info.Servers, proven)
}

// bound sets the limits on the number of samples in flight. It also creates the poller for engine
// metrics and opens the listener for the run's metrics. If the poller or the listener cannot be
// created, the run does not begin.
func (p *planning) bound(ctx context.Context) (err error) {
	planned, lowered := p.info.Tasks.Planned, ""
	if p.options.arriving() {
		planned = math.MaxInt32 // the number of a stream's samples is unknown
	}
	p.inFlight, lowered = machine.InFlight(p.config, planned, machine.This())
	if lowered != "" && (slices.Min(p.inFlight) < planned || p.loader.ByKey["server.max_in_flight"].Given() != "") {
		p.host.Note("%s", lowered) // no note if the run is so small that the limit does not matter
	}
	if urls := p.config.Server.EngineMetrics; len(urls) > 0 {
		if p.engine, err = engine.New(engine.Config{URLs: urls}); err != nil {
			return exit.Usagef("server.engine_metrics: %w", err)
		}
	}
	if addr := p.config.Run.MetricsAddr; addr != "" {
		if p.scrapes, err = new(net.ListenConfig).Listen(ctx, "tcp", addr); err != nil {
			return exit.Hint(exit.Usagef("run.metrics_addr: %w", err), "choose another address with --metrics-addr; port 0 picks a free port")
		}
		p.host.atClose(func() { _ = p.scrapes.Close() }) // fails if the server has already closed it
	}
	return nil
}

// checkFiles compares every file of the run with its digest if run.check is full. The check runs
// before anything is changed.
func (p *planning) checkFiles(ctx context.Context) error {
	if !p.config.Run.CheckFull || !p.resumed() {
		return nil
	}
	p.host.phase.Store("reading the files of the run")
	var damage []error
	_, err := runfolder.CheckFiles(ctx, p.dir(), 0, func(err error) { damage = append(damage, err) })
	switch {
	case err != nil && ctx.Err() == nil:
		return runfolder.ReadError(p.dir(), err)
	case err == nil && damage != nil:
		return runfolder.DamageError(p.dir(), damage)
	}
	return err
}
