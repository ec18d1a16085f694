package sink_test

import (
	"crypto/sha256"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/store"
)

// A slowStore takes a minute for each file, and for each new entry.
type slowStore struct{ store.Store }

func (s slowStore) PutFile(name, file string, sum [sha256.Size]byte) error {
	time.Sleep(time.Minute)
	return s.Store.PutFile(name, file, sum)
}

func (s slowStore) PutNew(name string, body []byte) error {
	time.Sleep(time.Minute)
	return s.Store.PutNew(name, body)
}

// TestCommitting tests that Committing counts the time of a commit and of Seal, also while they wait for the
// store.
func TestCommitting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := open(t, t.TempDir(), sink.Config{Format: sink.Arrow, Store: slowStore{store.Folder(store.OS(), t.TempDir())}, Epoch: 1, MaxShardAge: time.Minute})
		is := func(want time.Duration) {
			t.Helper()
			if got := d.Committing(); got != want {
				t.Errorf("Committing = %v, want %v", got, want)
			}
		}
		wait := start(t.Context(), t, d)
		must(t, d.Append(t.Context(), samples(1)[0], func(error) {}))
		is(0)
		time.Sleep(time.Minute) // the shard is old enough
		synctest.Wait()
		is(0)
		time.Sleep(90 * time.Second) // one put has ended
		is(90 * time.Second)
		time.Sleep(time.Minute)
		is(0)
		must(t, d.Close(t.Context()))
		must(t, wait())
		sealed := make(chan error)
		go func() { sealed <- d.Seal() }()
		time.Sleep(30 * time.Second)
		is(30 * time.Second)
		must(t, <-sealed)
		is(0)
	})
}
