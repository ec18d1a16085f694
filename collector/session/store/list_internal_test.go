package store

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

// TestListWhileSealing proves that a list contains no session without all earlier ones, even if a
// reading of the folder lacks a session that was sealed during the reading.
func TestListWhileSealing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, sealedFolder), 0o777); err != nil {
		t.Fatal(err)
	}
	var names []string
	for n := range int64(3) {
		names = append(names, nameOf(n+1, newKeyID()))
	}
	seal := func(n int) {
		t.Helper()
		if err := os.WriteFile(sealedPath(dir, names[n]), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	readings := 0
	got, err := listTwice(func() ([]string, error) {
		readings++
		if readings == 2 {
			seal(2) // an earlier session can be missing in the second reading, too
			return readNames(dir, "")
		}
		// The system passes the place of the first name, then both sessions are sealed, then the system
		// reads the place of the second name.
		seal(0)
		seal(1)
		return readNames(dir, names[0])
	})
	if err != nil || !slices.Equal(got, names[:2]) {
		t.Errorf("the list is %q, %v, want %q", got, err, names[:2])
	}
}

// TestFolderReadsOnce proves that a Folder does not read the whole folder for each session, and that it
// finds a session that was sealed, moved or removed since.
func TestFolderReadsOnce(t *testing.T) {
	dir := t.TempDir()
	s := openQuiet(t, osDisk(), Config{Dir: dir})
	defer s.Close()
	for n := range int64(1000) {
		if err := os.WriteFile(sealedPath(dir, nameOf(n+1, newKeyID())), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	f, err := OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	seal := func() string {
		x := must(t, s)
		seal(t, x)
		return x.id
	}
	read := func(id string, want error) {
		t.Helper()
		if rec, err := f.Read(t.Context(), id); !errors.Is(err, want) || err == nil && rec.ID != id {
			t.Errorf("got %+v, %v, want %v", rec, err, want)
		}
	}
	cheap := func(id string) {
		t.Helper()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		read(id, nil)
		runtime.ReadMemStats(&after)
		if n := after.Mallocs - before.Mallocs; n > 1000 {
			t.Errorf("reading one session of 1,000 takes %d allocations", n)
		}
	}
	first := seal()
	read(first, nil)
	cheap(first)
	next := seal()
	entries, err := f.Sealed(t.Context(), s.sealed[first])
	if err != nil || len(entries) != 1 || entries[0].ID != next {
		t.Errorf("%+v, %v", entries, err)
	}
	cheap(next)
	read(first, nil)
	moved := nameOf(s.last+1, next) // as after a power failure
	if err := os.Rename(s.sealedPath(s.sealed[next]), s.sealedPath(moved)); err != nil {
		t.Fatal(err)
	}
	read(next, nil)
	if err := s.Remove(first); err != nil {
		t.Fatal(err)
	}
	read(first, ErrUnknown)
	read(newKeyID(), ErrUnknown)
}
