package stream_test

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/stream"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// TestRecall checks that a group that is reported again takes staleness from its rows and the
// deadline from its failures.
func TestRecall(t *testing.T) {
	t.Parallel()
	dir, old, fresh := t.TempDir(), collector.GroupID(taskOf("old", time.Time{})), collector.GroupID(taskOf("fresh", time.Time{}))
	d, err := sink.Create(dir, sink.Config{RunID: "run", CommitGroups: true, Judge: func(g *sink.GroupFacts) {
		if g.ID == old {
			g.Samples[0].Keep, g.Samples[0].KeepReason = new(true), stream.ReasonStale
		}
	}})
	must(t, err)
	ended := make(chan error, 1)
	go func() { ended <- d.Run(context.WithoutCancel(t.Context())) }()
	cuts := map[string]string{"late": lateText, "cut": collector.ErrCensored.Error()}
	for _, group := range []string{old, fresh, "late", "cut"} {
		row := tokenize.Row{SegmentCount: 1, LastCall: 1, FinishReasons: []string{"stop"}, StepIDs: []string{"s"}, Grade: tokenize.Exact, Source: tokenize.SourceTurns}
		row.AppendContext(tokenize.RolePrompt, []int32{1, 2})
		row.AppendSampled([]int32{3}, []float32{-0.5}, -1)
		s := &tokenize.Sample{Key: group + "-0", GroupID: group, RolloutID: group + "-0-1", GroupSize: 1, Attempt: 1, Status: "completed", Rows: []tokenize.Row{row}}
		if text := cuts[group]; text != "" {
			s.Rows, s.Failures = nil, []tokenize.Failure{{Class: collector.ClassCensored.String(), Stage: "run", Error: text, Call: -1}}
		}
		must(t, d.Append(t.Context(), s, func(error) {}))
	}
	must(t, d.Close(t.Context()))
	must(t, <-ended)
	tr := newTracked()
	log, err := sink.ReadLogEach(dir, tr.Load)
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
