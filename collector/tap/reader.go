package tap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/sink/frame"
)

// A Reader reads the calls in a spool, each once, in the order in which they were added. It follows
// the spool while a tap writes to it. Only one goroutine can call Next. Await, Skew, Stats and
// Trouble are safe for concurrent use. A Reader keeps up to 32 MiB of earlier prompts and outputs,
// because it needs them to decode later prompts.
type Reader struct {
	src   source
	since time.Time

	number uint64   // the number of the open segment, or of the last segment read
	before struct { // the segment that was read before this one; its number is 0 if there was none
		number, process uint64
		end             end
	}
	part   part // the open segment, or nil
	frames *frame.Reader
	dec    decoder
	size   int64 // known size of the open segment
	final  bool  // the segment will not grow
	torn   bool  // already counted as torn
	fails  int   // consecutive errors
	stuck  int   // errors reading the open segment since the last payload

	passed time.Time // becomes the horizon at the next call of Next

	mu      sync.Mutex
	horizon time.Time
	moved   chan struct{} // closed when horizon moves; nil if no caller waits
	stats   ReaderStats
	fatal   error
}

// OpenReader opens the spool in a folder or at the URL of a tap. It returns an error if there is no
// spool. If a newer version of rollout writes the spool, the error wraps [frame.ErrNewer].
func OpenReader(where string) (*Reader, error) {
	r := &Reader{}
	if strings.HasPrefix(where, "http://") || strings.HasPrefix(where, "https://") {
		src, err := dial(where)
		if err != nil {
			return nil, fmt.Errorf("tap: %w", err)
		}
		r.src = src
		return r, nil
	}
	list, err := segments(where)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("tap: %s: no such folder", where)
	}
	if err != nil {
		return nil, fmt.Errorf("tap: %w", err)
	}
	if _, err := os.Lstat(filepath.Join(where, lockFile)); err != nil && len(list) == 0 {
		return nil, fmt.Errorf("tap: %s is not the spool of a tap: it has no file %s and no segment", where, lockFile)
	}
	r.src = &folder{dir: where}
	if err := r.known(list); err != nil {
		r.src.close()
		return nil, err
	}
	return r, nil
}

// known returns an error if the newest segment cannot be opened or its version is newer than
// Version.
func (r *Reader) known(list []segment) error {
	if len(list) == 0 {
		return nil
	}
	newest := list[len(list)-1]
	p, err := r.src.open(newest.number)
	if errors.Is(err, os.ErrNotExist) {
		return nil // it was removed
	}
	if err != nil {
		return fmt.Errorf("tap: %w", err)
	}
	defer p.close()
	if _, err := frame.NewReader(p, min(newest.bytes, frame.HeaderSize), header(0)); errors.Is(err, frame.ErrNewer) {
		return fmt.Errorf("tap: segment %d: %w", newest.number, err)
	}
	return nil
}

// Since makes Next skip the calls added before t, by this machine's clock. Call Since before the
// first call of Next. The Reader does not even open segments that ended before t.
func (r *Reader) Since(t time.Time) { r.since = t }

// Next returns the next call, which the caller owns. At the end of the spool it waits for more
// calls. It returns an error only if ctx ends or if the next segment has a newer version. In the
// second case the error wraps [frame.ErrNewer]. Next counts all other errors in [ReaderStats]. It
// then retries the read or skips the damage.
func (r *Reader) Next(ctx context.Context) (*Call, error) {
	r.pass()
	for {
		if err := r.end(ctx); err != nil {
			return nil, err
		}
		if r.part == nil {
			if err := r.advance(ctx); err != nil {
				r.failed(ctx, err)
			}
			continue
		}
		payload, err := r.frames.Next()
		switch {
		case err == nil:
			r.stuck = 0
			if c := r.call(payload); c != nil {
				return c, nil
			}
		case err == io.EOF && r.final:
			r.ended()
		case err == io.EOF:
			if err := r.grow(ctx); err != nil {
				r.failed(ctx, err)
			}
		case r.damaged(err):
		default:
			r.unread(ctx, err)
		}
	}
}

func (r *Reader) end(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fatal
}

