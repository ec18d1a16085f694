package sink

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/sink/store"
)

// TestCheckpointNotDue tests that a commit without a checkpoint does not copy the tail of the log.
func TestCheckpointNotDue(t *testing.T) {
	d := &Dataset{checkpoints: &checkpointer{tail: make([]entryLine, 10_000), saved: 9999}}
	if n := testing.AllocsPerRun(10, d.checkpoint); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// refusingStore refuses log checkpoints, like a store for which they are too large.
type refusingStore struct {
	store.Store
	logs, tails int
}

func (s *refusingStore) Put(name string, _ []byte) error {
	if strings.HasSuffix(name, logCheckpoint) {
		s.logs++
		return errors.New("too large")
	}
	s.tails++
	return nil
}

// TestRefusedCheckpoint tests that a log checkpoint that cannot be written is not tried for each few
// commits, and that tail checkpoints are still written.
func TestRefusedCheckpoint(t *testing.T) {
	t.Parallel()
	s := new(refusingStore)
	d := &Dataset{
		location: location{objects: s}, cfg: Config{Logger: slog.New(slog.DiscardHandler), Epoch: 1}, checkpoints: new(checkpointer),
	}
	for seq := range int64(5000) {
		d.checkpoints.keep(&Commit{Seq: seq + 1}, make([]byte, 1000))
		d.checkpoint()
	}
	if s.logs == 0 || s.logs > 40 || s.tails < 150 {
		t.Errorf("%d log checkpoints and %d tail checkpoints", s.logs, s.tails)
	}
}
