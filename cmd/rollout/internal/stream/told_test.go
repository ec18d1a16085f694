package stream_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/stream"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/pace"
	"github.com/rollout-rl/rollout/sink"
)

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
		{"while it waited", cut, lateText + " after: status 503", true},
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
		{0, 1, "no whole group is number 1 of commit 0"},
		{1, 3, "no whole group is number 3 of commit 1"},
		{1, 2, ""},
		{1, 3, "no whole group is number 3 of commit 1"},
		{1, 1, ""}, // before the last one: no effect
		{2, 1, ""},
		{3, 1, "no whole group is number 1 of commit 3"},
		{3, 0, ""},
		{4, 2, "is ahead of the last whole group (seq 4, groups 1)"},
		{5, 1, "is ahead of the last whole group (seq 4, groups 1)"},
		{-1, 0, "must be ≥ 0"},
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
