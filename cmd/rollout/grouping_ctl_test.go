package main

import (
	"io"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/show"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/stream"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tame"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/pace"
)

// toldGrouping is a grouping that tells its events to w, and does nothing else.
func toldGrouping(w io.Writer) *grouping {
	d := show.NewDisplay(tame.NewWriter(w), tame.NewWriter(io.Discard), func(string) string { return "" }, true, false)
	return &grouping{
		collection: &collection{Observer: &show.Observer{Display: d, Log: show.DiscardLog()}},
		pace:       pace.New(pace.Config{MaxLag: -1}),
	}
}

// The line that a standard input goes on with is not told after drained.
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
