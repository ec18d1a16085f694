package stream_test

import (
	"fmt"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/stream"
	"github.com/rollout-rl/rollout/collector/pace"
	"github.com/rollout-rl/rollout/sink"
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
