package stream_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/stream"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/pace"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
)

// TestLeaveOut checks that a skipped group no longer counts as ahead, though an earlier one does.
func TestLeaveOut(t *testing.T) {
	t.Parallel()
	p := pace.New(pace.Config{MaxAhead: 8, MaxLag: -1})
	var durable []sink.Cursor
	tracker := stream.NewTracker(stream.TrackerConfig{RunID: "r", Acks: true, Pace: p, Event: func(string, map[string]any) {}})
	tracker.Attach(stream.Hooks{Acknowledge: func(c sink.Cursor) error { durable = append(durable, c); return nil }})
	for seq := range int64(3) { // of two groups each
		c := &sink.Commit{Seq: seq + 1, RunID: "r"}
		for i := range int32(2) {
			id := fmt.Sprintf("g%d-%d", seq+1, i+1)
			c.Groups = append(c.Groups, sink.CommittedGroup{ID: id, Size: 1})
			c.Samples = append(c.Samples, sink.CommittedSample{Key: id + "-0", Rows: 1, Group: i})
		}
		tracker.Committed(c)
	}
	for _, step := range []struct {
		what  string
		do    func(int64, int) error
		seq   int64
		n     int
		ahead int
		fails bool
	}{
		{"one in the middle", tracker.LeaveOut, 2, 1, 5, false},
		{"it again", tracker.LeaveOut, 2, 1, 5, false},
		{"one that is not whole", tracker.LeaveOut, 4, 1, 5, true},
		{"the last", tracker.LeaveOut, 3, 2, 4, false},
		{"those up to the first", tracker.Acknowledge, 1, 1, 3, false},
		{"one that was acknowledged", tracker.LeaveOut, 1, 1, 3, false},
		{"those behind what was left out", tracker.Acknowledge, 2, 2, 1, false},
		{"all", tracker.Acknowledge, 3, 2, 0, false},
	} {
		err := step.do(step.seq, step.n)
		if s := p.Stats(); (err != nil) != step.fails || s.Ahead != step.ahead {
			t.Errorf("%s: %v, and %d are ahead, want %d", step.what, err, s.Ahead, step.ahead)
		}
	}
	if len(durable) != 3 {
		t.Errorf("cursors that were made durable: %v", durable)
	}
}

// A tracked is a tracker with the groups that it reported.
type tracked struct {
	*stream.Tracker
	told  []map[string]any
	acked []sink.Cursor
}

func newTracked() *tracked {
	t := &tracked{}
	t.track(func(name string, fields map[string]any) {
		if name == "group" {
			t.told = append(t.told, fields)
		}
	})
	return t
}

func (t *tracked) track(event func(string, map[string]any)) {
	t.Tracker = stream.NewTracker(stream.TrackerConfig{
		RunID: "run", MaxLag: -1, Acks: true, Pace: pace.New(pace.Config{MaxLag: -1}),
		Event: event,
	})
	t.Attach(stream.Hooks{Acknowledge: func(c sink.Cursor) error {
		t.acked = append(t.acked, c)
		return nil
	}})
}

// commit returns a commit of one sample per task, of groups of size samples.
func commit(seq int64, at time.Time, size int32, index int32, class string, tasks ...*collector.Task) *sink.Commit {
	c := &sink.Commit{Seq: seq, CreatedAt: at}
	for i, of := range tasks {
		c.Groups = append(c.Groups, sink.CommittedGroup{ID: collector.GroupID(of), Size: size})
		s := sink.CommittedSample{Key: fmt.Sprintf("%s-%d", of.ID, index), Group: int32(i), Index: index, Rows: 1}
		if class != "" {
			s.Rows, s.Failures, s.Class = 0, 1, class
		}
		c.Samples = append(c.Samples, s)
	}
	return c
}

func taskOf(id string, deadline time.Time) *collector.Task {
	return &collector.Task{ID: id, Messages: []string{id}, Deadline: deadline}
}

const lateText = "collector: cut at the task's deadline, 2026-01-01T12:00:00Z"

// TestToldDeadline checks that an event has deadline set if a sample was cut at its task's
// deadline, not if the tail policy cut it, and null if unknown.
func TestToldDeadline(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	cut := collector.ClassCensored.String()
	for _, tt := range []struct {
		name        string
		class, text string
		want        any
	}{
		{"at its deadline", cut, lateText + ": run: context canceled", true},
		{"while it waited", cut, lateText + "; the last attempt failed: status 503", true},
		{"by the tail policy", cut, collector.ErrCensored.Error(), false},
		{"by the tail policy, of a server that knows our words", cut, collector.ErrCensored.Error() + ": " + lateText, false},
		{"failed", "decode", lateText, false},
		{"in time", "", "", false},
		{"nobody has looked", cut, "", nil},
	} {
		for _, again := range []bool{false, true} {
			tr, of := newTracked(), taskOf("a", now.Add(-time.Hour))
			c, g := commit(1, now, 1, 0, tt.class, of), &sink.GroupFacts{ID: collector.GroupID(of), Size: 1, Samples: []sink.SampleFacts{{Class: tt.class, Error: tt.text}}}
			if tt.class == "" {
				g.Samples[0].Rows = 1
			}
			if tt.want != nil {
				tr.Judge(g)
			}
			if again { // a group that was judged while the dataset was opened
				tr.Load(c)
				must(t, tr.FindTasks(func(yield func(collector.Task, error) bool) { yield(*of, nil) }))
				tr.Again()
			} else {
				tr.Task(of)
				tr.Committed(c)
			}
			if len(tr.told) != 1 || tr.told[0]["deadline"] != tt.want || tr.told[0]["again"] != again || tr.told[0]["task"] != "a" {
				t.Errorf("%s, again %v: got %v", tt.name, again, tr.told)
			}
		}
	}
}

