package journal

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestNamesSurviveAPowerCut checks that Open syncs the names of the folder and the segment, even
// if an earlier process created the folder. A power cut keeps the names of the last sync.
func TestNamesSurviveAPowerCut(t *testing.T) {
	t.Parallel()
	for _, made := range []bool{false, true} {
		run := t.TempDir()
		dir := filepath.Join(run, "journal")
		if made {
			if err := os.Mkdir(dir, 0o777); err != nil {
				t.Fatal(err)
			}
		}
		durable := map[string][]string{} // the names of each folder at its last sync
		j, err := open(dir, Config{}, func(folder string) error {
			durable[folder] = names(t, folder)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, folder := range []string{run, dir} {
			if now := names(t, folder); len(now) == 0 || !slices.Equal(durable[folder], now) {
				t.Errorf("made before: %t: a power cut leaves %q in %s, want %q", made, durable[folder], folder, now)
			}
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestNamesThatCannotBeSynced checks that Open fails if it cannot sync the names.
func TestNamesThatCannotBeSynced(t *testing.T) {
	t.Parallel()
	run := t.TempDir()
	failure := errors.New("the disk is gone")
	for _, bad := range []string{run, filepath.Join(run, "journal")} {
		_, err := open(filepath.Join(run, "journal"), Config{}, func(folder string) error {
			if folder == bad {
				return failure
			}
			return nil
		})
		if !errors.Is(err, failure) {
			t.Errorf("opened with %v although %s cannot be synced", err, bad)
		}
	}
}

func names(t *testing.T, folder string) (all []string) {
	t.Helper()
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		all = append(all, f.Name())
	}
	return all
}
