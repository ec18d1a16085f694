package sink

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"
)

// A merge that fails costs no data: the entries that it would have replaced stay. So the merger
// tries again, less and less often, and leaves out an entry that cannot be read.

// firstRetry and lastRetry bound the time to the next try after an error.
const firstRetry, lastRetry = time.Minute, time.Hour

// maxSourceTries is how many merges may fail because the system cannot read one entry.
const maxSourceTries = 3

// A retry says when to try again. The zero value: now.
type retry struct {
	after time.Duration // of the last error
	at    time.Time
	said  []string // causes since the last merge, or since what it replaced was moved
}

// due reports whether it is time.
func (r *retry) due() bool { return !time.Now().Before(r.at) }

// wait returns the time until then, and a long one if it is time already.
func (r *retry) wait() time.Duration {
	if left := time.Until(r.at); left > 0 {
		return left
	}
	return lastRetry
}

// later doubles the time to the next try.
func (r *retry) later() {
	r.after = min(max(2*r.after, firstRetry), lastRetry)
	r.at = time.Now().Add(r.after)
}

// A sourceError says that a merge cannot read an entry or its shards.
type sourceError struct {
	seq int64
	err error
}

func (e *sourceError) Error() string { return e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }

// ofSource returns the error of reading and writing the rows of an entry, as a *sourceError if
// the entry is to blame. What a merge writes fails with a *ShardError.
func ofSource(seq int64, err error) error {
	if _, ok := errors.AsType[*ShardError](err); ok {
		return err
	}
	if errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNewer) || errors.Is(err, fs.ErrNotExist) {
		return &sourceError{seq, err}
	}
	return err
}

// notOf returns the error of an entry that does not describe its shards.
func notOf(c *Commit, err error) error {
	return &CorruptError{Path: commitsDir + "/" + commitName(c.Seq), Row: -1, Err: err}
}

// failed notes that a step failed. more says that another step may go well at once: an entry
// that is damaged is left out from now on.
func (m *merger) failed(err error) (more bool) {
	d := m.d
	d.mu.Lock()
	d.stats.MergeErrors++
	d.mu.Unlock()
	source, ok := errors.AsType[*sourceError](err)
	if ok && m.leaveOut(source) {
		d.cfg.Logger.Warn("an entry is left out of merges", "seq", source.seq, "error", err)
		return true
	}
	m.retry.later()
	if cause := causeOf(err); !slices.Contains(m.retry.said, cause) {
		m.retry.said = append(m.retry.said, cause)
		d.cfg.Logger.Warn("small commits could not be merged; they are data as they are, and merging is tried again", "after", m.retry.after, "error", err)
	}
	return false
}

// leaveOut keeps an entry out of merges until the next process. It reports false where the
// system could not read it, which may be over soon.
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

// causeOf returns what is the same in each error with one cause: names of temporary files differ.
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
