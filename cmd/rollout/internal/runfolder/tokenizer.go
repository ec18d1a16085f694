package runfolder

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/sink/durable"
	"github.com/rollout-rl/rollout/sink/store"
)

// TokenizerDir contains the files of the run's tokenizer and chat template, in a folder that is named
// after their digest (Model.Files). With them, the text of a run can be read when the model's own folder
// is gone.
const TokenizerDir = "tokenizer"

// ModelFiles are the files of a model; see model.Files.
type ModelFiles interface {
	Digest() (string, error)
	Copy(write func(name string, content func(io.Writer) error) error) error
}

// KeepTokenizer copies the files of the run's tokenizer to the folder of the run, unless they are
// already there. The copy appears at once and is durable. It is made after run.json is written. If the
// process is killed before, the next process makes it.
func (f *Folder) KeepTokenizer(files ModelFiles) error {
	return exit.With(exit.Storage, f.keepTokenizer(files))
}

func (f *Folder) keepTokenizer(files ModelFiles) error {
	digest, err := files.Digest()
	if err != nil {
		return err
	}
	all := filepath.Join(f.Dir, TokenizerDir)
	dir := filepath.Join(all, digest)
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	temp := filepath.Join(all, temporary+digest)
	if err := errors.Join(os.RemoveAll(temp), MkdirAll(all, f.Mode), MkdirAll(temp, f.Mode)); err != nil {
		return err
	}
	folders := map[string]bool{temp: true}
	err = files.Copy(func(name string, content func(io.Writer) error) error {
		path := filepath.Join(temp, name)
		if in := filepath.Dir(path); !folders[in] {
			folders[in] = true
			if err := os.MkdirAll(in, config.FolderMode(f.Mode)); err != nil {
				return err
			}
		}
		to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.Mode)
		if err != nil {
			return err
		}
		return errors.Join(content(to), to.Sync(), to.Close())
	})
	for in := range folders {
		err = errors.Join(err, durable.SyncDir(in))
	}
	if err == nil {
		err = os.Rename(temp, dir)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(temp))
	}
	return errors.Join(durable.SyncDir(all), durable.SyncDir(f.Dir))
}

// hasCopy reports whether the run has its own copy of its tokenizer.
func (i *Info) hasCopy(dir string, objects store.Store) (bool, error) {
	if i.Model == nil || i.Model.Files == "" {
		return false, nil
	}
	if objects != nil {
		for _, err := range objects.List(TokenizerDir+"/"+i.Model.Files+"/", "") {
			return err == nil, err
		}
		return false, nil
	}
	info, err := os.Stat(filepath.Join(dir, TokenizerDir, i.Model.Files))
	return !errors.Is(err, fs.ErrNotExist) && (err != nil || info.IsDir()), nil
}
