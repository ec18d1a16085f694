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

// toldGrouping returns a grouping that only writes its events to w.
func toldGrouping(w io.Writer) *grouping {
	d := show.NewDisplay(termsafe.NewWriter(w), termsafe.NewWriter(io.Discard), func(string) string { return "" }, true, false)
	return &grouping{
		collection: &collection{Observer: &show.Observer{Display: d, Log: show.DiscardLog()}},
		pace:       pace.New(pace.Config{MaxLag: -1}),
	}
}

// Tasks that arrive on standard input after drained are not reported.
func TestToldAfterDrained(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	g := toldGrouping(w)
	g.toldOf(&collector.Task{ID: "a"}, stream.Receipt{})
	g.drained(nil)
	g.toldOf(&collector.Task{ID: "b"}, stream.Receipt{Err: io.ErrUnexpectedEOF})
	go func() {
		g.Flush(lastWords)
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
