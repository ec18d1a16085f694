package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// The files of a run's folder that belong to the command; the sink owns the rest.
const (
	runFile    = "run.json"
	tasksFile  = "tasks.jsonl"
	lockFile   = "lock"
	reportFile = "report.json"
)

// A runInfo is run.json: what a run was told, written once, before it starts. It
// holds no secret.
type runInfo struct {
	Version   int          `json:"version"` // of this file: 1
	ID        string       `json:"id"`
	CreatedAt time.Time    `json:"created_at"`
	Rollout   buildVersion `json:"rollout"`
	// Config is the resolved configuration by section, a secret being its reference,
	// and ConfigSHA256 the digest of its JSON.
	Config       map[string]map[string]any `json:"config"`
	ConfigSHA256 string                    `json:"config_sha256"`
	Tasks        taskInfo                  `json:"tasks"`
	Servers      []serverInfo              `json:"servers"`
	Model        *modelInfo                `json:"model,omitempty"` // where a tokenizer was given
}

type taskInfo struct {
	File   string `json:"file"`
	SHA256 string `json:"sha256"` // of tasks.jsonl
	Tasks  int    `json:"tasks"`
	// Planned is the number of samples after the limit; Bad counts lines left out.
	Planned int `json:"planned"`
	Bad     int `json:"bad"`
}

type serverInfo struct {
	URL     string `json:"url"`
	Version string `json:"version"`
}

// newRunID is a name that sorts by time and meets no other.
func newRunID(now time.Time) string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return now.UTC().Format("20060102-150405-") + hex.EncodeToString(b[:])
}

// A runFolder is a run's folder that this process owns.
type runFolder struct {
	dir  string
	lock *os.File
}

// checkNewRun says whether a run could be created in dir, and changes nothing.
func checkNewRun(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.ENOTDIR):
		return withHint(withExit(exitFolder, fmt.Errorf("%s: is a file, not a folder", dir)), "give a new folder with --out")
	case err != nil:
		return withExit(exitStorage, err)
	}
	var foreign []string
	for _, e := range entries {
		switch name := e.Name(); {
		case name == lockFile, name == tasksFile, strings.HasPrefix(name, ".tmp-"):
			// A start that ended before run.json left nothing to lose.
		case name == runFile:
			if locked(dir) {
				return withHint(withExit(exitLocked, fmt.Errorf("%s: another process is collecting into it", dir)), "wait for it, or give another folder with --out")
			}
			return withHint(withExit(exitFolder, fmt.Errorf("%s: holds a run already", dir)),
				"give another folder with --out; rollout inspect "+dir+" shows what is in this one")
		default:
			foreign = append(foreign, name)
		}
	}
	if foreign != nil {
		shown := strings.Join(foreign[:min(3, len(foreign))], ", ")
		if len(foreign) > 3 {
			shown += ", …"
		}
		return withHint(withExit(exitFolder, fmt.Errorf("%s: is not empty and holds no run (%s)", dir, shown)),
			"give a new or empty folder with --out")
	}
	return nil
}

// createRun makes the folder of a new run and locks it. The snapshot of the tasks
// is durable before run.json, so a folder with run.json has its tasks.
func createRun(dir string, info runInfo, tasks *taskSet) (folder *runFolder, err error) {
	if err := checkNewRun(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, withExit(exitStorage, err)
	}
	lock, err := lockRun(dir)
	if err != nil {
		return nil, err
	}
	folder = &runFolder{dir: dir, lock: lock}
	defer func() {
		if err != nil {
			err = withExit(exitStorage, errors.Join(err, lock.Close())) // folder is nil by then
		}
	}()
	from, err := os.Open(tasks.path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = from.Close() }() // read only
	if err := writeDurably(dir, tasksFile, func(w io.Writer) error { _, err := io.Copy(w, from); return err }); err != nil {
		return nil, err
	}
	if err := os.Chmod(filepath.Join(dir, tasksFile), 0o444); err != nil {
		return nil, err
	}
	return folder, folder.writeJSON(runFile, info)
}

// writeJSON writes a file of the folder durably.
func (f *runFolder) writeJSON(name string, v any) error {
	return writeDurably(f.dir, name, func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(v)
	})
}

// tasksPath is the snapshot of the tasks.
func (f *runFolder) tasksPath() string { return filepath.Join(f.dir, tasksFile) }

// close gives the folder up. The lock file stays: removing it would let two
// processes lock two files of one name.
func (f *runFolder) close() error { return f.lock.Close() }

// lockRun takes the lock of a run's folder; the system drops it when the process
// ends, whatever ends it.
func lockRun(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, withExit(exitStorage, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close() // nothing was written
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, withHint(withExit(exitLocked, fmt.Errorf("%s: another process is collecting into it", dir)), "wait for it, or give another folder with --out")
		}
		return nil, withExit(exitStorage, fmt.Errorf("lock %s: %w", dir, err))
	}
	return f, nil
}

// locked reports whether another process holds the lock of a run's folder.
func locked(dir string) bool {
	f, err := os.Open(filepath.Join(dir, lockFile))
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // read only
	return errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}

// writeDurably makes dir/name appear whole: written aside, synced, renamed, and
// the folder synced.
func writeDurably(dir, name string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(dir, ".tmp-"+name+"-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // fails after the rename, as it should
	if err := errors.Join(write(f), f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, name)); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// needRun is an error unless dir is the folder of a run.
func needRun(dir string) error {
	_, err := readRun(dir)
	return err
}

// readRun reads run.json.
func readRun(dir string) (runInfo, error) {
	var info runInfo
	b, err := os.ReadFile(filepath.Join(dir, runFile))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return info, withHint(withExit(exitFolder, fmt.Errorf("%s: is no run (it has no %s)", dir, runFile)), "give the folder that collect was given with --out")
	}
	if err != nil {
		return info, withExit(exitStorage, err)
	}
	if err := json.Unmarshal(b, &info); err != nil {
		return info, withExit(exitFolder, fmt.Errorf("%s: %w", filepath.Join(dir, runFile), err))
	}
	if info.Version != 1 {
		return info, withExit(exitFolder, fmt.Errorf("%s: version %d; this program knows 1", filepath.Join(dir, runFile), info.Version))
	}
	return info, nil
}
