package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/session"
)

// openQuiet opens a store that syncs and cleans only when the test calls syncDirty and clean.
func openQuiet(tb testing.TB, d disk, cfg Config) *Store {
	tb.Helper()
	s, err := openOn(d, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	close(s.ended)
	return s
}

// TestConcurrentSyncs proves that a session is not sealed if the system reports to another sync that
// it has dropped bytes of the file. A system reports this to only one sync.
func TestConcurrentSyncs(t *testing.T) {
	t.Parallel()
	s := openQuiet(t, osDisk(), Config{Dir: t.TempDir()})
	defer s.Close()
	x := must(t, s)
	newTalk(1).add(t, x)
	broken := errors.New("input/output error")
	begun, end, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	s.disk.sync = func(*os.File) error {
		select {
		case <-begun:
			return nil
		default:
		}
		close(begun)
		<-end
		return broken
	}
	go func() {
		defer close(done)
		x.syncInBackground()
	}()
	<-begun
	x.mu.Lock() // the background has not yet recorded the error
	close(end)
	if err := x.sync(); !errors.Is(err, broken) {
		t.Errorf("the second sync returns %v", err)
	}
	x.mu.Unlock()
	<-done
	if _, err := x.End(t.Context(), session.End{}, false); !errors.Is(err, broken) || s.IsSealed(x.id) {
		t.Errorf("End returns %v", err)
	}
	if n := s.Stats().Errors; n != 1 {
		t.Errorf("%d errors are counted, want 1", n)
	}
}

// TestSyncOfClosedFile proves that a sync in the background does no harm if End has closed the file.
func TestSyncOfClosedFile(t *testing.T) {
	t.Parallel()
	s := openQuiet(t, osDisk(), Config{Dir: t.TempDir()})
	defer s.Close()
	x := must(t, s)
	f := x.file
	seal(t, x)
	if err := x.syncFile(f); !errors.Is(err, os.ErrClosed) || x.dropped != nil {
		t.Errorf("got %v, kept %v", err, x.dropped)
	}
}

// TestFolderSyncFails proves that End, repeated or not, fails until the name of the sealed session is
// durable, and that the background syncs the name if nobody repeats End.
func TestFolderSyncFails(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{sealedFolder, openFolder} {
		s := openQuiet(t, osDisk(), Config{Dir: t.TempDir()})
		key, err := s.Begin(session.Head{})
		if err != nil {
			t.Fatal(err)
		}
		broken, synced := errors.New("input/output error"), 0
		failing := true
		s.disk.syncDir = func(dir string) error {
			if failing && filepath.Base(dir) == folder {
				return broken
			}
			synced++
			return nil
		}
		for range 3 {
			x, err := s.Session(key)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := x.End(t.Context(), session.End{}, false); !errors.Is(err, broken) {
				t.Errorf("%s: End returns %v", folder, err)
			}
		}
		if folder == sealedFolder && synced > 0 {
			t.Error("open/ was synced before sealed/")
		}
		failing, synced = false, 0
		s.syncDirty()
		x, _ := s.Session(key)
		if _, err := x.End(t.Context(), session.End{}, false); err != nil || synced != 2 {
			t.Errorf("%s: End returns %v after %d syncs", folder, err, synced)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestOpenMarks proves that only the first process that opens a session writes to its file, so that
// restarts do not keep an unused session alive.
func TestOpenMarks(t *testing.T) {
	t.Parallel()
	cfg := Config{Dir: t.TempDir(), MaxAge: 24 * time.Hour}
	s := openQuiet(t, osDisk(), cfg)
	x := must(t, s)
	newTalk(1).add(t, x)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for n := range 4 {
		writes := 0
		d := osDisk()
		d.write = func(f *os.File, b []byte, at int64) (int, error) {
			writes++
			return f.WriteAt(b, at)
		}
		s = openQuiet(t, d, cfg)
		if (n == 0) != (writes > 0) {
			t.Errorf("process %d writes %d times", n, writes)
		}
		if rec, err := s.Read(x.id); err != nil || len(rec.Calls) != 1 {
			t.Errorf("%+v, %v", rec, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
