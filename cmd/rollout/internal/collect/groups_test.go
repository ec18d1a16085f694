package collect

import (
	"context"
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/show"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/stream"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// A sample that failed in one process and succeeded in the next, while its group was incomplete,
// counts once when a third process completes the group. A lasting failure was already counted when
// the process began. A filtered sample counts only as filtered.
func TestEarlierCountsOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var held *sink.Ledger
	var commits []sink.Commit
	process := func(judge func(*sink.GroupFacts), list ...*tokenize.Sample) {
		t.Helper()
		cfg := sink.Config{RunID: "run", CommitGroups: true, Judge: judge}
		cfg.Events.Committed = func(c sink.Commit) { commits = append(commits, c) }
		d, err := sink.Create(dir, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if held, err = sink.ReadLedger(dir); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- d.Run(context.WithoutCancel(t.Context())) }()
		for _, s := range list {
			if err := d.Append(t.Context(), s, func(error) {}); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	for nth, keep := range []bool{true, false} {
		group := "0123456789abcdef0123456789abcde" + map[bool]string{true: "0", false: "1"}[keep]
		sample := func(index, attempt int32, failed bool) *tokenize.Sample {
			s := &tokenize.Sample{GroupID: group, GroupSize: 4, Index: index, Attempt: attempt, Status: "completed"}
			s.Key = group + "-" + string('0'+index)
			s.RolloutID = s.Key + "-" + string('0'+attempt)
			if failed {
				s.Failures = []tokenize.Failure{{Call: -1, Class: "length"}}
			}
			return s
		}
		judge := func(g *sink.GroupFacts) {
			for i := range g.Samples {
				if !keep {
					g.Samples[i].Keep = new(false)
				}
			}
		}
		process(judge, sample(0, 1, true), sample(1, 1, true))
		process(judge, sample(0, 2, false), sample(2, 1, false))
		if committed, waiting, failed, err := countHeld(dir); committed != 3*nth || waiting != 2 || failed != 1+nth || err != nil {
			t.Errorf("keep %t: %d are committed, %d wait, %d failed, %v", keep, committed, waiting, failed, err)
		}
		commits = nil
		process(judge, sample(3, 1, false))
		var keys []string
		for i := range commits {
			for _, s := range commits[i].Samples {
				keys = append(keys, s.Key[len(s.Key)-1:])
			}
		}
		if slices.Sort(keys); !slices.Equal(keys, []string{"0", "0", "1", "2", "3"}) {
			t.Fatalf("samples %q are committed", keys)
		}
		c, err := collector.New(collector.Config{
			Endpoints: []collector.Endpoint{{Name: "one", Backend: struct{ collector.Backend }{}}}, Sink: struct{ collector.Sink }{},
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range commits {
			countEarlier(c, held, &commits[i])
		}
		want := collector.Earlier{Committed: 2}
		if !keep {
			want = collector.Earlier{Filtered: 2}
		}
		if got := c.Stats().Earlier; got != want {
			t.Errorf("keep %t: %+v, want %+v", keep, got, want)
		}
	}
}

// A group that an earlier process completed is judged when the dataset is opened. The claimed
// version is already known then.
func TestStaleWhileOpened(t *testing.T) {
	t.Parallel()
	cfg := &config.Config{}
	cfg.Run.MaxLag = 1
	cfg.Tokens.PolicyVersion = config.PolicyVersion{Claimed: true, Version: 9}
	g := newGroups(&Plan{config: cfg, options: Options{Stream: true}, host: &Host{Observer: &show.Observer{Display: &show.Display{}}}})
	var s sink.Config
	g.configure(&s)
	group := sink.GroupFacts{ID: "g", Size: 2, Samples: []sink.SampleFacts{
		{Rows: 1, VersionMin: new(int32(7)), VersionMax: new(int32(8))},
		{Rows: 1, VersionMin: new(int32(8)), VersionMax: new(int32(8))},
	}}
	s.Judge(&group)
	if a, b := group.Samples[0].KeepReason, group.Samples[1].KeepReason; a != stream.ReasonStale || b != "" {
		t.Errorf("reasons %q and %q, want only the first one stale", a, b)
	}
}
