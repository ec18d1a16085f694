package sink

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/sink/store"
)

// ErrLostCommit means that the last entry of the commit log has been lost. The proof is a shard
// that no entry names but that contains samples that are nowhere else. In a bucket, the proof is a
// checkpoint with a later entry.
var ErrLostCommit = errors.New("sink: the last entry of the commit log is lost")

// lostShards returns the paths of shards that no entry names and that contain a sample that is
// neither in a commit nor in the write-ahead log. A killed process does not leave such a shard,
// because samples stay in the write-ahead log until the commit that names their shard is durable.
// lostShards ignores incomplete and damaged shards. In a bucket, such shards can belong to
// processes whose write-ahead logs are on other machines, so lostShards returns none.
func (l *Log) lostShards() ([]string, error) {
	if !l.folder {
		return nil, nil
	}
	left, err := l.unnamed()
	if err != nil || len(left) == 0 {
		return nil, err
	}
	// Read the commit log after the write-ahead log, because a running process moves samples from
	// the write-ahead log to the commit log.
	known := newAttempts()
	for w, err := range l.Waiting() {
		if err != nil {
			return nil, nil // other functions report the damage; the samples in damaged parts are unknown
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
			continue // a running process has just written the shard, so its samples can be missing from known
		}
		if key := l.strange(path, known); key != "" {
			lost = append(lost, path)
		}
	}
	return lost, nil
}

// unnamed returns the paths of files that look like shards but that no entry names. Replaced
// entries also count.
func (l *Log) unnamed() (paths []string, err error) {
	named := map[string]bool{}
	left, err := l.leftPaths()
	if err != nil {
		return nil, err
	}
	for _, path := range left {
		named[path] = true
	}
	for i := range l.Commits {
		for _, s := range l.Commits[i].Shards {
			named[s.Path] = true
		}
	}
	// In a bucket, the list of CheckSizes is new enough: a shard that is in no entry up to this
	// process's claim cannot get one later, except from a process of a higher epoch.
	found := l.shards
	if found == nil {
		if found, err = l.listShards(); err != nil {
			return nil, err
		}
	}
	for _, i := range found {
		if _, name, _ := strings.Cut(i.Name, "/"); strings.HasPrefix(name, shardPrefix) && !named[i.Name] {
			paths = append(paths, i.Name)
		}
	}
	return paths, nil
}

// listShards returns the files in the folders of shards.
func (l *Log) listShards() (found []store.Info, err error) {
	for _, sub := range []string{dataDir, failuresDir} {
		list, err := l.filesIn(sub, "")
		if err != nil {
			return nil, err
		}
		found = append(found, list...)
	}
	return found, nil
}

// strange returns the key of a sample that is in a shard but not in known. If all samples are
// known, or if the file is not a complete shard, it returns "".
func (l *Log) strange(path string, known attempts) (strange string) {
	f, err := l.objects.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // read-only
	size := f.Size()
	// The file's name contains the start of its digest. If the file has a different digest, it is
	// damaged and the libraries must not read it.
	sum, err := copyDigest(io.Discard, f, size, readChunk)
	if base, _, _ := strings.Cut(path, "."); err != nil || !strings.HasSuffix(base, "-"+sum[:8]) {
		return ""
	}
	look := func(key string) bool {
		if _, ok := known.done[IDOf(key)]; !ok {
			strange = key
		}
		return strange == ""
	}
	in := rowRange{shard: Shard{Bytes: size, Rows: anyRows}}
	switch { // ignore errors: the keys before an error still count
	case strings.HasPrefix(path, failuresDir+"/"):
		_ = failureFacts().read(f, in, func(r *StoredFailure) bool { return look(r.SampleKey) })
	case strings.HasSuffix(path, Arrow.ext()):
		_ = readArrow(f, in, rowFacts().others, func(r *StoredRow) bool { return look(r.SampleKey) })
	default:
		_ = rowFacts().read(f, in, func(r *StoredRow) bool { return look(r.SampleKey) })
	}
	return strange
}

func lostCommit(path string) error {
	return &CorruptError{Path: path, Row: -1, Err: fmt.Errorf("no commit lists the shard, and its samples are not stored anywhere else: %w", ErrLostCommit)}
}
