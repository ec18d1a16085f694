package runfolder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/sink/durable"
)

// NewFolder creates the folder dir, which is not a run. The function fill writes its files to a folder inside a
// temporary folder next to dir. Then NewFolder renames that folder to dir. Therefore dir is complete or
// unchanged. If dir exists, it must be empty. The folder can contain files of the given mode, before the umask.
// NewFolder first removes the temporary folders that killed processes left behind. The error has an exit code.
func NewFolder(dir string, mode fs.FileMode, fill func(dir string) error) (err error) {
	dir = filepath.Clean(dir)
	switch entries, err := os.ReadDir(dir); {
	case err == nil && len(entries) > 0:
		return exit.Usagef("%s is not empty: pass a new folder", dir)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return exit.With(exit.Storage, err)
	}
	parent, prefix := filepath.Dir(dir), fmt.Sprintf("%sexport-%x-", temporary, hashOf(filepath.Base(dir)))
	clearImports(parent, prefix, config.ShareNone.FileMode())
	temp, lock, err := beginImport(parent, prefix, config.ShareNone.FileMode())
	if err != nil {
		return exit.With(exit.Storage, err)
	}
	defer func() { err = errors.Join(err, exit.With(exit.Storage, errors.Join(os.RemoveAll(temp), lock.Close()))) }()
	made := filepath.Join(temp, "new")
	if err := os.Mkdir(made, config.FolderMode(mode)); err != nil {
		return exit.With(exit.Storage, err)
	}
	if err := fill(made); err != nil {
		return err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return exit.With(exit.Storage, err)
	}
	return exit.With(exit.Storage, errors.Join(os.Rename(made, dir), durable.SyncDir(parent)))
}
