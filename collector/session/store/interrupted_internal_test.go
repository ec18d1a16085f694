package store

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/session"
)

// TestEndInterrupted proves that an End that failed, and that nobody repeats, is completed if the end
// is in the file, and that otherwise the session is removed after MaxAge.
func TestEndInterrupted(t *testing.T) {
	t.Parallel()
	broken := errors.New("input/output error")
	for _, c := range []struct {
		name   string
		fail   func(s *Store, x *Session) // makes End fail, before or in it
		repair bool                       // whether the disk works again after End
		sealed bool
	}{
		{"the client has gone away", func(_ *Store, x *Session) {
			a := admit(t, x)
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if _, err := x.End(ctx, session.End{}, true); !errors.Is(err, context.Canceled) {
				t.Errorf("End returns %v", err)
			}
			a.Done()
		}, true, false},
		{"write", func(s *Store, x *Session) {
			s.disk.write = func(*os.File, []byte, int64) (int, error) { return 0, broken }
		}, true, false},
		{"sync", func(s *Store, x *Session) { s.disk.sync = func(*os.File) error { return broken } }, true, false},
		{"rename once", func(s *Store, x *Session) { s.disk.rename = func(_, _ string) error { return broken } }, true, true},
		{"rename", func(s *Store, x *Session) { s.disk.rename = func(_, _ string) error { return broken } }, false, false},
	} {
		s := openQuiet(t, osDisk(), Config{Dir: t.TempDir(), MaxAge: time.Hour})
		x := must(t, s)
		newTalk(1).add(t, x)
		c.fail(s, x)
		if c.name != "the client has gone away" {
			if _, err := x.End(t.Context(), session.End{}, false); !errors.Is(err, broken) {
				t.Errorf("%s: End returns %v", c.name, err)
			}
		}
		if c.repair {
			s.disk = osDisk()
		}
		s.syncDirty()
		s.clean(time.Now())
		if st := s.Stats(); s.IsSealed(x.id) != c.sealed || st.Removed > 0 {
			t.Errorf("%s: %+v", c.name, st)
		}
		if !c.sealed {
			s.clean(time.Now().Add(2 * time.Hour))
			if _, err := os.Stat(x.path); !errors.Is(err, os.ErrNotExist) || s.Stats().Removed != 1 || s.Stats().Open != 0 {
				t.Errorf("%s: after MaxAge: %v, %+v", c.name, err, s.Stats())
			}
		}
		_, err := x.End(t.Context(), session.End{}, false)
		if c.sealed && err != nil || !c.sealed && !errors.Is(err, ErrUnknown) {
			t.Errorf("%s: a repeated End returns %v", c.name, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestEndCompletedLater proves that a session is sealed at last if an earlier process has written its
// end, and this process could not seal it when it opened the store.
func TestEndCompletedLater(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := osDisk()
	d.rename = func(_, _ string) error { return errors.New("input/output error") }
	var id string
	for n := range 2 {
		s := openQuiet(t, d, Config{Dir: dir})
		if n == 0 {
			x := must(t, s)
			id = x.id
			newTalk(1).add(t, x)
			if _, err := x.End(t.Context(), session.End{Reward: new(1.0)}, false); err == nil {
				t.Error("End returns no error")
			}
		}
		if rec, err := s.Read(id); err != nil || rec.End == nil || s.IsSealed(id) {
			t.Errorf("process %d: %+v, %v", n, rec, err)
		}
		if n == 1 {
			s.disk = osDisk()
			s.clean(time.Now())
			if entries, err := s.Sealed(""); err != nil || len(entries) != 1 || entries[0].ID != id {
				t.Errorf("%v, %v", entries, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestClearInterrupted proves that Clear removes a session whose End failed or has not yet written
// anything.
func TestClearInterrupted(t *testing.T) {
	t.Parallel()
	s := openQuiet(t, osDisk(), Config{Dir: t.TempDir()})
	defer s.Close()
	s.disk.rename = func(_, _ string) error { return errors.New("input/output error") }
	x := must(t, s)
	if _, err := x.End(t.Context(), session.End{}, false); err == nil {
		t.Error("End returns no error")
	}
	begun := must(t, s)
	if _, _, err := begun.beginEnd("{}", false); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Clear(func(string) bool { return false }); n != 2 || err != nil || s.Stats().Open != 0 {
		t.Errorf("Clear = %d, %v, %+v", n, err, s.Stats())
	}
	begun.mu.Lock()
	defer begun.mu.Unlock()
	if err := begun.seal(session.End{}); !errors.Is(err, ErrUnknown) {
		t.Errorf("the session is sealed after Clear: %v", err)
	}
}

// TestTwin proves that the file in open/ of a sealed session is removed when the store is opened,
// unless the sealed file is damaged.
func TestTwin(t *testing.T) {
	t.Parallel()
	for _, whole := range []bool{true, false} {
		dir := t.TempDir()
		s := openQuiet(t, osDisk(), Config{Dir: dir})
		x := must(t, s)
		newTalk(1).add(t, x)
		seal(t, x)
		sealed := s.sealedPath(s.sealed[x.id])
		b, err := os.ReadFile(sealed)
		if err = errors.Join(err, os.WriteFile(x.path, b, 0o666), s.Close()); err != nil {
			t.Fatal(err)
		}
		if !whole {
			bad := bytes.Clone(b)
			bad[len(b)/2]++
			if err := os.WriteFile(sealed, bad, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		s = openQuiet(t, osDisk(), Config{Dir: dir})
		if _, err := os.Stat(x.path); errors.Is(err, os.ErrNotExist) != whole {
			t.Errorf("the sealed file is whole: %t; the open file: %v", whole, err)
		}
		if st := s.Stats(); st.Open != 0 || st.Sealed != 1 {
			t.Errorf("%+v", st)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestRetainForeign proves that a file that another program copied into sealed/ is removed by name, and
// that a file that cannot be removed does not cost later sessions.
func TestRetainForeign(t *testing.T) {
	t.Parallel()
	s := openQuiet(t, osDisk(), Config{Dir: t.TempDir()})
	defer s.Close()
	for range 3 {
		seal(t, must(t, s))
	}
	entries, err := s.Sealed("")
	if err != nil {
		t.Fatal(err)
	}
	copied := nameOf(1, entries[2].ID)
	b, err := os.ReadFile(s.sealedPath(entries[2].Name))
	if err = errors.Join(err, os.WriteFile(s.sealedPath(copied), b, 0o666)); err != nil {
		t.Fatal(err)
	}
	s.cfg.MaxBytes = 2*entries[0].Bytes + 10
	s.disk.remove = func(path string) error {
		if path == s.sealedPath(entries[0].Name) {
			return errors.New("operation not permitted")
		}
		return os.Remove(path)
	}
	s.clean(time.Now())
	left, err := s.Sealed("")
	if err != nil || len(left) != 3 || left[0].Name != entries[0].Name || !s.IsSealed(entries[2].ID) {
		t.Errorf("%v is left, %v", left, err)
	}
	if _, err := os.Stat(s.sealedPath(copied)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the copied file: %v", err)
	}
}
