package stream

import (
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/pace"
	"github.com/rollout-rl/rollout/sink"
)

// TrackerConfig configures a Tracker.
type TrackerConfig struct {
	RunID string
	// MinStd is the minimum standard deviation of the rewards in a group that is kept. 0 keeps
	// every group.
	MinStd float64
	// MaxLag is the same setting as pace.Config.MaxLag.
	MaxLag int
	// Acks is true if the run needs acknowledgements, because pace.Config.MaxAhead or MaxLag is
	// set. With either setting, a group counts as received by the trainer only once it is
	// acknowledged.
	Acks bool
	// Pace is notified of groups that become whole and of groups that are acknowledged.
	Pace *pace.Pacer
	// Claimed is the policy version set for the start of the run, or 0. Groups from earlier
	// processes are judged before the run starts, so Judge uses Claimed until Pace knows a version.
	Claimed int32
	// Event writes an event. It is called by one goroutine at a time. It is nil if events are not
	// written.
	Event func(name string, fields map[string]any)
}

// Hooks are functions that a Tracker calls during a run. Functions that are nil are not called.
type Hooks struct {
	// Committed is called with each new commit, before its groups are counted.
	Committed func(*sink.Commit)
	// Whole is called for each whole group. LeftOut is called with the keys of samples that will be
	// committed with keep=false.
	Whole   func(group string)
	LeftOut func(keys ...string)
	// Acknowledge makes a cursor durable.
	Acknowledge func(sink.Cursor) error
}

// A Tracker follows a run's commits and reports whole groups. It is safe for concurrent use.
type Tracker struct {
	cfg   TrackerConfig
	hooks Hooks

	acking sync.Mutex // held while a group is being acknowledged

	mu      sync.Mutex
	log     sink.GroupLog
	tasks   map[string]string  // by group: the task id of each group that has not been reported
	figures map[string]figures // figures of groups that have been judged but not reported
	again   []sink.WholeGroup  // groups from earlier processes that must be reported again
	ahead   []position         // groups that have not been acknowledged, in order
	acked   sink.Cursor
	end     sink.Cursor // cursor of the last whole group
}

type position struct {
	id  string
	seq int64
	n   int
}

// NewTracker returns a Tracker for a run that has no commits.
func NewTracker(cfg TrackerConfig) *Tracker {
	return &Tracker{cfg: cfg, tasks: map[string]string{}, figures: map[string]figures{}}
}

// Attach sets the hooks. It must be called before the run starts and before Load. Until then, Judge
// does not call LeftOut.
func (t *Tracker) Attach(h Hooks) { t.hooks = h }

// Task records a task whose samples can be collected from now on.
func (t *Tracker) Task(of *collector.Task) {
	group := collector.GroupID(of)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.log.Whole(group) {
		t.tasks[group] = of.ID
	}
}

// Acknowledged sets the cursor that was acknowledged in earlier processes. It must be called before
// Load.
func (t *Tracker) Acknowledged(c sink.Cursor) { t.acked = c }

// Load adds a commit made by an earlier process. If events are written, Again will report the
// commit's groups that have not been acknowledged.
func (t *Tracker) Load(c *sink.Commit) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.log.Add(c) {
		t.count(g)
		if t.cfg.Event == nil || behind(t.acked, g.Seq, g.N) {
			t.forget(g.ID)
		} else {
			t.again = append(t.again, g)
		}
	}
}

// FindTasks finds the tasks of the groups that must be reported again. It must be called after
// Load.
func (t *Tracker) FindTasks(tasks iter.Seq2[collector.Task, error]) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	wanted := map[string]bool{}
	for _, g := range t.again {
		wanted[g.ID] = true
	}
	if len(wanted) == 0 {
		return nil
	}
	for of, err := range tasks {
		if err != nil {
			return err
		}
		if group := collector.GroupID(&of); wanted[group] {
			t.tasks[group] = of.ID
		}
	}
	return nil
}

// Again reports the groups that were whole before this process started and have not been
// acknowledged. It must be called before Task.
func (t *Tracker) Again() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.again {
		t.report(g, -1, true)
	}
	t.again, t.tasks = nil, map[string]string{} // replace the map, because a map never shrinks
}

