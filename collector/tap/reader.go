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

// A Reader reads each call in a spool once, in the order in which the calls were added. It follows
// the spool while a tap writes to it. Next must not be called concurrently. Await, Skew, Stats and
// Trouble are safe for concurrent use. A Reader keeps up to 32 MiB of earlier prompts and outputs
// in memory, because it needs them to decode later prompts.
type Reader struct {
	src   source
	since time.Time

	number uint64   // the number of the open segment, or of the last segment read
	before struct { // the previous segment read; its number is 0 if there was none
		number, process uint64
		end             end
	}
	part   part // the open segment, or nil
	frames *frame.Reader
	dec    decoder
	size   int64 // the known size of the open segment
	final  bool  // the open segment will not grow
	torn   bool  // the open segment has been counted as torn
	fails  int   // consecutive errors
	stuck  int   // number of failed reads since the last payload of the open segment

	passed time.Time // the next value of horizon, set when Next is called again

	mu      sync.Mutex
	horizon time.Time
	moved   chan struct{} // closed when horizon moves; nil if no caller waits
	stats   ReaderStats
	fatal   error
}

// OpenReader opens the spool in a folder or at the URL of a tap. The token is the tap's token. It can
// be empty, and it is not used for a folder. OpenReader returns an error if there is no spool. If a
// newer version of rollout has written the spool, the error wraps [frame.ErrNewer].
func OpenReader(where, token string) (*Reader, error) {
	r := &Reader{}
	if strings.HasPrefix(where, "http://") || strings.HasPrefix(where, "https://") {
		src, err := dial(where, token)
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
		return nil, fmt.Errorf("tap: %s is not the spool of a tap: it has no %s file and no segments", where, lockFile)
	}
	r.src = &folder{dir: where}
	if err := r.known(list); err != nil {
		r.src.close()
		return nil, err
	}
	return r, nil
}

// known returns an error if the newest segment cannot be opened or has a version above Version.
func (r *Reader) known(list []segment) error {
	if len(list) == 0 {
		return nil
	}
	newest := list[len(list)-1]
	p, err := r.src.open(newest.number)
	if errors.Is(err, os.ErrNotExist) {
		return nil // the segment has just been removed
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

// Since makes Next skip calls that were added before t. t is a time on this machine's clock. Since
// must be called before the first call to Next. The Reader does not even open segments that ended
// before t.
func (r *Reader) Since(t time.Time) { r.since = t }

// Next returns the next call, which the caller owns. At the end of the spool, Next waits for more
// calls. It returns an error only if ctx ends or if a segment has a newer version than this program
// can read. In the second case, the error wraps [frame.ErrNewer]. Next counts all other errors in
// [ReaderStats], and then retries the read or skips the damage.
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

// call decodes a payload and updates the counts. It returns nil if the payload does not contain a
// call that Next must return.
func (r *Reader) call(payload []byte) *Call {
	lost, dropped := r.dec.lost, r.dec.dropped
	c, added, err := r.dec.decode(payload)
	if err == nil && added.After(r.passed) {
		r.passed = added
	}
	if c == nil {
		defer r.pass() // move the horizon now, because Next continues with the next payload
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
	r.frames.MaxPayload(MaxPayload)
	return nil
}

func (r *Reader) choose(list []segment) (uint64, bool) {
	if r.number == 0 && !r.since.IsZero() {
		// All calls in a segment were added before the next segment started.
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

// grow makes the bytes that were written since the last call to grow available to r.frames.
func (r *Reader) grow(ctx context.Context) error {
	before := r.size
	if r.stuck > 0 {
		before = -1 // do not wait for more bytes, because the segment might have been truncated
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

// unread counts a failed read of the open segment. After maxStuck failed reads, the Reader leaves
// the segment. A read can fail because the tap truncated the segment after a failed write.
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

// The pause after an error grows from firstPause to lastPause. A Reader leaves a segment after
// maxStuck failed reads.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
	maxStuck   = 6
)

// failed counts an error that was not caused by damage, and pauses.
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

// well clears the last error and the number of consecutive errors after a success.
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