// call decodes a payload and updates the counts. It returns nil if Next has no call to return for
// the payload.
func (r *Reader) call(payload []byte) *Call {
	lost, dropped := r.dec.lost, r.dec.dropped
	c, added, err := r.dec.decode(payload)
	if err == nil && added.After(r.passed) {
		r.passed = added
	}
	if c == nil {
		defer r.pass() // move the horizon now, because Next does not return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Lost += int64(r.dec.lost - lost)
	r.stats.Dropped += int64(r.dec.dropped - dropped)
	switch {
	case err == nil && payload[0] == opHead:
		r.follows(r.dec.head)
	case errors.Is(err, errNoBase):
		r.stats.Orphans++
		return nil
	case err != nil:
		r.stats.Damaged++
		r.stats.DamagedBytes += int64(len(payload))
		return nil
	}
	if c != nil {
		r.stats.Calls++
		if added.Before(r.since.Add(r.src.skew())) {
			return nil
		}
	}
	return c
}

func (r *Reader) advance(ctx context.Context) error {
	list, err := r.src.list(ctx, r.number)
	if err != nil {
		return err
	}
	r.well()
	n, ok := r.choose(list)
	if !ok {
		return nil
	}
	r.part, err = r.src.open(n)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	r.before.number, r.number = r.number, n
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.stats.Removed++
		return nil
	}
	r.stats.Segments++
	r.frames, r.dec, r.size, r.final, r.torn = frame.NewGrowing(r.part, header(n)), decoder{}, 0, false, false
	r.frames.MaxPayload(maxPayload)
	return nil
}

func (r *Reader) choose(list []segment) (uint64, bool) {
	if r.number == 0 && !r.since.IsZero() {
		// A segment contains no call that was added after the start of the next segment.
		since := r.since.Add(r.src.skew()).UnixMilli()
		for len(list) > 1 && int64(list[1].number) <= since {
			list = list[1:]
		}
	}
	i := slices.IndexFunc(list, func(s segment) bool { return s.number > r.number })
	if i < 0 {
		return 0, false
	}
	return list[i].number, true
}

// grow lets r.frames read the bytes that were written since the last grow.
func (r *Reader) grow(ctx context.Context) error {
	before := r.size
	if r.stuck > 0 {
		before = -1 // do not wait for bytes that have been truncated
	}
	g, err := r.part.grow(ctx, r.frames.Offset(), before)
	if errors.Is(err, os.ErrNotExist) {
		r.mu.Lock()
		r.stats.Removed++
		r.mu.Unlock()
		r.leave()
		return nil
	}
	if err != nil {
		return err
	}
	r.well()
	r.mu.Lock()
	r.stats.Bytes += max(0, g.size-r.size)
	r.mu.Unlock()
	r.size, r.final = g.size, g.final
	if g.idle.After(r.passed) {
		r.tear()
		r.passed = g.idle
		r.pass()
	}
	err = r.frames.Grow(g.size, !g.final)
	if err == nil {
		return nil
	}
	if r.damaged(err) {
		r.leave()
		return nil
	}
	return fmt.Errorf("segment %d: %w", r.number, err)
}

// unread counts a failed read of the open segment. After maxStuck failed reads it leaves the
// segment. A read can fail because the segment became shorter, when the tap truncated a failed
// write.
func (r *Reader) unread(ctx context.Context, err error) {
	r.failed(ctx, err)
	if r.stuck++; r.stuck < maxStuck {
		if err := r.grow(ctx); err != nil {
			r.failed(ctx, err)
		}
		return
	}
	r.mu.Lock()
	r.stats.Damaged++
	r.mu.Unlock()
	r.leave()
}

func (r *Reader) leave() {
	r.part.close()
	r.before.process, r.before.end = r.dec.head.process, r.dec.end
	r.part, r.frames, r.dec, r.stuck = nil, nil, decoder{}, 0
}

// The shortest and longest pause after an error, and the number of failed reads after which a
// Reader leaves a segment.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
	maxStuck   = 6
)

// failed counts an error that is not damage, and pauses.
func (r *Reader) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	r.stats.Errors++
	r.stats.Err = err
	if errors.Is(err, frame.ErrNewer) {
		r.fatal = fmt.Errorf("tap: %w", err)
	}
	r.mu.Unlock()
	if r.fails++; errors.Is(err, frame.ErrNewer) {
		return
	}
	_ = pause(ctx, min(firstPause<<min(r.fails, 10), lastPause)) // Next checks ctx
}

// well records a success: it clears the last error and the number of consecutive errors.
func (r *Reader) well() {
	if r.fails == 0 {
		return
	}
	r.fails = 0
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Err = nil
}

// Close closes the open files or connections. The Reader must not be used afterwards.
func (r *Reader) Close() {
	if r.part != nil {
		r.leave()
	}
	r.src.close()
}