// Committed adds the next commit of the log. It reports the samples in the commit and the groups
// that became whole.
func (t *Tracker) Committed(c *sink.Commit) {
	if t.hooks.Committed != nil {
		t.hooks.Committed(c)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cfg.Event != nil {
		t.reportSamples(c)
	}
	for _, g := range t.log.Add(c) {
		t.report(g, t.count(g), false)
	}
}

func (t *Tracker) reportSamples(c *sink.Commit) {
	for i := range c.Samples {
		s := &c.Samples[i]
		fields := map[string]any{"key": s.Key, "group": nil, "index": s.Index, "seq": c.Seq}
		if s.Group >= 0 {
			fields["group"] = c.Groups[s.Group].ID
		}
		if s.Failed() {
			fields["class"] = s.Class
			t.cfg.Event("failure", fields)
		} else {
			fields["rows"] = s.Rows
			t.cfg.Event("sample", fields)
		}
	}
}

// count reports a whole group to the pacer.
func (t *Tracker) count(g sink.WholeGroup) (lag int32) {
	outcome := pace.Given
	switch {
	case g.Rows == 0:
		outcome = pace.Failed
	case g.Filtered > 0:
		outcome = pace.Filtered
	}
	oldest := int32(-1)
	if v := t.figures[g.ID].versions; v != nil {
		oldest = v[0]
	}
	lag = t.cfg.Pace.Whole(g.ID, outcome, oldest)
	if t.hooks.Whole != nil {
		t.hooks.Whole(g.ID)
	}
	t.end = sink.Cursor{RunID: t.cfg.RunID, Seq: g.Seq, Groups: g.N}
	if !t.cfg.Acks || behind(t.acked, g.Seq, g.N) { // without acknowledgements, t.ahead would grow forever
		t.cfg.Pace.Acknowledged(g.ID)
		return lag
	}
	t.ahead = append(t.ahead, position{g.ID, g.Seq, g.N})
	return lag
}

// report writes the event for a whole group. The parameter again is true if an earlier process
// might have reported the group.
func (t *Tracker) report(g sink.WholeGroup, lag int32, again bool) {
	task := t.tasks[g.ID]
	f, known := t.figures[g.ID]
	t.forget(g.ID)
	if t.cfg.Event == nil {
		return
	}
	stale := t.cfg.MaxLag >= 0 && int(lag) > t.cfg.MaxLag
	out := map[string]any{
		"group": g.ID, "task": nil, "seq": g.Seq, "n": g.N, "size": g.Size, "rows": g.Rows, "failed": g.Failed, "filtered": nil,
		"reward_mean": f.mean, "reward_std": f.std, "versions": f.versions, "lag": nil, "stale": stale, "deadline": false, "again": again,
	}
	if again {
		out["stale"] = f.stale
	}
	if task != "" {
		out["task"] = task
	}
	if g.Failed > 0 { // only failures show a missed deadline, and the failures of some groups are unknown
		if out["deadline"] = nil; known {
			out["deadline"] = f.late
		}
	}
	if g.Filtered > 0 {
		out["filtered"] = g.Reason
	}
	if f.versions != nil && lag >= 0 {
		out["lag"] = lag
	}
	t.cfg.Event("group", out)
}

func (t *Tracker) forget(group string) {
	delete(t.tasks, group)
	delete(t.figures, group)
}

// behind reports whether a group is at or before the cursor.
func behind(c sink.Cursor, seq int64, n int) bool {
	return seq < c.Seq || seq == c.Seq && n <= c.Groups
}

// Acknowledge records that the reader has received all groups up to the cursor. A cursor before the
// last acknowledged one has no effect. A cursor after the last whole group is an error.
func (t *Tracker) Acknowledge(seq int64, groups int) error {
	t.acking.Lock()
	defer t.acking.Unlock()
	c := sink.Cursor{RunID: t.cfg.RunID, Seq: seq, Groups: groups}
	t.mu.Lock()
	err := t.check(c)
	done := behind(t.acked, seq, groups)
	t.mu.Unlock()
	if err != nil || done {
		return err
	}
	if err := t.hooks.Acknowledge(c); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.acked = c
	for len(t.ahead) > 0 && behind(c, t.ahead[0].seq, t.ahead[0].n) {
		t.cfg.Pace.Acknowledged(t.ahead[0].id) // has no effect on groups that failed or were filtered
		t.ahead = t.ahead[1:]
	}
	return nil
}

// LeaveOut records that the reader skips one group. The group then no longer counts as ahead, even
// if earlier groups do. The change becomes durable when a cursor at or after the group is
// acknowledged.
func (t *Tracker) LeaveOut(seq int64, n int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.check(sink.Cursor{Seq: seq, Groups: n}); err != nil {
		return err
	}
	at := slices.IndexFunc(t.ahead, func(p position) bool { return p.seq == seq && p.n == n })
	if at >= 0 { // otherwise the group has already been acknowledged
		t.cfg.Pace.Acknowledged(t.ahead[at].id)
	}
	return nil
}

// check returns an error if the cursor does not end at a whole group.
func (t *Tracker) check(c sink.Cursor) error {
	at := func(p position) bool { return p.seq == c.Seq && p.n == c.Groups }
	switch {
	case c.Seq < 0 || c.Groups < 0:
		return fmt.Errorf("cursor: seq is %d and groups is %d (want both ≥ 0)", c.Seq, c.Groups)
	case c.Groups == 0 || behind(t.acked, c.Seq, c.Groups):
		return nil
	case t.end.Seq < c.Seq || t.end.Seq == c.Seq && t.end.Groups < c.Groups:
		return fmt.Errorf("the cursor (seq %d, groups %d) is ahead of the last whole group (seq %d, groups %d)", c.Seq, c.Groups, t.end.Seq, t.end.Groups)
	case c.Seq == 0 || t.cfg.Acks && !slices.ContainsFunc(t.ahead, at):
		return fmt.Errorf("no whole group ends at the cursor (seq %d, groups %d)", c.Seq, c.Groups)
	}
	return nil
}

// Cursors returns the cursors of the last acknowledged group and of the last whole group. The Seq
// of a cursor is 0 if its group does not exist.
func (t *Tracker) Cursors() (acked, end sink.Cursor) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.acked, t.end
}