// TestTrackerForgets checks that nothing is kept of a reported group.
func TestTrackerForgets(t *testing.T) {
	t.Parallel()
	tr, now := newTracked(), time.Now()
	old, fresh := taskOf("old", now), taskOf("fresh", now)
	tr.Load(commit(1, now, 1, 0, "decode", old))
	must(t, tr.FindTasks(func(yield func(collector.Task, error) bool) { _ = yield(*old, nil) && yield(*fresh, nil) }))
	tr.Again()
	tr.Task(old) // its failed sample is retried
	tr.Task(fresh)
	tr.Committed(commit(2, now, 2, 0, collector.ClassCensored.String(), fresh))
	if n := tr.Held(); n != 1 {
		t.Errorf("%d things are kept of an open group, want its task", n)
	}
	tr.Judge(&sink.GroupFacts{ID: collector.GroupID(fresh)})
	tr.Committed(commit(3, now, 2, 1, "", fresh))
	tr.Task(fresh)
	tr.Committed(commit(4, now, 2, 0, collector.ClassCensored.String(), fresh, old))
	if n := tr.Held(); n != 0 || len(tr.told) != 2 {
		t.Errorf("%d entries are kept, %d groups were reported", n, len(tr.told))
	}
}

// TestNobodyReads checks that without a reader of events groups are counted and acknowledged, and
// nothing is kept.
func TestNobodyReads(t *testing.T) {
	t.Parallel()
	tr, now := new(tracked), time.Now()
	tr.track(nil)
	tr.Load(commit(1, now, 1, 0, "", taskOf("a", now)))
	if n := tr.Held(); n != 0 {
		t.Errorf("%d things are kept of groups of earlier processes", n)
	}
	tr.Again()
	b := taskOf("b", now)
	tr.Task(b)
	tr.Judge(&sink.GroupFacts{ID: collector.GroupID(b)})
	tr.Committed(commit(2, now, 1, 0, collector.ClassCensored.String(), b))
	if n := tr.Held(); n != 0 {
		t.Errorf("%d things are kept", n)
	}
	if err := tr.Acknowledge(2, 1); err != nil || len(tr.acked) != 1 {
		t.Errorf("Acknowledge = %v, made durable: %v", err, tr.acked)
	}
}

// TestAcknowledgeImpossible checks that a cursor that no reader of this run can have is rejected
// with the right range.
func TestAcknowledgeImpossible(t *testing.T) {
	t.Parallel()
	tr, now := newTracked(), time.Now()
	tr.Load(commit(1, now, 1, 0, "", taskOf("a", now), taskOf("b", now)))
	tr.Load(commit(2, now, 1, 0, "decode", taskOf("c", now)))
	tr.Committed(commit(4, now, 1, 0, "", taskOf("d", now)))
	for _, tt := range []struct {
		seq    int64
		groups int
		fails  string
	}{
		{0, 0, ""},
		{0, 1, "no whole group ends at the cursor (seq 0, groups 1)"},
		{1, 3, "no whole group ends at the cursor (seq 1, groups 3)"},
		{1, 2, ""},
		{1, 3, "no whole group ends at the cursor (seq 1, groups 3)"},
		{1, 1, ""}, // before the last one: no effect
		{2, 1, ""},
		{3, 1, "no whole group ends at the cursor (seq 3, groups 1)"},
		{3, 0, ""},
		{4, 2, "is ahead of the last whole group (seq 4, groups 1)"},
		{5, 1, "is ahead of the last whole group (seq 4, groups 1)"},
		{-1, 0, "want both ≥ 0"},
		{4, 1, ""},
	} {
		err := tr.Acknowledge(tt.seq, tt.groups)
		if (err == nil) != (tt.fails == "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
			t.Errorf("seq %d, groups %d: %v, want %q", tt.seq, tt.groups, err, tt.fails)
		}
	}
	if got, _ := tr.Cursors(); got != (sink.Cursor{RunID: "run", Seq: 4, Groups: 1}) || len(tr.acked) != 4 {
		t.Errorf("acknowledged up to %+v: %v", got, tr.acked)
	}
}

