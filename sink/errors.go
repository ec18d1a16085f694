package sink

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"syscall"

	"github.com/rollout-rl/rollout/sink/store"
)

// Use errors.Is to test for these errors.
var (
	// ErrFull means that the disk or its quota is full.
	ErrFull = errors.New("sink: no space left")
	// ErrPermission means that the run's folder is not writable.
	ErrPermission = errors.New("sink: permission denied")
	// ErrNoLinks means that the file system of the run's folder lacks hard links.
	ErrNoLinks = store.ErrNoLinks
	// ErrCommitted means that the sample is already in the dataset or in flight.
	ErrCommitted = errors.New("sink: sample is already committed")
	// ErrFenced means that another process has written to the log since Create. This process can no
	// longer commit. Its samples stay in the write-ahead log, and the next Create commits the
	// samples that the other process has not committed.
	ErrFenced = errors.New("sink: another process has written this entry; only one process can write to a dataset, so stop the other one and resume, or try again with a higher epoch")
	// ErrClosed means that the Dataset was closed or has failed.
	ErrClosed = errors.New("sink: dataset is closed")
	// ErrWaiting means that the sample is durable but not committed, because other samples of its
	// group are missing (Config.CommitGroups). The sample stays in the write-ahead log until the
	// group is whole.
	ErrWaiting = errors.New("sink: the sample is durable and waits for the rest of its group")
	// ErrCorrupt matches every *CorruptError.
	ErrCorrupt = errors.New("sink: corrupt")
	// ErrReplaced means that a merge has replaced and deleted a shard since the log was read, and
	// that the rows moved again while the reader searched for them. The caller must reread the log.
	ErrReplaced = errors.New("sink: replaced by a merge since the log was read; reread the log")
	// ErrNewer means that a newer version of the program wrote the dataset.
	ErrNewer = errors.New("sink: written by a newer version")
)

// A ShardError reports a failed operation on a file or folder of the dataset, such as a failed
// write to a shard or to the write-ahead log.
type ShardError struct {
	// Path is the path of the file or folder.
	Path string
	// Op is the failed operation: open, create, write, read, sync, close, check, rename, link,
	// commit, remove, set aside, put or repair.
	Op  string
	Err error
}

// shardError turns an error of a store into a *ShardError with the path or the URL of the object.
func shardError(op string, err error) *ShardError {
	path := ""
	if e, ok := errors.AsType[*fs.PathError](asPath(err)); ok {
		path, err = e.Path, e.Err
	}
	return &ShardError{Path: path, Op: op, Err: err}
}

func (e *ShardError) Error() string {
	err := e.Err
	// An *fs.PathError would repeat the path and the operation.
	if p, ok := errors.AsType[*fs.PathError](err); ok && err == error(p) && p.Path == e.Path {
		err = p.Err
	}
	return e.Path + ": " + e.Op + ": " + err.Error()
}

// Unwrap returns the cause.
func (e *ShardError) Unwrap() error { return e.Err }

// Is reports whether target is ErrFull or ErrPermission and the cause is a matching system error.
func (e *ShardError) Is(target error) bool {
	switch target {
	case ErrFull:
		return errors.Is(e.Err, syscall.ENOSPC) || errors.Is(e.Err, syscall.EDQUOT)
	case ErrPermission:
		return errors.Is(e.Err, fs.ErrPermission) || errors.Is(e.Err, syscall.EROFS)
	}
	return false
}

// A CorruptError reports a committed file that differs from its commit, an invalid entry in the
// commit log, or a damaged segment of the write-ahead log. For a segment, it wraps a
// *frame.CorruptError with the offset.
type CorruptError struct {
	// Path is the path of the file, relative to the run's folder if the folder is known.
	Path string
	// Row is the number of the affected row in the file, from 0, or -1 if the error does not
	// concern a row.
	Row int64
	Err error
}

func (e *CorruptError) Error() string {
	s := e.Path + ": "
	if e.Row >= 0 {
		s += "row " + strconv.FormatInt(e.Row, 10) + ": "
	}
	return s + e.Err.Error()
}

// Unwrap returns the cause.
func (e *CorruptError) Unwrap() error { return e.Err }

// Is reports whether target is ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// A SegmentError reports that segment_index or segment_count of a row does not match the row's
// position in its sample, because a row is missing, appears twice, or is out of order.
type SegmentError struct {
	Index, Count         int // values in the row
	WantIndex, WantCount int
}

func (e *SegmentError) Error() string {
	return fmt.Sprintf("segment %d of %d, want %d of %d", e.Index, e.Count, e.WantIndex, e.WantCount)
}

// A SampleError reports that Append or Store refused a sample because the sample breaks a rule or
// is already committed (ErrCommitted). After such an error from Append, no part of the sample was
// written, and other samples can still be appended.
type SampleError struct {
	Key string
	// Row is the number of the affected row in the sample, from 0, or -1 if the error concerns the
	// whole sample.
	Row int
	Err error
}

func (e *SampleError) Error() string {
	if e.Row < 0 {
		return fmt.Sprintf("sample %s: %v", e.Key, e.Err)
	}
	return fmt.Sprintf("sample %s: row %d: %v", e.Key, e.Row, e.Err)
}

// Unwrap returns the cause.
func (e *SampleError) Unwrap() error { return e.Err }

// Refused reports whether Append refused the sample because of its content. If so, Append accepts
// another sample with the same key, such as a failure. Refused returns false for ErrCommitted.
func (e *SampleError) Refused() bool { return !errors.Is(e.Err, ErrCommitted) }
