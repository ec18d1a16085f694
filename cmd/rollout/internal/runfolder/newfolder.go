package runfolder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/sink/durable"
)

// NewFolder creates the folder dir, which is not a run. The function fill writes its files to a temporary
// folder next to dir. Then NewFolder renames that folder to dir. Therefore dir is complete or unchanged. If
// dir exists, it must be empty. NewFolder first removes the temporary folders that killed processes left
// behind. The error has an exit code.
func NewFolder(dir string, fill func(dir string) error) (err error) {
	dir = filepath.Clean(dir)
	switch entries, err := os.ReadDir(dir); {
	case err == nil && len(entries) > 0:
		return exit.Usagef("%s is not empty: pass a new folder", dir)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return exit.With(exit.Storage, err)
	}
	const mode = fs.FileMode(0o666)
	prefix := fmt.Sprintf("%sexport-%x-", temporary, hashOf(filepath.Base(dir)))
	clearImports(filepath.Dir(dir), prefix, mode)
	temp, lock, err := beginImport(filepath.Dir(dir), prefix, mode)
	if err != nil {
		return exit.With(exit.Storage, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(temp))
		}
		err = errors.Join(err, lock.Close())
	}()
	if err := fill(temp); err != nil {
		return err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return exit.With(exit.Storage, err)
	}
	if err := os.Remove(filepath.Join(temp, LockFile)); err != nil {
		return exit.With(exit.Storage, err)
	}
	return exit.With(exit.Storage, errors.Join(os.Rename(temp, dir), durable.SyncDir(filepath.Dir(dir))))
}
