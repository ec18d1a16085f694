package store_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/session/store"
)

// TestRetention proves that the oldest sealed sessions are removed while there are too many bytes,
// and that later names are higher than the names of removed sessions.
func TestRetention(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, store.Config{Dir: dir})
	var keys []session.Key
	for range 6 {
		key, x := begin(t, s)
		add(t, x, conversation(1, 0))
		end(t, x, session.End{})
		keys = append(keys, key)
	}
	before, _ := s.Sealed("")
	shut(t, s)
	s = open(t, store.Config{Dir: dir, MaxBytes: 2*before[0].Bytes + before[0].Bytes/2})
	left := before
	for len(left) > 2 || s.Stats().Removed < 4 {
		time.Sleep(time.Millisecond) // the store removes sessions in the background
		left, _ = s.Sealed("")
	}
	if len(left) != 2 || left[0].Name != before[4].Name || left[1].Name != before[5].Name || s.Stats().Removed != 4 {
		t.Errorf("%v is left of %v, %+v", left, before, s.Stats())
	}
	for i, key := range keys {
		if _, err := s.Session(key); (err == nil) != (i >= 4) {
			t.Errorf("session %d: %v", i, err)
		}
	}
	for _, e := range left {
		if err := s.Remove(e.ID); err != nil {
			t.Error(err)
		}
	}
	shut(t, s)
	// The last number survives a clock that was set back, even if no sealed session is left.
	ahead := fmt.Sprint(time.Now().Add(24 * time.Hour).UnixNano())
	if err := os.WriteFile(filepath.Join(dir, "lock"), []byte(ahead), 0o666); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		s = open(t, store.Config{Dir: dir})
		_, x := begin(t, s)
		end(t, x, session.End{})
		if after, err := s.Sealed(ahead); err != nil || len(after) != 1 {
			t.Errorf("after %s: %v, %v", ahead, after, err)
		} else {
			ahead = after[0].Name
		}
		if err := s.Remove(x.ID()); err != nil {
			t.Error(err)
		}
		shut(t, s)
	}
}

// TestMaxAge proves that sessions are removed MaxAge after the last write, but not while a call is
// in flight.
func TestMaxAge(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC))) // files have real times
		s, err := store.Open(store.Config{Dir: dir, MaxAge: time.Hour, SyncEvery: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		idle, _ := begin(t, s)
		busy, x := begin(t, s)
		a := admit(t, x, nil)
		time.Sleep(50 * time.Minute)
		if _, err := s.Session(idle); err != nil {
			t.Error(err)
		}
		time.Sleep(20 * time.Minute)
		if _, err := s.Session(idle); !errors.Is(err, store.ErrUnknown) {
			t.Errorf("an idle session: %v", err)
		}
		r := conversation(1, 0)
		if err := r.addTo(a); err != nil {
			t.Error(err)
		}
		a.Done()
		time.Sleep(50 * time.Minute)
		r2 := conversation(1, 1) // after a long pause, the file is read again
		add(t, find(t, s, busy), r2)
		check(t, read(t, s, busy.ID()), r, r2)
		time.Sleep(70 * time.Minute)
		if _, err := s.Session(busy); !errors.Is(err, store.ErrUnknown) || s.Stats().Removed != 2 {
			t.Errorf("an idle session: %v, %+v", err, s.Stats())
		}
		if _, err := x.Admit(nil); !errors.Is(err, store.ErrUnknown) {
			t.Errorf("a removed session admits a call: %v", err)
		}
	})
	// A sealed session.
	s := open(t, store.Config{Dir: dir})
	_, x := begin(t, s)
	end(t, x, session.End{})
	entries, _ := s.Sealed("")
	shut(t, s)
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "sealed", entries[0].Name+".session"), old, old); err != nil {
		t.Fatal(err)
	}
	s = open(t, store.Config{Dir: dir, MaxAge: time.Hour})
	for s.Stats().Removed == 0 {
		time.Sleep(time.Millisecond) // the store removes sessions in the background
	}
	if entries, err := s.Sealed(""); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
}

// TestConfig proves that every error names its setting, and that Mode sets the permissions.
func TestConfig(t *testing.T) {
	t.Parallel()
	_, err := store.Open(store.Config{Mode: fs.ModeDir, MaxAge: -1, MaxBytes: -1, SyncEvery: -1})
	for _, want := range []string{"dir: ", "mode: ", "max_age: ", "max_bytes: -1", "sync_every: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	dir := t.TempDir()
	_, x := begin(t, open(t, store.Config{Dir: dir, Mode: 0o600}))
	info, err := os.Stat(filepath.Join(dir, "open", x.ID()+".session"))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestClear proves that Clear removes open and sealed sessions, also sessions of an earlier process, but
// not the kept ones and not those with a call in flight.
func TestClear(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, store.Config{Dir: dir})
	var keys []session.Key
	for i := range 6 {
		key, x := begin(t, s)
		add(t, x, conversation(1, 0))
		if i%2 == 0 {
			end(t, x, session.End{})
		}
		keys = append(keys, key)
	}
	shut(t, s)
	s = open(t, store.Config{Dir: dir})
	busy, x := begin(t, s)
	a := admit(t, x, nil)
	keep := func(id string) bool { return id == keys[0].ID() || id == keys[1].ID() }
	if n, err := s.Clear(keep); n != 4 || err != nil {
		t.Errorf("Clear = %d, %v, want 4", n, err)
	}
	a.Done()
	check := func(s *store.Store) {
		t.Helper()
		for i, key := range append(keys, busy) {
			if _, err := s.Session(key); (err == nil) != (i < 2 || i == 6) {
				t.Errorf("session %d: %v", i, err)
			}
		}
		if st := s.Stats(); st.Open != 2 || st.Sealed != 1 {
			t.Errorf("%+v", st)
		}
	}
	check(s)
	shut(t, s)
	s = open(t, store.Config{Dir: dir})
	check(s)
	shut(t, s)
}
