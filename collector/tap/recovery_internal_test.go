package tap

import (
	"errors"
	"path/filepath"
	"testing"
	"time"
)

// TestIdleRecovery proves that a spool without calls to write detects that it is writable again.
func TestIdleRecovery(t *testing.T) {
	t.Parallel()
	s, err := OpenSpool(SpoolConfig{Dir: filepath.Join(t.TempDir(), "spool")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.mu.Lock()
	s.err = errors.New("the last write failed")
	s.mu.Unlock()
	for began := time.Now(); s.Stats().Err != nil; time.Sleep(time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatal("it still reports an error")
		}
	}
}
