package runfolder

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/version"
	"github.com/rollout-rl/rollout/sink/durable"
	"github.com/rollout-rl/rollout/sink/failpoint"
)

// Import creates the folder of a run whose data was imported and not collected. The function fill
// writes the dataset; see [Build]. The parameter from lists the source files.
func Import(dir, id string, mode fs.FileMode, from []string, fill func(dir string) error) error {
	return Build(dir, mode, func(temp string) (Info, error) {
		none := sha256.Sum256(nil) // an imported run has no tasks
		err := fill(temp)
		if err == nil {
			err = exit.With(exit.Storage, writeFile(temp, TasksFile, mode, func(io.Writer) error { return nil }))
		}
		return Info{ID: id, Config: config.Values{}, Imported: from, Tasks: Tasks{SHA256: hex.EncodeToString(none[:])}}, err
	})
}

// Build creates the folder of a run from other data. The function fill writes all files except run.json to a
// temporary folder next to dir. Once the temporary folder is complete, Build renames it to dir. Therefore
// dir is either a complete run or unchanged. First, Build removes the temporary folders that killed
// processes left behind for dir. It sets the version, the times and the invocation in the Info.
func Build(dir string, mode fs.FileMode, fill func(temp string) (Info, error)) (err error) {
	if err := checkNew(dir, newFolder); err != nil {
		return err
	}
	dir = filepath.Clean(dir)
	if here, err := os.Stat("."); err == nil {
		if there, err := os.Stat(dir); err == nil && os.SameFile(here, there) {
			err := fmt.Errorf("%s is the working directory, which cannot be replaced", dir)
			return exit.Hint(exit.With(exit.Folder, err), "pass the name of a new folder")
		}
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o777); err != nil {
		return exit.With(exit.Storage, err)
	}
	prefix := fmt.Sprintf("%simport-%x-", temporary, hashOf(filepath.Base(dir)))
	clearImports(parent, prefix, mode)
	temp, lock, err := beginImport(parent, prefix, mode)
	if err != nil {
		return exit.With(exit.Storage, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(temp))
		}
		err = errors.Join(err, lock.Close())
	}()
	info, err := fill(temp)
	if err != nil {
		return err
	}
	failpoint.Hit(failpoint.BuildFilled)
	now := time.Now().UTC()
	host, _ := os.Hostname() // empty if unknown
	info.Version, info.CreatedAt, info.Rollout = runVersion, now, version.Read()
	info.Invocations = []Invocation{{StartedAt: now, Rollout: version.Read(), PID: os.Getpid(), Host: host}}
	err = (&Folder{Dir: temp, Mode: mode}).writeRun(info)
	if err == nil {
		failpoint.Hit(failpoint.BuildDescribed)
		err = replaceEmpty(temp, dir, mode)
	}
	if err == nil {
		failpoint.Hit(failpoint.BuildNamed)
		err = durable.SyncDir(parent)
	}
	return exit.With(exit.Storage, err)
}

const newFolder = "pass a new folder with --out"

// beginImport creates and locks the temporary folder of an import. The lock shows other imports
// that this import is still running. Another import can remove the folder before it is locked. In
// this case, beginImport retries.
func beginImport(parent, prefix string, mode fs.FileMode) (temp string, lock *Lock, err error) {
	for range beginTries {
		temp, err = os.MkdirTemp(parent, prefix)
		if err == nil {
			err = os.Chmod(temp, config.FolderMode(mode))
		}
		if err == nil {
			lock, err = TakeLock(temp, mode)
		}
		if err == nil || temp == "" {
			return temp, lock, err
		}
		err = errors.Join(err, os.RemoveAll(temp))
	}
	return "", nil, err
}

// beginTries exceeds the number of imports to the same target that are likely to start at the same
// moment.
const beginTries = 10

// clearImports removes the temporary folders of killed imports. The folder of a killed import is
// not locked. clearImports ignores folders that it cannot remove.
func clearImports(parent, prefix string, mode fs.FileMode) {
	entries, _ := os.ReadDir(parent) // an unreadable folder counts as empty
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		dead := filepath.Join(parent, e.Name())
		if lock, err := TakeLock(dead, mode); err == nil {
			_ = os.RemoveAll(dead)
			_ = lock.Close()
		}
	}
}

// replaceEmpty renames the folder temp to dir. If dir exists, it must pass [CheckNew] and must not
// be locked. replaceEmpty then removes the leftover files in dir and keeps the mode of dir.
func replaceEmpty(temp, dir string, mode fs.FileMode) (err error) {
	lock, err := TakeLock(dir, mode)
	if errors.Is(err, fs.ErrNotExist) {
		return nameRun(temp, dir)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if Exists(dir) {
		return madeMeanwhile(dir)
	}
	if err := checkNew(dir, newFolder); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(dir) // the folder contains only files that CheckNew allows
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	if err := errors.Join(os.Chmod(temp, info.Mode().Perm()), os.Remove(dir)); err != nil {
		return err
	}
	return nameRun(temp, dir)
}

// nameRun renames the folder temp to dir. If dir exists, it must be empty.
func nameRun(temp, dir string) error {
	err := os.Rename(temp, dir)
	if errors.Is(err, fs.ErrExist) {
		return madeMeanwhile(dir)
	}
	return err
}

func madeMeanwhile(dir string) error {
	return exit.Hint(exit.With(exit.Folder, fmt.Errorf("%s: another process has created a run there", dir)), "pass the name of a new folder")
}
