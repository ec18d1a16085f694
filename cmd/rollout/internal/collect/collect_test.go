package collect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/show"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/signals"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/stream"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/pace"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
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
		var err error
		if held, err = sink.ReadLedger(nil, dir); err != nil {
			t.Fatal(err)
		}
		sinktest.Write(t, dir, cfg, list)
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

// With --unpaced, no group is held, but stale rows are marked and the client gets all numbers.
func TestUnpaced(t *testing.T) {
	t.Parallel()
	cfg := &config.Config{}
	cfg.Run.MaxAhead, cfg.Tasks.UntilGroups = 1, 1
	r, w := io.Pipe()
	d := show.NewDisplay(termsafe.NewWriter(w), termsafe.NewWriter(io.Discard), func(string) string { return "" }, true, false)
	g := newGroups(&Plan{config: cfg, options: Options{Stream: true, Unpaced: true}, host: &Host{Observer: &show.Observer{Display: d}}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, id := range []string{"a", "b", "c"} {
		if _, ok, err := g.pace.Group(ctx, id); !ok || err != nil {
			t.Fatalf("group %s: %v, %v", id, ok, err)
		}
		g.pace.Whole(id, pace.Given, -1)
	}
	g.pace.SetVersion(1)
	var s sink.Config
	g.configure(&s)
	group := sink.GroupFacts{ID: "g", Size: 1, Samples: []sink.SampleFacts{{Rows: 1, VersionMin: new(int32(0)), VersionMax: new(int32(1))}}}
	if s.Judge(&group); group.Samples[0].KeepReason != stream.ReasonStale {
		t.Errorf("reason %q, want stale", group.Samples[0].KeepReason)
	}
	g.pace.Acknowledged("a")
	g.report()
	go func() {
		d.Flush(lastWords)
		_ = w.Close()
	}()
	const want = `"informative":3,"max_ahead":1,"max_lag":0,"until_groups":1,"version":1,"version_seconds":0,"whole":3}`
	if got, _ := io.ReadAll(r); !strings.HasPrefix(string(got), `{"event":"pace","given":2,"group_seconds":`) || !strings.Contains(string(got), want) {
		t.Errorf("%s, want %s", got, want)
	}
}

// Tasks that arrive on standard input after drained are not reported.
func TestReportAfterDrained(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	d := show.NewDisplay(termsafe.NewWriter(w), termsafe.NewWriter(io.Discard), func(string) string { return "" }, true, false)
	p := &Plan{host: &Host{Observer: &show.Observer{Display: d, Log: show.DiscardLog()}}}
	a := &arrivals{plan: p, intake: stream.New(stream.Config{})}
	run := &Running{host: p.host, plan: p, opened: &Opened{groups: &groups{pace: pace.New(pace.Config{MaxLag: -1})}}, ends: &ends{}, arrivals: a}
	a.report(&collector.Task{ID: "a"}, stream.Receipt{})
	run.reportDrained(nil)
	a.report(&collector.Task{ID: "b"}, stream.Receipt{Err: io.ErrUnexpectedEOF})
	go func() {
		d.Flush(lastWords)
		_ = w.Close()
	}()
	const want = `{"again":false,"event":"accepted","group":"","samples":0,"task":"a"}` + "\n" + `{"event":"drained","why":"end of tasks"}` + "\n"
	if got, _ := io.ReadAll(r); string(got) != want {
		t.Errorf("%s, want\n%s", got, want)
	}
}

// Groups are stale if their lag exceeds the configured bound.
func TestLagOf(t *testing.T) {
	t.Parallel()
	s := pace.Stats{Lags: [pace.LagMost + 1]int{4, 0, 3, 2}}
	for most, want := range map[int]int{-1: 0, 0: 5, 1: 5, 2: 2, 3: 0, 90: 0} {
		lag := lagOf(&s, most)
		if lag.Stale != want || (lag.Max != nil) != (most >= 0) || !slices.Equal(lag.Counts, []int{4, 0, 3, 2}) {
			t.Errorf("at most %d: %+v, want %d stale", most, lag, want)
		}
	}
}

// A run whose commit log becomes unreadable ends with the exit code that its message promises.
func TestUnreadableCommitLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "_commits"), 0o700), os.WriteFile(filepath.Join(dir, "_commits", "00000000000000000001.json"), []byte("{}"), 0o600)); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	d := show.NewDisplay(termsafe.NewWriter(io.Discard), termsafe.NewWriter(&said), func(string) string { return "" }, false, false)
	p := &Plan{host: &Host{Observer: &show.Observer{Display: d, Log: show.DiscardLog()}}, config: new(config.Config)}
	p.config.Output.Dir = dir
	r := &Running{host: p.host, plan: p, opened: &Opened{plan: p}}
	r.checkBeside(t.Context())
	sum := &show.Summary{Outcome: "finished", Committed: 1}
	end := withDamage(dir, sum, r.opened.damage.Found(), nil)
	d.Finish(sum)
	d.Flush(lastWords)
	if exit.Code(end) != exit.Verify || strings.Count(end.Error(), dir) != 1 || !strings.Contains(said.String(), "will end with exit status 9") || strings.Contains(said.String(), "next:") {
		t.Errorf("the run ends with %v; it said %q", end, said.String())
	}
}

// A storage failure is reported once, even if the user was interrupting the run.
func TestWhyStopped(t *testing.T) {
	t.Parallel()
	full := &sink.ShardError{Path: "p", Op: "write", Err: syscall.ENOSPC}
	for _, tt := range []struct {
		name            string
		runErr, sinkErr error
		code            int
		text            string
	}{
		{"nothing", nil, nil, exit.OK, ""},
		{"storage, which stopped the run", fmt.Errorf("%w: %w", collector.ErrStorage, full), full, exit.Storage, "storage failed: p: write: no space left on device"},
		{"storage at the end", nil, full, exit.Storage, "storage failed: p: write: no space left on device"},
		{"storage while interrupted", signals.ErrInterrupted, full, exit.Storage, "storage failed: p: write: no space left on device"},
		{"storage after another end", collector.ErrAuth, full, exit.Storage, "collector: not authorized\nstorage failed: p: write: no space left on device"},
		{"something else", collector.ErrAuth, nil, exit.Unusable, "collector: not authorized"},
	} {
		err := whyStopped("run1", tt.runErr, tt.sinkErr)
		if tt.text == "" && err != nil || tt.text != "" && (err == nil || err.Error() != tt.text) || exit.Code(err) != tt.code || interrupted(err) {
			t.Errorf("%s: whyStopped() = %v with code %d, want %q with %d", tt.name, err, exit.Code(err), tt.text, tt.code)
		}
		if (exit.HintOf(err) != "") != (tt.sinkErr != nil) {
			t.Errorf("%s: hint %q", tt.name, exit.HintOf(err))
		}
	}
}
