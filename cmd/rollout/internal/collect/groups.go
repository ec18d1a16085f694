package collect

import (
	"iter"
	"sync"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/stream"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/pace"
	"github.com/rollout-rl/rollout/sink"
)

// groups contains the state of a run that commits whole groups, because of --stream, --until-groups
// or --min-std.
type groups struct {
	host    *Host
	pace    *pace.Pacer
	tracker *stream.Tracker
	setting sync.Mutex // held while a policy version is set and reported

	shared    *pace.Config // the limits that the client applies (--unpaced); nil: the pacer applies them
	reporting sync.Mutex   // held while the pacer's state is read and reported, so that no event is older than the one before
}

func newGroups(p *Plan) *groups {
	cfg := pace.Config{MaxAhead: p.config.Run.MaxAhead, MaxLag: p.config.Run.MaxLag, UntilGroups: p.config.Tasks.UntilGroups}
	if !p.options.Stream { // without --stream, no reader acknowledges groups
		cfg.MaxAhead, cfg.MaxLag = 0, -1
	}
	if p.options.RetryFailed { // the groups of failed samples are already whole
		cfg.UntilGroups = 0
	}
	track := stream.TrackerConfig{
		RunID: p.info.ID, MinStd: p.config.Reward.MinStd, MaxLag: cfg.MaxLag, Acks: cfg.MaxAhead > 0 || cfg.MaxLag >= 0 || p.options.Unpaced,
		Claimed: p.config.Tokens.PolicyVersion.Version,
	}
	g := &groups{host: p.host}
	if p.options.Unpaced {
		g.shared, cfg = new(cfg), pace.Config{MaxLag: -1}
	}
	g.pace = pace.New(cfg)
	track.Pace = g.pace
	if p.host.JSON() {
		track.Event = p.host.Event
	}
	g.tracker = stream.NewTracker(track)
	return g
}

// configure sets the fields of cfg that make the sink commit whole groups.
func (g *groups) configure(cfg *sink.Config) {
	cfg.CommitGroups, cfg.Judge = true, g.tracker.Judge
	show := cfg.Events.Committed
	cfg.Events.Committed = func(c sink.Commit) {
		show(c)
		g.tracker.Committed(&c)
		g.report()
	}
}

// report sends the state of the pacer to a client that applies the limits itself.
func (g *groups) report() {
	if g.shared == nil {
		return
	}
	g.reporting.Lock()
	defer g.reporting.Unlock()
	s := g.pace.Stats()
	group, version := g.pace.Means()
	g.host.Event("pace", map[string]any{
		"max_ahead": g.shared.MaxAhead, "max_lag": g.shared.MaxLag, "until_groups": g.shared.UntilGroups,
		"whole": s.Whole(), "informative": s.Informative, "given": s.Ahead - s.Begun + s.Whole(), "version": s.Version,
		"group_seconds": group.Seconds(), "version_seconds": version.Seconds(),
	})
}

// load restores the groups of earlier processes from the commit log. The iterator known yields the
// run's existing tasks.
func (g *groups) load(dir string, known iter.Seq2[collector.Task, error]) error {
	ack, err := sink.ReadAck(dir)
	if err != nil {
		return runfolder.ReadError(dir, err)
	}
	g.tracker.Acknowledged(ack)
	log, err := sink.ReadLogIn(nil, dir, g.tracker.Load)
	if err != nil {
		return runfolder.ReadError(dir, err)
	}
	if err := g.tracker.Recall(log); err != nil {
		g.host.Log.Warn("groups are reported again, but without their sample counts and rewards", "error", err) // rollout verify reports the damage
	}
	return g.tracker.FindTasks(known)
}

// countEarlier counts the samples of earlier processes that were waiting for the rest of their
// group and have now been committed. It skips failures, because the collector counted all final
// failures when it started. If a sample succeeded after a failure, the commit also contains the
// success.
func countEarlier(c *collector.Collector, held *sink.Ledger, commit *sink.Commit) {
	var filtered []string
	committed := 0
	for i := range commit.Samples {
		s := &commit.Samples[i]
		switch {
		case s.Failed() || !held.Waits(s.Key):
		case s.Filtered != "":
			filtered = append(filtered, s.Key)
		default:
			committed++
		}
	}
	c.CommittedEarlier(committed, filtered...)
}

// setVersion sets and reports the policy version that the engines sample with from now on. The
// parameter ofPage is true if a page returned the version. A version from a page is ignored unless
// it is newer than the known version, because the trainer might already have reported a newer
// version.
func (g *groups) setVersion(version int32, ofPage bool) {
	g.setting.Lock()
	defer g.setting.Unlock()
	if ofPage && version <= g.pace.Version() {
		return
	}
	g.pace.SetVersion(version)
	g.host.Log.Info("version", "version", version)
	g.host.Event("version", map[string]any{"version": version})
	g.report()
}
