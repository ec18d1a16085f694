package sink

import (
	"errors"
	"io/fs"
	"path/filepath"
)

// names returns the paths of the files in a folder of the dataset, temporary files included.
func (v *verifier) names(sub string) (names []string, err error) {
	if v.dir != "" {
		local, err := v.fs.ReadDir(filepath.Join(v.dir, sub))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, name := range local {
			names = append(names, sub+"/"+name)
		}
	}
	if !v.folder && sub != walDir {
		found, err := v.filesIn(sub, "")
		if err != nil {
			return nil, err
		}
		for _, i := range found {
			names = append(names, i.Name)
		}
	}
	return names, nil
}

// orphans lists the files that no commit names, and reports shards whose entry is lost.
func (v *verifier) orphans() error {
	left, err := v.entries.leftPaths()
	for _, path := range left {
		v.named[path] = true
	}
	if err != nil {
		v.problem(commitsDir, -1, err)
	}
	for _, sub := range []string{dataDir, failuresDir, commitsDir, walDir} {
		if v.broken && (sub == dataDir || sub == failuresDir) {
			continue
		}
		names, err := v.names(sub)
		if err != nil {
			return err
		}
		for _, path := range names {
			if !v.named[path] {
				v.report.Orphans = append(v.report.Orphans, path)
			}
		}
	}
	if !v.folder {
		return nil // no entry names the shards of fenced processes, and their samples run again
	}
	log, err := readLog(v.location, v.opts.RunID, nil)
	if err != nil {
		return nil //nolint:nilerr // Verify has reported the error; the files that a broken log names are unknown
	}
	lost, err := log.lostShards()
	for _, path := range lost {
		v.problem(path, -1, lostCommit(path))
	}
	return err
}