// facts returns a whole group of samples with these rewards and versions; nil is unknown.
func facts(rewards []float64, versions ...*int32) *sink.GroupFacts {
	g := &sink.GroupFacts{ID: "g", Size: int32(len(versions))}
	for i, v := range versions {
		s := sink.SampleFacts{Index: int32(i), Rows: 1, VersionMin: v, VersionMax: v}
		if i < len(rewards) {
			s.Reward = &rewards[i]
		}
		g.Samples = append(g.Samples, s)
	}
	return g
}

func verdicts(g *sink.GroupFacts) string {
	var out string
	for _, s := range g.Samples {
		if s.Keep == nil {
			out += "null "
			continue
		}
		out += fmt.Sprintf("%v:%s ", *s.Keep, s.KeepReason)
	}
	return out
}

func TestJudge(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		std  float64
		lag  int
		g    *sink.GroupFacts
		want string
	}{
		{"nothing asked", 0, -1, facts([]float64{1, 1}, new(int32(0)), new(int32(0))), "null null "},
		{"too old", 0, 1, facts(nil, new(int32(7)), new(int32(6)), new(int32(5)), nil), "null null true:stale null "},
		{"on-policy", 0, 0, facts(nil, new(int32(7)), new(int32(6))), "null true:stale "},
		{"no version was ever set", 0, 0, facts(nil, new(int32(0))), "null "},
		{"newer than told", 0, 0, facts(nil, new(int32(8))), "null "},
		{"equal rewards", 0.1, -1, facts([]float64{1, 1}, nil, nil), "false:reward_std false:reward_std "},
		{"equal and old", 0.1, 0, facts([]float64{1, 1}, new(int32(1)), nil), "false:reward_std false:reward_std "},
		{"different and old", 0.1, 0, facts([]float64{0, 1}, new(int32(1)), new(int32(7))), "true:stale null "},
		{"one reward", 0.1, -1, facts([]float64{1}, nil, nil), "false:reward_missing false:reward_missing "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := pace.New(pace.Config{MaxLag: tc.lag})
			if tc.name != "no version was ever set" {
				p.SetVersion(7)
			}
			stream.NewTracker(stream.TrackerConfig{MinStd: tc.std, MaxLag: tc.lag, Pace: p}).Judge(tc.g)
			if got := verdicts(tc.g); got != tc.want {
				t.Errorf("verdicts %q, want %q", got, tc.want)
			}
		})
	}
}

// TestRecall checks that a group that is reported again takes staleness from its rows and the
// deadline from its failures.
func TestRecall(t *testing.T) {
	t.Parallel()
	dir, old, fresh := t.TempDir(), collector.GroupID(taskOf("old", time.Time{})), collector.GroupID(taskOf("fresh", time.Time{}))
	cfg := sink.Config{RunID: "run", CommitGroups: true, Judge: func(g *sink.GroupFacts) {
		if g.ID == old {
			g.Samples[0].Keep, g.Samples[0].KeepReason = new(true), stream.ReasonStale
		}
	}}
	b, cuts := sinktest.NewBuilder(1), map[string]string{"late": lateText, "cut": collector.ErrCensored.Error()}
	var samples []*tokenize.Sample
	for _, group := range []string{old, fresh, "late", "cut"} {
		s := b.Sample(b.Row(2, 1))
		s.Key, s.GroupID, s.RolloutID, s.Index, s.GroupSize = group+"-0", group, group+"-0/1", 0, 1
		if text := cuts[group]; text != "" {
			s.Rows, s.Failures = nil, []tokenize.Failure{{Class: collector.ClassCensored.String(), Stage: "run", Error: text, Call: -1}}
		}
		samples = append(samples, s)
	}
	sinktest.Write(t, dir, cfg, samples)
	tr := newTracked()
	log, err := sink.ReadLogIn(nil, dir, tr.Load)
	if err == nil {
		err = tr.Recall(log)
	}
	must(t, err)
	tr.Again()
	got, late := map[any]bool{}, map[any]any{}
	for _, told := range tr.told {
		late[told["group"]] = told["deadline"]
		if stale, ok := told["stale"].(*bool); ok && stale != nil {
			got[told["group"]] = *stale
		}
	}
	if len(got) != 4 || !got[old] || got[fresh] {
		t.Errorf("got %v, want %s as stale and %s not", tr.told, old, fresh)
	}
	if want := map[any]any{old: false, fresh: false, "late": true, "cut": false}; !maps.Equal(late, want) {
		t.Errorf("deadline %v, want %v", late, want)
	}
}

// TestRecallMany checks that staleness is unknown if there are more groups than are recalled.
func TestRecallMany(t *testing.T) {
	t.Parallel()
	tr := newTracked()
	for i := range 1025 {
		tr.Load(commit(int64(i+1), time.Now(), 1, 0, "", taskOf(fmt.Sprint(i), time.Time{})))
	}
	if err := tr.Recall(&sink.Log{}); err == nil {
		t.Error("no error about the missing figures")
	}
	tr.Again()
	if stale, ok := tr.told[0]["stale"].(*bool); len(tr.told) != 1025 || !ok || stale != nil {
		t.Errorf("got %d groups, the first as %v, want null in stale", len(tr.told), tr.told[0])
	}
}
