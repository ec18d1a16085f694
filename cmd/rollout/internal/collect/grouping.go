package collect

import (
	"context"
	"os"
	"strings"
	"sync"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/ctl"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/stream"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/pace"
	"github.com/rollout-rl/rollout/sink"
)

// A grouping is the part of a collection that works by whole groups, with --stream, --until-groups
// or --min-std. grouping_tasks.go has the tasks of a stream, and grouping_ctl.go its control
// socket.
type grouping struct {
	*collection
	pace    *pace.Pacer
	tracker *stream.Tracker
	held    *sink.Ledger // left by earlier processes
	setting sync.Mutex   // serializes setting and reporting a version

	// Only with --stream.
	intake *stream.Intake // nil: not a stream
	log    *runfolder.TaskLog
	socket *ctl.Listener // nil: the file system does not support sockets

	receipts sync.Mutex
	ended    bool // drained was reported; tasks are no longer reported
}

// Reasons why a stream takes no more tasks, as in the event drained.
const (
	whyEnd    = "end of tasks"
	whyDrain  = "drain"
	whyGroups = "until_groups"
	whyStop   = "stop"
)

func (c *collection) groups() bool {
	return c.options.Stream || c.config.Groups()
}

// checkLimit refuses a tasks.limit that ends inside a group.
func (c *collection) checkLimit(context.Context) error {
	if !c.groups() || c.options.RetryFailed { // it collects failed samples of any group
		return nil
	}
	return runfolder.CheckLimit(c.config, c.tasks)
}

// heldOf returns how many samples of a run are committed, are waiting in the write-ahead log, and
// have failed.
func heldOf(dir string) (committed, waiting, failed int, err error) {
	held, err := sink.ReadLedger(dir)
	if err != nil {
		return 0, 0, 0, runfolder.OpenError(dir, err)
	}
	done, failed := held.Counts()
	waiting = held.Waiting()
	return done - waiting, waiting, failed, nil
}

// newGrouping creates the grouping of a collection whose run is known. It returns nil if the run
// does not work by groups.
func (c *collection) newGrouping() *grouping {
	if !c.groups() {
		return nil
	}
	cfg := pace.Config{MaxAhead: c.config.Run.MaxAhead, MaxLag: c.config.Run.MaxLag, UntilGroups: c.config.Tasks.UntilGroups}
	if !c.options.Stream { // no reader acknowledges
		cfg.MaxAhead, cfg.MaxLag = 0, -1
	}
	if c.options.RetryFailed { // those groups were whole before
		cfg.UntilGroups = 0
	}
	g := &grouping{collection: c, pace: pace.New(cfg)}
	track := stream.TrackerConfig{
		RunID: c.info.ID, MinStd: c.config.Reward.MinStd, MaxLag: cfg.MaxLag, Acks: cfg.MaxAhead > 0 || cfg.MaxLag >= 0, Pace: g.pace,
		Claimed: c.config.Tokens.PolicyVersion.Version,
		Whole: func(group string) {
			if g.intake != nil {
				g.intake.Begun(group)
			}
		},
		LeftOut: func(keys ...string) {
			if c.collector != nil { // nil while earlier commits are loaded
				c.collector.Filter(keys...)
			}
		},
		Acknowledge: func(at sink.Cursor) error { return c.dataset.Acknowledge(at) },
	}
	if c.JSON() {
		track.Tell = c.Event
	}
	g.tracker = stream.NewTracker(track)
	return g
}

// ofSink adds to cfg what a sink needs to commit whole groups.
func (g *grouping) ofSink(cfg *sink.Config) {
	cfg.CommitGroups, cfg.Judge = true, g.tracker.Judge
	told := cfg.Events.Committed
	cfg.Events.Committed = func(c sink.Commit) {
		told(c)
		g.waited(&c)
		g.tracker.Committed(&c)
	}
}

// waited counts samples of earlier processes that waited for the rest of their group. It skips
// failures: the collector counted those that stayed failures when it began, and the commit also has
// the later successes of the others.
func (g *grouping) waited(c *sink.Commit) {
	var filtered []string
	committed := 0
	for i := range c.Samples {
		s := &c.Samples[i]
		switch {
		case s.Failed() || !g.held.Waits(s.Key):
		case s.Filtered != "":
			filtered = append(filtered, s.Key)
		default:
			committed++
		}
	}
	g.collector.CommittedEarlier(committed, filtered...)
}

