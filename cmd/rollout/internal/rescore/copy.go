package rescore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/durable"
)

// copy makes a new run with the rows of the run and the new scores. It first writes a scores set to the new
// run's temporary folder, and then the rows with these scores.
func (r *Rescore) copy(ctx context.Context) error {
	mode := r.loader.Config.Output.Share.FileMode()
	return runfolder.Build(r.options.Out, mode, func(temp string) (runfolder.Info, error) {
		info := r.childInfo()
		set := filepath.Join(temp, filepath.FromSlash(sink.ScoresPath(copySet)))
		if err := os.MkdirAll(set, config.FolderMode(mode)); err != nil {
			return info, storage(err)
		}
		if err := r.fill(ctx, set, sink.OSMode(mode)); err != nil {
			return info, err
		}
		if err := r.copyRows(ctx, temp, &info, mode); err != nil {
			return info, ctxError(ctx, err)
		}
		if err := os.RemoveAll(filepath.Dir(set)); err != nil {
			return info, storage(err)
		}
		return info, storage(r.copyFiles(temp, mode))
	})
}

const copySet = "0001"

func (r *Rescore) childInfo() runfolder.Info {
	info := *r.info
	info.ID = runfolder.NewID(time.Now())
	info.Identity, info.Servers = runfolder.Identity{}, nil
	info.Parent = &runfolder.Parent{ID: r.info.ID, Location: r.dir}
	info.Scorer = &r.scorer
	info.Config = maps.Clone(info.Config)
	if info.Config == nil {
		info.Config = config.Values{}
	}
	info.Config["reward"] = map[string]json.RawMessage{}
	for _, s := range r.loader.Settings {
		if name, ok := strings.CutPrefix(s.Key, "reward."); ok {
			if raw, err := s.Json(); err == nil { // no setting of this section can fail
				info.Config["reward"][name] = raw
			}
		}
	}
	return info
}

// copyRows writes the rows and failures of the run to dir, with the scores of the set in dir.
func (r *Rescore) copyRows(ctx context.Context, dir string, info *runfolder.Info, mode fs.FileMode) error {
	log, err := sink.ReadLogIn(nil, r.dir, func(*sink.Commit) {}) // drops the lists of samples
	if err != nil {
		return runfolder.ReadError(r.dir, err)
	}
	scores, err := sink.ReadScores(nil, dir, r.info.ID, copySet)
	if err != nil {
		return storage(err)
	}
	log.UseScores(scores)
	cfg := sink.Config{RunID: info.ID, FS: sink.OSMode(mode), MaxShardBytes: r.loader.Config.Output.ShardBytes}
	if cfg.Meta, err = r.options.Meta(log); err != nil {
		return runfolder.ReadError(r.dir, err)
	}
	cfg.Meta[runfolder.RewardsKey] = runfolder.Rewards{Scorer: r.scorer}.String()
	for s := range log.Shards(sink.KindData) {
		cfg.Format = s.Format
	}
	_, err = sink.Store(dir, cfg, func(yield func(*sink.StoredSample, error) bool) {
		for s, err := range log.Stored() {
			if err == nil {
				err = context.Cause(ctx)
			}
			if !yield(s, err) || err != nil {
				return
			}
		}
	})
	if errors.Is(err, sink.ErrCorrupt) {
		return runfolder.ReadError(r.dir, err)
	}
	return storage(err)
}

// copyFiles copies the tasks and the tokenizer of the run to dir. The copy is durable, except its name in dir.
func (r *Rescore) copyFiles(dir string, mode fs.FileMode) error {
	if err := copyFile(filepath.Join(r.dir, runfolder.TasksFile), filepath.Join(dir, runfolder.TasksFile), mode); err != nil {
		return err
	}
	from, folders := filepath.Join(r.dir, runfolder.TokenizerDir), []string(nil)
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, runfolder.TokenizerDir, rel)
		switch {
		case e.IsDir():
			folders = append(folders, to)
			return os.MkdirAll(to, config.FolderMode(mode))
		case !e.Type().IsRegular():
			return fmt.Errorf("%s: not a regular file", path)
		}
		return copyFile(path, to, mode)
	})
	if errors.Is(err, fs.ErrNotExist) { // collected without a tokenizer
		return nil
	}
	for _, dir := range folders {
		err = errors.Join(err, durable.SyncDir(dir))
	}
	return err
}

func copyFile(from, to string, mode fs.FileMode) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // read only
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}
