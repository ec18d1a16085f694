package sink

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"
)

// A failed merge does not lose data, because the log still contains the entries that the merge
// would have replaced. The merger retries at increasing intervals, and excludes entries that it
// cannot read.

// firstRetry is the shortest wait after an error, and lastRetry is the longest wait.
const firstRetry, lastRetry = time.Minute, time.Hour

// An entry is excluded from merges after maxSourceTries merges were unable to read the entry
// because of a system error.
const maxSourceTries = 3

// A retry determines when the merger can try the next merge. With the zero value, the merger can
// try immediately.
type retry struct {
	after time.Duration // the wait after the last error
	at    time.Time
	said  []string // causes that were logged since the last successful merge or move
}

func (r *retry) due() bool { return !time.Now().Before(r.at) }

// wait returns the time until the retry is due. If the retry is already due, wait returns
// lastRetry.
func (r *retry) wait() time.Duration {
	if left := time.Until(r.at); left > 0 {
		return left
	}
	return lastRetry
}

func (r *retry) later() {
	r.after = min(max(2*r.after, firstRetry), lastRetry)
	r.at = time.Now().Add(r.after)
}

// A sourceError reports that a merge cannot read an entry or its shards.
type sourceError struct {
	seq int64
	err error
}

func (e *sourceError) Error() string { return e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }

// If err means that entry seq or its shards cannot be read, ofSource wraps err in a *sourceError.
// It returns all other errors unchanged, such as write errors.
func ofSource(seq int64, err error) error {
	if _, ok := errors.AsType[*ShardError](err); ok {
		return err
	}
	if errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNewer) || errors.Is(err, fs.ErrNotExist) {
		return &sourceError{seq, err}
	}
	return err
}

// notOf returns the error for an entry that does not match its shards.
func notOf(c *Commit, err error) error {
	return &CorruptError{Path: entryPath(c.Seq), Row: -1, Err: err}
}

// failed handles an error from step. more is true if failed has excluded an entry. The caller can
// then call step again immediately.
func (m *merger) failed(err error) (more bool) {
	d := m.d
	d.mu.Lock()
	d.stats.MergeErrors++
	d.mu.Unlock()
	source, ok := errors.AsType[*sourceError](err)
	if ok && m.leaveOut(source) {
		d.cfg.Logger.Warn("entry excluded from merges", "seq", source.seq, "error", err)
		return true
	}
	m.retry.later()
	if cause := causeOf(err); !slices.Contains(m.retry.said, cause) {
		m.retry.said = append(m.retry.said, cause)
		d.cfg.Logger.Warn("cannot merge small commits; no data is lost, and the merge will be retried", "after", m.retry.after, "error", err)
	}
	return false
}

// leaveOut excludes an entry from merges for the rest of the process. If the error might be
// temporary, leaveOut returns false and does not exclude the entry.
func (m *merger) leaveOut(e *sourceError) bool {
	m.d.logMu.Lock()
	defer m.d.logMu.Unlock()
	at := slices.IndexFunc(m.list, func(o mergeable) bool { return o.seq == e.seq })
	source := &m.list[at]
	source.failed++
	errno, ok := errors.AsType[syscall.Errno](e.err)
	if ok && errno != syscall.ENOENT && source.failed < maxSourceTries {
		return false
	}
	source.fixed = true
	return true
}

// causeOf returns the text of an error without the names of temporary files, because each attempt
// uses different names.
func causeOf(err error) string {
	cause := err.Error()
	if s, ok := errors.AsType[*ShardError](err); ok {
		cause = s.Op + ": " + s.Err.Error()
	}
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		cause = p.Op + ": " + p.Err.Error()
	}
	if l, ok := errors.AsType[*os.LinkError](err); ok {
		cause = l.Op + ": " + l.Err.Error()
	}
	return cause
}
