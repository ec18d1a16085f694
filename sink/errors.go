package sink

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"syscall"
)

// Sentinels for errors.Is.
var (
	// ErrFull means that the disk, or the quota on it, is full.
	ErrFull = errors.New("sink: no space left")
	// ErrPermission means that the run's folder may not be written to.
	ErrPermission = errors.New("sink: permission denied")
	// ErrNoLinks means that the run's folder lies on a file system without hard
	// links, on which no commit can be made.
	ErrNoLinks = errors.New("sink: the file system has no hard links")
	// ErrCommitted means that the sample's rows are already in the dataset.
	ErrCommitted = errors.New("sink: sample is already committed")
	// ErrClosed means that the Dataset was closed or has failed.
	ErrClosed = errors.New("sink: dataset is closed")
	// ErrWaiting means that the sample is durable and no commit holds it, because others of
	// its group are missing (Config.CommitGroups). The write-ahead log keeps it until the
	// group is whole.
	ErrWaiting = errors.New("sink: the sample waits in the write-ahead log for the rest of its group")
	// ErrCorrupt is wrapped by every CorruptError.
	ErrCorrupt = errors.New("sink: corrupt")
	// ErrReplaced means that a merge has replaced a shard since the log was read, that it was
	// deleted, and that its rows moved on while they were looked for: read the log again.
	ErrReplaced = errors.New("sink: replaced by a merge since the log was read; read the log again")
	// ErrNewer means that a newer version of the program wrote the dataset.
	ErrNewer = errors.New("sink: written by a newer version")
)

// A ShardError says that a shard, its commit, or the write-ahead log could not be
// written. It ends the run: storage is not negotiable.
type ShardError struct {
	// Path is the file, or the folder of a run.
	Path string
	// Op is what was tried: open, create, write, sync, close, check, rename, link,
	// commit, remove, set aside, repair.
	Op  string
	Err error
}

func (e *ShardError) Error() string {
	err := e.Err
	// The operating system names the file and the call once more.
	if p, ok := errors.AsType[*fs.PathError](err); ok && err == error(p) && p.Path == e.Path {
		err = p.Err
	}
	return e.Path + ": " + e.Op + ": " + err.Error()
}

// Unwrap returns the cause.
func (e *ShardError) Unwrap() error { return e.Err }

// Is reports whether the cause means target, for ErrFull and ErrPermission,
// which the operating system says in its own words.
func (e *ShardError) Is(target error) bool {
	switch target {
	case ErrFull:
		return errors.Is(e.Err, syscall.ENOSPC) || errors.Is(e.Err, syscall.EDQUOT)
	case ErrPermission:
		return errors.Is(e.Err, fs.ErrPermission) || errors.Is(e.Err, syscall.EROFS)
	}
	return false
}

// A CorruptError says that a committed file is not what its commit says, that a
// commit entry cannot be read, or that a segment of the write-ahead log is damaged:
// then it wraps a *frame.CorruptError, which knows the offset.
type CorruptError struct {
	// Path is the file, relative to the run's folder where that is known.
	Path string
	// Row is the row within the file, or -1.
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

// Is reports true for ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// A SegmentError says that a row of a sample is another segment than its place asks for: a
// row is missing, comes twice, or is out of order.
type SegmentError struct {
	Index, Count         int // as the row says
	WantIndex, WantCount int
}

func (e *SegmentError) Error() string {
	return fmt.Sprintf("segment %d of %d, want %d of %d", e.Index, e.Count, e.WantIndex, e.WantCount)
}

// A SampleError says that Append refused a sample because it breaks a rule that
// every row in a dataset keeps, or because it is there already (ErrCommitted).
// Nothing of the sample was written, and others may follow.
type SampleError struct {
	Key string
	// Row is the row within the sample, or -1 where the sample itself is at fault.
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

// Refused reports whether something in the sample is at fault: a sample without it,
// such as a failure of the same key, would be taken. It is false for ErrCommitted.
func (e *SampleError) Refused() bool { return !errors.Is(e.Err, ErrCommitted) }
