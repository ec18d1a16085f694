package harness

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/subprocess"
)

// An attempt has a folder with these entries.
const (
	homeFolder  = "home"    // HOME
	workFolder  = "work"    // the working directory
	tempFolder  = "tmp"     // TMPDIR
	sessionFile = "session" // the id of the session
)

// folderPrefix is the start of the name of every folder of an attempt.
const folderPrefix = "rollout-"

// markWithin bounds the time to kill the processes that a dead process left.
const markWithin = 10 * time.Second

// Mark identifies the processes and the folder of an attempt. It depends only on the run, the key of
// the sample and the number of the attempt, so that the next process of the run can find both. All
// marks have the same length.
func Mark(runID, key string, n int) string {
	return runMark(runID) + short(key+"\x00"+strconv.Itoa(n), 8)
}

func markOf(a *collector.Attempt) string { return Mark(a.RunID, a.Key, a.N) }

// runMark is the start of the marks of a run.
func runMark(runID string) string { return short(runID, 4) + "-" }

func short(text string, n int) string {
	sum := sha256.Sum256([]byte("rollout harness 1\x00" + text))
	return hex.EncodeToString(sum[:n])
}

func folderOf(dir, mark string) string { return filepath.Join(dir, folderPrefix+mark) }

// makeFolder makes the folder of an attempt, and removes what an earlier attempt with the same mark
// left.
func makeFolder(dir, mark, workdir string) (string, error) {
	folder := folderOf(dir, mark)
	if err := clearAttempt(dir, mark); err != nil {
		return "", err
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		return "", err
	}
	for _, name := range []string{homeFolder, tempFolder, workFolder} {
		if err := os.Mkdir(filepath.Join(folder, name), 0o700); err != nil {
			return folder, err
		}
	}
	if workdir == "" {
		return folder, nil
	}
	if err := os.CopyFS(filepath.Join(folder, workFolder), os.DirFS(workdir)); err != nil {
		return folder, fmt.Errorf("copy the work folder: %w", err)
	}
	return folder, nil
}

// clearAttempt kills the processes of an attempt and removes its folder.
func clearAttempt(dir, mark string) error {
	if _, err := os.Lstat(folderOf(dir, mark)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	left, err := subprocess.KillMarked(mark, markWithin)
	if err == nil && left > 0 {
		err = fmt.Errorf("%d processes of an earlier attempt cannot be killed", left)
	}
	return errors.Join(err, removeFolder(folderOf(dir, mark)))
}

// removeFolder removes a folder, even if an agent has removed the permissions of folders in it.
func removeFolder(folder string) error {
	if os.RemoveAll(folder) == nil {
		return nil
	}
	// A folder that cannot be listed is an error of the callback, after which it is made listable.
	for range 64 { // the depth of unreadable folders that are handled
		blocked := false
		_ = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if d != nil && d.IsDir() {
				_ = os.Chmod(path, 0o700)
				blocked = blocked || err != nil
			}
			return nil
		})
		if !blocked {
			break
		}
	}
	return os.RemoveAll(folder)
}

// Clean kills the processes that dead processes of a run left, and removes the folders of their
// attempts. It skips an attempt if keep returns true for its mark (see [Mark]) and the id of its
// session. An unknown id is empty. Callers use keep to preserve attempts that will be taken over. A
// nil keep preserves none. Clean returns the number of removed folders. No process of the run may be
// active.
func Clean(ctx context.Context, dir, runID string, keep func(mark, sessionID string) bool) (int, error) {
	dir = cmp.Or(dir, os.TempDir())
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, fmt.Errorf("harness: %w", err)
	}
	removed := 0
	var errs []error
	for _, e := range entries {
		mark, ok := strings.CutPrefix(e.Name(), folderPrefix)
		if !ok || !strings.HasPrefix(mark, runMark(runID)) || !e.IsDir() || ctx.Err() != nil {
			continue
		}
		id, _ := os.ReadFile(filepath.Join(dir, e.Name(), sessionFile)) // on an error, the id is unknown
		if keep != nil && keep(mark, string(id)) {
			continue
		}
		if err := clearAttempt(dir, mark); err != nil {
			errs = append(errs, fmt.Errorf("harness: %s: %w", e.Name(), err))
			continue
		}
		removed++
	}
	return removed, errors.Join(append(errs, context.Cause(ctx))...)
}
