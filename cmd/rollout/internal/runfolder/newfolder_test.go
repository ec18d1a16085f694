package runfolder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A new folder appears only when it is complete, and a killed process leaves nothing for the next one.
func TestNewFolder(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	dir := filepath.Join(parent, "new")
	left := filepath.Join(parent, fmt.Sprintf("%sexport-%x-1", temporary, hashOf("new")))
	if err := os.MkdirAll(filepath.Join(left, "00"), 0o700); err != nil {
		t.Fatal(err)
	}
	fill := func(fail error) func(string) error {
		return func(temp string) error {
			if _, err := os.Stat(dir); err == nil {
				t.Error("the folder is there before it is complete")
			}
			return errors.Join(fail, os.WriteFile(filepath.Join(temp, "file"), []byte("x"), 0o600))
		}
	}
	names := func(dir string) (all []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Error(err)
		}
		for _, e := range entries {
			all = append(all, e.Name())
		}
		return all
	}
	stop := errors.New("stop")
	if err := NewFolder(dir, 0o640, fill(stop)); !errors.Is(err, stop) || len(names(parent)) != 0 {
		t.Errorf("error %v, entries %v", err, names(parent))
	}
	if err := NewFolder(dir, 0o640, fill(nil)); err != nil || len(names(parent)) != 1 || len(names(dir)) != 1 {
		t.Errorf("error %v, entries %v, %v", err, names(parent), names(dir))
	}
	plain := filepath.Join(t.TempDir(), "plain")
	must(t, os.Mkdir(plain, 0o750))
	want, err := os.Stat(plain)
	must(t, err)
	if got, err := os.Stat(dir); err != nil || got.Mode() != want.Mode() {
		t.Errorf("mode %v, want that of mkdir, %v: %v", got.Mode(), want.Mode(), err)
	}
	if err := NewFolder(dir, 0o640, fill(nil)); err == nil {
		t.Error("a folder with a file was replaced")
	}
	if err := os.Remove(filepath.Join(dir, "file")); err != nil {
		t.Fatal(err)
	}
	if err := NewFolder(dir, 0o640, func(string) error { return nil }); err != nil || len(names(parent)) != 1 {
		t.Errorf("an empty folder: %v, %v", err, names(parent))
	}
}
