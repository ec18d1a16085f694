package store

import (
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rollout-rl/rollout/collector/session"
)

// seal ends a session.
func seal(tb testing.TB, x *Session) {
	tb.Helper()
	if _, err := x.End(tb.Context(), session.End{}, false); err != nil {
		tb.Fatal(err)
	}
}

func must(tb testing.TB, s *Store) *Session {
	tb.Helper()
	key, err := s.Begin(session.Head{})
	if err != nil {
		tb.Fatal(err)
	}
	x, err := s.Session(key)
	if err != nil {
		tb.Fatal(err)
	}
	return x
}

// TestFiles proves that hundreds of sessions whose files are not synced do not keep as many files
// open: the others are synced at once.
func TestFiles(t *testing.T) {
	s := openQuiet(t, osDisk(), Config{Dir: t.TempDir()})
	defer s.Close()
	var syncs atomic.Int64
	s.disk.sync = func(*os.File) error {
		syncs.Add(1)
		return nil
	}
	var all []*Session
	for n := range uint64(maxFiles + 100) {
		all = append(all, must(t, s))
		newTalk(n).add(t, all[n])
	}
	if n := files(t, s); n != maxFiles {
		t.Errorf("%d files are open, want %d", n, maxFiles)
	}
	if n := syncs.Load(); n != 200 { // the head and the call of each of the other 100 sessions
		t.Errorf("%d syncs", n)
	}
	for _, x := range all[maxFiles:] {
		if x.durable != x.size {
			t.Errorf("%d of %d bytes are synced", x.durable, x.size)
		}
	}
	s.syncDirty()
	if n := files(t, s); n > 0 || syncs.Load() != 200+maxFiles {
		t.Errorf("after the sync: %d files are open, %d syncs", n, syncs.Load())
	}
}

// TestSyncFails proves that a session whose file could not be synced accepts no call and no end, in
// this process, and that the other sessions continue.
func TestSyncFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, where := range []string{"background", "end"} {
		s := openQuiet(t, osDisk(), Config{Dir: dir})
		x, other := must(t, s), must(t, s)
		newTalk(1).add(t, x)
		broken := errors.New("input/output error")
		s.disk.sync = func(*os.File) error { return broken }
		if where == "background" {
			x.syncInBackground()
		} else if _, err := x.End(t.Context(), session.End{}, false); !errors.Is(err, broken) {
			t.Errorf("End returns %v", err)
		}
		s.disk.sync = (*os.File).Sync
		_, admitErr := x.Admit(nil)
		_, endErr := x.End(t.Context(), session.End{}, false)
		for _, err := range []error{admitErr, endErr, s.Stats().Err} {
			if !errors.Is(err, broken) || !strings.Contains(err.Error(), dir) {
				t.Errorf("%s: got %v", where, err)
			}
		}
		if entries, _ := s.Sealed(""); len(entries) > 0 {
			t.Errorf("%s: sealed without a sync: %v", where, entries)
		}
		newTalk(2).add(t, other)
		if s.Stats().Err != nil {
			t.Errorf("%s: after a write: %v", where, s.Stats().Err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		s = openQuiet(t, osDisk(), Config{Dir: dir}) // the bytes were not lost
		rec, err := s.Read(x.id)
		if err != nil || len(rec.Calls) != 1 || (rec.End != nil) != (where == "end") {
			t.Errorf("%s: the next process reads %+v, %v", where, rec, err)
		}
		if rec.End != nil {
			err = s.Remove(x.id)
		}
		if err = errors.Join(err, s.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestTruncateFails proves that the rest of a failed write is removed before the next write, if it
// cannot be removed at once.
func TestTruncateFails(t *testing.T) {
	t.Parallel()
	s := openQuiet(t, osDisk(), Config{Dir: t.TempDir()})
	defer s.Close()
	x, talk := must(t, s), newTalk(1)
	talk.add(t, x)
	x.mu.Lock()
	x.torn = true // as after a partial write
	_, err := x.file.WriteAt(make([]byte, 100_000), x.size)
	x.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	s.disk.truncate = func(*os.File, int64) error { return errors.New("read-only file system") }
	a := admit(t, x)
	if err := a.Add(talk.next(), talk.messages, talk.tools); err == nil {
		t.Error("a call was added after a partial write")
	}
	s.disk.truncate = (*os.File).Truncate
	if err := a.Add(talk.next(), talk.messages, talk.tools); err != nil {
		t.Error(err)
	}
	a.Done()
	if e, err := x.End(t.Context(), session.End{}, false); err != nil || e.Calls != 2 {
		t.Errorf("%+v, %v", e, err)
	}
	if rec, err := s.Read(x.id); err != nil || len(rec.Calls) != 2 {
		t.Errorf("%+v, %v", rec, err)
	}
}

// TestTooLarge proves that a call that is too large is refused, and that the session continues.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	s, err := Open(Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	x, talk := must(t, s), newTalk(1)
	a := admit(t, x)
	big := talk.next()
	big.Prompt = make([]int32, 14<<20)
	if err := a.Add(big, nil, nil); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v", err)
	}
	if err := a.Add(talk.next(), talk.messages, make([]byte, maxPayload)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v", err)
	}
	a.Done()
	talk.add(t, x)
	if rec, err := s.Read(x.id); err != nil || len(rec.Calls) != 1 || rec.Calls[0].Number != 2 {
		t.Errorf("%+v, %v", rec, err)
	}
}
