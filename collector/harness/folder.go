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
	answerFile  = "answer"  // the final answer, if it contains a secret
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
	if err := clearAttempt(dir, mark, false); err != nil {
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

// writeAnswer writes the final answer. It follows no link that an agent made.
func writeAnswer(folder, answer string) error {
	path := filepath.Join(folder, answerFile)
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(answer)
	return errors.Join(err, f.Close())
}

// clearAttempt kills the processes of an attempt and, unless keep is set, removes its folder.
func clearAttempt(dir, mark string, keep bool) error {
	if _, err := os.Lstat(folderOf(dir, mark)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err := killMarked(mark)
	if keep {
		return err
	}
	return errors.Join(err, removeFolder(folderOf(dir, mark)))
}

// killMarked kills the processes of all attempts whose mark begins with the given text.
func killMarked(mark string) error {
	left, err := subprocess.KillMarked(mark, markWithin)
	if err == nil && left > 0 {
		err = fmt.Errorf("%d processes of earlier attempts cannot be killed", left)
	}
	return err
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

// Clean kills all processes that dead processes of a run left, and removes the folders of their
// attempts. It skips the folder of an attempt if keep returns true for its mark (see [Mark]) and the
// id of its session. An unknown id is empty. Callers use keep to preserve attempts that will be taken
// over. A nil keep preserves none. Clean returns the number of removed folders. No process of the run
// may be active.
func Clean(ctx context.Context, dir, runID string, keep func(mark, sessionID string) bool) (int, error) {
	dir = cmp.Or(dir, os.TempDir())
	marks, err := Leftovers(dir, runID)
	errs := []error{err, killMarked(runMark(runID))}
	removed := 0
	for _, mark := range marks {
		folder := folderOf(dir, mark)
		id, _ := os.ReadFile(filepath.Join(folder, sessionFile)) // on an error, the id is unknown
		if ctx.Err() != nil || keep != nil && keep(mark, string(id)) {
			continue
		}
		if err := removeFolder(folder); err != nil {
			errs = append(errs, err)
			continue
		}
		removed++
	}
	if err := errors.Join(append(errs, context.Cause(ctx))...); err != nil {
		return removed, fmt.Errorf("harness: %w", err)
	}
	return removed, nil
}

// Leftovers returns the marks of the attempts of a run that have a folder in dir. An empty dir is
// os.TempDir().
func Leftovers(dir, runID string) (marks []string, err error) {
	entries, err := os.ReadDir(cmp.Or(dir, os.TempDir()))
	for _, e := range entries {
		if mark, ok := strings.CutPrefix(e.Name(), folderPrefix); ok && strings.HasPrefix(mark, runMark(runID)) && e.IsDir() {
			marks = append(marks, mark)
		}
	}
	return marks, err
}