// ofCollector adds to cfg what a paced collector needs, and opens the tasks of a stream.
func (g *grouping) ofCollector(cfg *collector.Config) error {
	if g.options.Stream {
		if err := g.openIntake(); err != nil {
			return err
		}
		cfg.More = g.more
		started := cfg.Events.AttemptStarted
		cfg.Events.AttemptStarted = func(a collector.Attempt, endpoint string) {
			started(a, endpoint)
			if group := a.Key[:strings.LastIndexByte(a.Key, '-')]; g.intake.Begun(group) {
				g.Event("begun", map[string]any{"group": group})
			}
		}
	}
	cfg.Pace = g.pace
	return g.load()
}

// load restores the groups of earlier processes from the commit log.
func (g *grouping) load() error {
	dir := g.folder.Dir
	ack, err := sink.ReadAck(dir)
	if err != nil {
		return runfolder.ReadError(dir, err)
	}
	g.tracker.Acknowledged(ack)
	log, err := sink.ReadLogEach(dir, g.tracker.Load)
	if err != nil {
		return runfolder.ReadError(dir, err)
	}
	if err := g.tracker.Recall(log); err != nil {
		g.Log.Warn("groups are reported again without their figures", "error", err) // verify reports the damage
	}
	return g.tracker.Known(g.known())
}

// clearSocket removes the socket that a killed process left in the folder. This process holds the
// lock of the folder.
func clearSocket(dir string) {
	if info, err := os.Lstat(ctl.Path(dir)); err == nil && info.Mode()&os.ModeSocket != 0 {
		_ = os.Remove(ctl.Path(dir)) // a stale socket does no harm
	}
}

// launch adds the fields of a stream to the event launch, and explains why the run does not end by
// itself.
func (g *grouping) launch(event map[string]any) {
	if g == nil || g.intake == nil {
		return
	}
	event["stream"], event["socket"] = true, nil
	if g.socket == nil {
		return
	}
	event["socket"] = ctl.Path(g.folder.Dir)
	if g.options.FromRuns {
		g.tellFollowed()
		return
	}
	if dir := format.Shell(g.folder.Dir); g.from != "-" && !g.options.Attached {
		from := "neither from a file nor from standard input"
		if g.from != "" {
			from = "from " + g.from
		}
		g.Note("tasks come %s, and over the run's socket until a drain: rollout ctl %s add FILE, rollout ctl %s drain", from, dir, dir)
	}
}

// work starts the helpers of the grouping with help. They end when ctx is done.
func (g *grouping) work(ctx context.Context, help func(func())) {
	if g == nil {
		return
	}
	if v := g.config.Tokens.PolicyVersion; v.Claimed {
		g.pace.SetVersion(v.Version)
	}
	// The callback must not wait for a disk: the order of tasks is held during its writes.
	crowded := make(chan bool, 1) // holds the latest value
	g.Crowded(func(on bool) {     // never called concurrently
		select {
		case <-crowded:
		default:
		}
		crowded <- on
	})
	help(func() { g.crowd(ctx, crowded) })
	g.tracker.Again()
	help(func() {
		select {
		case <-g.pace.Enough():
			g.stop(whyGroups)
		case <-ctx.Done():
		}
	})
	if g.intake == nil {
		return
	}
	if g.socket != nil {
		help(func() { _ = g.socket.Serve(ctx, g) }) // nil when ctx is done
	}
	// Reading a pipe cannot be interrupted, so take is not waited for.
	go g.take(ctx)
}

// crowd holds back tasks and samples while crowded is true, until ctx is done.
func (g *grouping) crowd(ctx context.Context, crowded <-chan bool) {
	for {
		select {
		case on := <-crowded:
			g.pace.Crowd(on)
			if g.intake != nil {
				g.intake.Crowd(on)
			}
			g.Log.Warn("events unread", "held", on)
		case <-ctx.Done():
			return
		}
	}
}

func (g *grouping) stop(why string) {
	if g != nil && g.intake != nil {
		g.intake.Stop(why)
	}
}

// over records that the collector has returned.
func (g *grouping) over() { g.stop(whyStop) }

// drained reports that the last group was reported, and why the run has ended.
func (g *grouping) drained(err error) {
	if g == nil {
		return
	}
	why := whyEnd
	switch {
	case err != nil || g.ending.Load() == endStop:
		why = whyStop
	case g.ending.Load() == endDrain:
		why = whyDrain
	case g.pace.Stats().Enough:
		why = whyGroups
	case g.intake != nil && g.intake.Why() == whyDrain:
		why = whyDrain
	}
	g.receipts.Lock()
	defer g.receipts.Unlock()
	g.ended = true
	g.Event("drained", map[string]any{"why": why})
}
