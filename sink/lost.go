package sink

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// ErrLostCommit means that a shard which no commit names holds samples that are nowhere
// else: the entry that named it was the last of the log, and is gone.
var ErrLostCommit = errors.New("sink: the entry of a shard is missing at the end of the commit log")

// lostShards returns the shards that no entry of the log names and that hold a sample
// which is neither in a commit nor in the write-ahead log. A process that was stopped
// leaves no such shard: its samples stay in the write-ahead log until a commit that names
// it is durable. A file that cannot be read as a shard is not among them: nothing is known of it.
func (l *Log) lostShards() ([]string, error) {
	left, err := l.unnamed()
	if err != nil || len(left) == 0 {
		return nil, err
	}
	// First the write-ahead log, then the commits since: a process that is at work moves
	// samples in that order.
	known := newAttempts()
	for w, err := range l.Waiting() {
		if err != nil {
			return nil, nil // damage there is told of elsewhere, and what it took is not known
		}
		known.done[IDOf(w.Key)] = struct{}{}
	}
	if err := l.Follow(); err != nil {
		return nil, err
	}
	if err := l.samples(func(s *CommittedSample) { known.done[IDOf(s.Key)] = struct{}{} }); err != nil {
		return nil, err
	}
	still, err := l.unnamed()
	if err != nil {
		return nil, err
	}
	var lost []string
	for _, path := range still {
		if !slices.Contains(left, path) {
			continue // it came since, and so may its samples
		}
		if key := l.strange(path, known); key != "" {
			lost = append(lost, path)
		}
	}
	return lost, nil
}

// unnamed lists what has the name of a shard and is in no entry, not even in one that a merge
// replaced.
func (l *Log) unnamed() (paths []string, err error) {
	named := map[string]bool{}
	left, err := l.leftReplaced()
	if err != nil {
		return nil, err
	}
	for _, commits := range [][]Commit{l.Commits, left} {
		for i := range commits {
			for _, s := range commits[i].Shards {
				named[s.Path] = true
			}
		}
	}
	for _, sub := range []string{dataDir, failuresDir} {
		names, err := l.fs.ReadDir(filepath.Join(l.Dir, sub))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if path := sub + "/" + name; strings.HasPrefix(name, shardPrefix) && !named[path] {
				paths = append(paths, path)
			}
		}
	}
	return paths, nil
}

// strange returns the key of a sample in a shard that is not known, empty where all are or
// the file is not a whole shard.
func (l *Log) strange(path string, known attempts) (strange string) {
	f, err := l.fs.Open(filepath.Join(l.Dir, filepath.FromSlash(path)))
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // it was read only
	size, err := f.Size()
	if err != nil {
		return ""
	}
	// Its name begins its digest: what differs is damaged, and not for the libraries.
	sum, err := digestOf(f, size)
	if base, _, _ := strings.Cut(path, "."); err != nil || !strings.HasSuffix(base, "-"+sum[:8]) {
		return ""
	}
	look := func(key string) bool {
		if _, ok := known.done[IDOf(key)]; !ok {
			strange = key
		}
		return strange == ""
	}
	switch { // what cannot be read ends it, and the keys before count
	case strings.HasPrefix(path, failuresDir+"/"):
		_ = failureFacts().read(f, size, anyRows, func(r *StoredFailure) bool { return look(r.SampleKey) })
	case strings.Contains(filepath.Ext(path), Arrow.ext()): // also .arrows
		_ = readArrow(f, size, anyRows, func(r *StoredRow) bool { return look(r.SampleKey) })
	default:
		_ = rowFacts().read(f, size, anyRows, func(r *StoredRow) bool { return look(r.SampleKey) })
	}
	return strange
}

// lostCommit returns the error of Create and Verify for a lost shard.
func lostCommit(path string) error {
	return &CorruptError{Path: path, Row: -1, Err: fmt.Errorf("no commit names it, and its samples are nowhere else: %w", ErrLostCommit)}
}
