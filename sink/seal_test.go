package sink_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/rollout-rl/rollout/sink"
)

// TestSealTwice tests that a second call of Seal changes nothing, and that a call after an unknown
// outcome finds the entry of the first one.
func TestSealTwice(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	var failing atomic.Bool // the next sync of the log's folder fails, after the entry is linked
	local := hookFS{sink.OS(), func(op string, paths ...string) error {
		if op == "syncdir" && strings.HasSuffix(paths[0], "_commits") && failing.CompareAndSwap(true, false) {
			return syscall.EIO
		}
		return nil
	}}
	for name, cfg := range map[string]sink.Config{"bucket": b.next(t, sink.Config{}), "folder": {FS: local}} {
		dir := t.TempDir()
		d := open(t, dir, cfg)
		wait := start(t.Context(), t, d)
		appendAll(t, d, samples(1)...)
		must(t, errors.Join(d.Close(t.Context()), wait()))
		if failing.Store(cfg.Store == nil); cfg.Store == nil {
			if err := d.Seal(); !errors.Is(err, syscall.EIO) {
				t.Errorf("Seal() = %v, want EIO", err)
			}
		}
		for range 2 {
			if err := d.Seal(); err != nil {
				t.Errorf("%s: Seal() = %v", name, err)
			}
		}
		if log, err := sink.ReadLogIn(cfg.Store, dir, nil); err != nil || !log.Sealed() {
			t.Errorf("%s: the log is not sealed: %v", name, err)
		}
		cfg.Epoch *= 2
		if _, err := sink.Create(dir, cfg); !errors.Is(err, sink.ErrSealed) {
			t.Errorf("%s: Create() = %v, want ErrSealed", name, err)
		}
	}
}
