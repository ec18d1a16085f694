package sink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// CheckSizes checks that every committed file exists and has the size that its commit records. It
// takes a few microseconds per file. If any files are missing or have a different size, CheckSizes
// returns a *CorruptError with the name of the first such file and the number of such files. If a
// file cannot be opened, CheckSizes returns a *ShardError.
func (l *Log) CheckSizes() error {
	sizes := map[string]int64{} // in a bucket, a list needs fewer requests
	if !l.folder {
		var err error
		if l.shards, err = l.listShards(); err != nil {
			return shardError("open", err)
		}
		for _, i := range l.shards {
			sizes[i.Name] = i.Size
		}
	}
	var first *CorruptError
	n := 0
	for i := range l.Commits {
		for _, s := range l.Commits[i].Shards {
			if size, ok := sizes[s.Path]; ok && size == s.Bytes {
				continue
			}
			err := l.checkSize(s)
			corrupt, ok := errors.AsType[*CorruptError](err)
			if err != nil && !ok {
				return err
			}
			if ok {
				if n++; first == nil {
					first = corrupt
				}
			}
		}
	}
	switch n {
	case 0:
		return nil
	case 1:
		return first
	}
	return &CorruptError{Path: first.Path, Row: -1, Err: fmt.Errorf("%w; in all, %d committed files are missing or have the wrong size", first.Err, n)}
}

func (l *Log) checkSize(s Shard) error {
	o, err := l.openShard(s)
	if errors.Is(err, ErrReplaced) {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return &CorruptError{Path: s.Path, Row: -1, Err: errors.New("the committed file is missing")}
	}
	if err != nil {
		return shardError("open", err)
	}
	defer func() { _ = o.Close() }() // nothing was read
	if size := o.Size(); size != s.Bytes {
		return &CorruptError{Path: s.Path, Row: -1, Err: fmt.Errorf("%d bytes, but the commit has %d", size, s.Bytes)}
	}
	return nil
}

// CheckDigests compares the content of every committed file with the digest in its commit. For each
// file that differs or cannot be read, it calls found with a *CorruptError. It ignores files that a
// merge has replaced since the log was read. CheckDigests reads at most 256 KB at a time, or 8 MB
// from a bucket. If pace is not nil, it calls pace after each read, and pace can sleep to limit the
// read rate. If ctx is done, CheckDigests returns its cause. If a bucket cannot be read, it returns
// a *ShardError.
func (l *Log) CheckDigests(ctx context.Context, pace func(bytes int), found func(error)) error {
	for i := range l.Commits {
		for _, s := range l.Commits[i].Shards {
			err := l.checkDigest(ctx, s, pace)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err == nil || errors.Is(err, ErrReplaced) {
				continue
			}
			if err = l.readError(s.Path, err); unread(err) {
				return err
			}
			found(err)
		}
	}
	return nil
}

func (l *Log) checkDigest(ctx context.Context, s Shard, pace func(bytes int)) error {
	o, err := l.openShard(s)
	if err != nil {
		return err
	}
	defer func() { _ = o.Close() }() // read-only
	return copyChecked(io.Discard, &pacedFile{o, ctx, pace}, o.Size(), s, l.chunk)
}

// A pacedFile calls pace after each read. All reads fail after ctx is done.
type pacedFile struct {
	io.ReaderAt
	ctx  context.Context // the context of one call to checkDigest
	pace func(bytes int)
}

func (f *pacedFile) ReadAt(p []byte, at int64) (int, error) {
	if err := context.Cause(f.ctx); err != nil {
		return 0, err
	}
	n, err := f.ReaderAt.ReadAt(p, at)
	if f.pace != nil {
		f.pace(n)
	}
	return n, err
}
