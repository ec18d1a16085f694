package collect

import (
	"io"
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/show"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/stream"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/pace"
)

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
