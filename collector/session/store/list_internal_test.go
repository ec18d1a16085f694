package store

import (
	"os"
	"path/filepath"
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
	entries, err := listTwice(func() ([]os.DirEntry, error) {
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
	if err != nil || len(entries) != 2 || entries[0].Name != names[0] || entries[1].Name != names[1] {
		t.Errorf("the list is %v, %v, want %q", entries, err, names[:2])
	}
}
