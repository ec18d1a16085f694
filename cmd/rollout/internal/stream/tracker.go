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

// TrackerConfig is what a Tracker needs.
type TrackerConfig struct {
	RunID string
	// MinStd is the least standard deviation of the rewards of a group that is kept. 0: every
	// group is.
	MinStd float64
	// MaxLag is pace.Config.MaxLag.
	MaxLag int
	// Acks tells that somebody waits for acknowledgements: pace.Config.MaxAhead, or MaxLag, for
	// which a group is the trainer's only when it is acknowledged.
	Acks bool
	// Pace is told which groups are whole, and which of them are acknowledged.
	Pace *pace.Pacer
	// Claimed is the policy version that the run begins with. Judge goes by it until Pace has a
	// version: groups of earlier processes are judged before the run begins. 0: none is claimed.
	Claimed int32
	// Tell writes an event. It is called from one goroutine at a time. Nil: nobody reads events.
	Tell func(name string, fields map[string]any)
	// Whole is called with each group that is whole, and LeftOut with the keys of samples that
	// are to be committed with keep=false.
	Whole   func(group string)
	LeftOut func(keys ...string)
	// Acknowledge makes a cursor durable.
	Acknowledge func(sink.Cursor) error
}

// A Tracker follows the commits of a run and tells its groups when they are whole. Its methods
// may be called from many goroutines.
type Tracker struct {
	cfg TrackerConfig

	acking sync.Mutex // one acknowledgement at a time

	mu      sync.Mutex
	log     sink.GroupLog
	tasks   map[string]string  // ids of the tasks of groups that are not told, by group
	figures map[string]figures // of groups that are judged and not told
	again   []sink.WholeGroup  // groups of earlier processes that are to be told again
	ahead   []place            // groups that somebody is to acknowledge, in order
	acked   sink.Cursor
	end     sink.Cursor // of the last whole group
}

// A place is where a whole group lies in the log.
type place struct {
	id  string
	seq int64
	n   int
}

// NewTracker makes a Tracker of a run of which nothing is known.
func NewTracker(cfg TrackerConfig) *Tracker {
	return &Tracker{cfg: cfg, tasks: map[string]string{}, figures: map[string]figures{}}
}

// Task notes a task whose samples may be collected.
func (t *Tracker) Task(of *collector.Task) {
	group := collector.GroupID(of)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.log.Whole(group) {
		t.tasks[group] = of.ID
	}
}

// Acknowledged notes what was acknowledged in earlier processes. It comes before Load.
func (t *Tracker) Acknowledged(c sink.Cursor) { t.acked = c }

// Load takes a commit that was there before this process. Groups that nobody acknowledged are
// told again by Again, where somebody reads events.
func (t *Tracker) Load(c *sink.Commit) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.log.Add(c) {
		t.count(g)
		if t.cfg.Tell == nil || behind(t.acked, g.Seq, g.N) {
			t.forget(g.ID)
		} else {
			t.again = append(t.again, g)
		}
	}
}

// Known notes the tasks of the groups that are to be told again. It comes after Load.
func (t *Tracker) Known(tasks iter.Seq2[collector.Task, error]) error {
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

// Again tells the groups that were whole before this process and that nobody acknowledged. It
// comes before Task.
func (t *Tracker) Again() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.again {
		t.tell(g, pace.Arrival{Lag: -1}, true)
	}
	t.again, t.tasks = nil, map[string]string{} // a map never shrinks
}

// Committed takes the next commit of the log: it tells its samples, and the groups that it
// makes whole.
func (t *Tracker) Committed(c *sink.Commit) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cfg.Tell != nil {
		t.tellSamples(c)
	}
	for _, g := range t.log.Add(c) {
		t.tell(g, t.count(g), false)
	}
}

// tellSamples tells the samples of a commit.
func (t *Tracker) tellSamples(c *sink.Commit) {
	for i := range c.Samples {
		s := &c.Samples[i]
		fields := map[string]any{"key": s.Key, "group": nil, "index": s.Index, "seq": c.Seq}
		if s.Group >= 0 {
			fields["group"] = c.Groups[s.Group].ID
		}
		if s.Failed() {
			fields["class"] = s.Class
			t.cfg.Tell("failure", fields)
		} else {
			fields["rows"] = s.Rows
			t.cfg.Tell("sample", fields)
		}
	}
}

