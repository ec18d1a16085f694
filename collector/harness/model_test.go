package harness_test

import (
	"context"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/harness"
	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/session/store"
)

// A local source reads the sessions of a store in the same process.
type local struct {
	store.Source
	from *store.Store
}

func (l local) Read(_ context.Context, id string) (*session.Record, error) { return l.from.Read(id) }

// TestModel checks that a reply has the name of the model that answered in the main conversation, in a
// run and when its session is read later, and the time of the last answer.
func TestModel(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := backend(t, r.config(t))
	if err := b.Serve("qwen3", 0); err != nil {
		t.Fatal(err)
	}
	for prompt, want := range map[string]string{"calls=2": "qwen3", "calls=2 model=step-1": "step-1", "calls=0": "qwen3"} {
		g := open(t, b, attempt(prompt, 1))
		reply, _ := g.Run(t.Context()) // without a call, it fails
		read, err := harness.NewReader(local{from: r.store}, session.Config{}).
			Open(t.Context(), collector.Attempt{Task: &collector.Task{Recorded: &collector.Recorded{Run: g.ID()}}})
		if err != nil {
			t.Fatal(err)
		}
		later, _ := read.Run(t.Context())
		if reply.Model != want || later.Model != want {
			t.Errorf("%s: model %q, read later %q; want %q", prompt, reply.Model, later.Model, want)
		}
		last := time.Time{} // not the end of the command, because the engine can be down by then
		if record, err := r.store.Read(g.ID()); err != nil {
			t.Error(err)
		} else if n := len(record.Calls); n > 0 {
			last = record.Calls[n-1].Ended
		}
		if !reply.LastAnswer.Equal(last) {
			t.Errorf("%s: the last answer was at %v, want %v", prompt, reply.LastAnswer, last)
		}
		if err := g.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