// count lets the pace know of a whole group.
func (t *Tracker) count(g sink.WholeGroup) pace.Arrival {
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
	a := t.cfg.Pace.Whole(g.ID, outcome, oldest)
	t.cfg.Whole(g.ID)
	t.end = sink.Cursor{RunID: t.cfg.RunID, Seq: g.Seq, Groups: g.N}
	if !t.cfg.Acks || behind(t.acked, g.Seq, g.N) { // nobody waits for it, and no list grows
		t.cfg.Pace.Acknowledged(g.ID)
		return a
	}
	t.ahead = append(t.ahead, place{g.ID, g.Seq, g.N})
	return a
}

// tell tells one whole group. again says that an earlier process may have told it.
func (t *Tracker) tell(g sink.WholeGroup, a pace.Arrival, again bool) {
	task := t.tasks[g.ID]
	f, known := t.figures[g.ID]
	t.forget(g.ID)
	if t.cfg.Tell == nil {
		return
	}
	out := map[string]any{
		"group": g.ID, "task": nil, "seq": g.Seq, "n": g.N, "size": g.Size, "rows": g.Rows, "failed": g.Failed, "filtered": nil,
		"reward_mean": f.mean, "reward_std": f.std, "versions": f.versions, "lag": nil, "stale": a.Stale, "deadline": false, "again": again,
	}
	if again {
		out["stale"] = f.stale
	}
	if task != "" {
		out["task"] = task
	}
	if g.Failed > 0 { // by what its failures say, which is not known of every group
		if out["deadline"] = nil; known {
			out["deadline"] = f.late
		}
	}
	if g.Filtered > 0 {
		out["filtered"] = g.Reason
	}
	if f.versions != nil && a.Lag >= 0 {
		out["lag"] = a.Lag
	}
	t.cfg.Tell("group", out)
}

func (t *Tracker) forget(group string) {
	delete(t.tasks, group)
	delete(t.figures, group)
}

// behind reports whether a group lies behind a cursor.
func behind(c sink.Cursor, seq int64, n int) bool {
	return seq < c.Seq || seq == c.Seq && n <= c.Groups
}

// Acknowledge takes what a reader has for good: all groups behind the cursor. One that lies
// before the last one changes nothing. One that is ahead of the groups that are whole is an
// error.
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
	if err := t.cfg.Acknowledge(c); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.acked = c
	for len(t.ahead) > 0 && behind(c, t.ahead[0].seq, t.ahead[0].n) {
		t.cfg.Pace.Acknowledged(t.ahead[0].id) // changes nothing for those that were not given, or left out
		t.ahead = t.ahead[1:]
	}
	return nil
}

// LeaveOut notes that the reader leaves out one group: it is ahead no longer, although groups
// before it may be. Nothing is written: the cursor that passes it is.
func (t *Tracker) LeaveOut(seq int64, n int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.check(sink.Cursor{Seq: seq, Groups: n}); err != nil {
		return err
	}
	at := slices.IndexFunc(t.ahead, func(p place) bool { return p.seq == seq && p.n == n })
	if at >= 0 { // else it was acknowledged
		t.cfg.Pace.Acknowledged(t.ahead[at].id)
	}
	return nil
}

// check looks whether a cursor is behind a group that is whole.
func (t *Tracker) check(c sink.Cursor) error {
	at := func(p place) bool { return p.seq == c.Seq && p.n == c.Groups }
	switch {
	case c.Seq < 0 || c.Groups < 0:
		return fmt.Errorf("no cursor has seq %d and groups %d: both must be ≥ 0", c.Seq, c.Groups)
	case c.Groups == 0 || behind(t.acked, c.Seq, c.Groups):
		return nil
	case t.end.Seq < c.Seq || t.end.Seq == c.Seq && t.end.Groups < c.Groups:
		return fmt.Errorf("the cursor (seq %d, groups %d) is ahead of the last whole group (seq %d, groups %d)", c.Seq, c.Groups, t.end.Seq, t.end.Groups)
	case c.Seq == 0 || t.cfg.Acks && !slices.ContainsFunc(t.ahead, at):
		return fmt.Errorf("no whole group is number %d of commit %d", c.Groups, c.Seq)
	}
	return nil
}

// Cursors returns the last cursor that was acknowledged, and the one behind the last whole
// group. Their Seq is 0 where there is none.
func (t *Tracker) Cursors() (acked, end sink.Cursor) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.acked, t.end
}
