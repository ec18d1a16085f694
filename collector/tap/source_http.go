package tap

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/collector/tap/taphttp"
)

// A remote is a source that reads a spool from a tap's URL.
type remote struct {
	client *taphttp.Client

	mu       sync.Mutex
	ahead    time.Duration // the skew
	measured time.Time     // when the skew was measured; zero: never
}

// These are the timeouts and limits for a remote's requests. The timeout of a request is the time
// that it asks the tap to wait, plus askMore.
const (
	askWait   = 2 * time.Second
	askMore   = 10 * time.Second
	remeasure = time.Minute
	atLeast   = 50 * time.Millisecond // minimum time between a request that returned no new data and the next request
)

// dial connects to a URL and returns an error if the URL does not belong to a tap.
func dial(where, token string) (*remote, error) {
	s := &remote{}
	client, err := taphttp.New(taphttp.Config{
		URL: where, Token: token, Path: listPath, Version: Version, Timeout: askMore,
		Tap: "a tap", Command: "rollout tap", Answered: s.measure,
	})
	if err != nil {
		return nil, err
	}
	s.client = client
	if err := client.List(context.Background(), "", 0, new(listing)); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *remote) close() { s.client.Close() }

func (s *remote) skew() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ahead
}

// measure updates the skew from the headers of a response. The tap reads its clock after the
// request was sent. The measured skew is therefore never too small, and the horizon is never too
// late.
func (s *remote) measure(sent time.Time, h http.Header) {
	nanos, err := strconv.ParseInt(h.Get(nowHeader), 10, 64)
	if err != nil {
		return
	}
	ahead := time.Unix(0, nanos).Sub(sent.Round(0))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.measured.IsZero() || ahead < s.ahead || time.Since(s.measured) > remeasure {
		s.ahead, s.measured = ahead, time.Now()
	}
}

// rest waits until at least atLeast has passed since the request. It is called after a response
// without new data, because a tap that is shutting down returns such responses immediately.
func rest(ctx context.Context, asked time.Time) error {
	return pause(ctx, max(0, atLeast-time.Since(asked)))
}

func (s *remote) list(ctx context.Context, after uint64) ([]segment, error) {
	asked := time.Now()
	var l listing
	err := s.client.List(ctx, strconv.FormatUint(after, 10), askWait, &l)
	if err != nil {
		return nil, err
	}
	var list []segment
	for _, seg := range l.Segments {
		if n := len(list); n > 0 && seg.Number <= list[n-1].number {
			return nil, s.client.NotTap("its segments are not in order")
		}
		list = append(list, segment{number: seg.Number, bytes: seg.Bytes})
	}
	if n := len(list); n == 0 || list[n-1].number <= after {
		err = rest(ctx, asked)
	}
	return list, err
}

func (s *remote) open(n uint64) (part, error) { return &fetched{src: s, number: n}, nil }

// A fetched contains the bytes of a remote segment that have been fetched but not yet read.
type fetched struct {
	src    *remote
	number uint64
	buf    []byte
	base   int64 // the offset of buf in the segment
}

func (f *fetched) close() { f.buf = nil }

func (f *fetched) ReadAt(p []byte, at int64) (int, error) {
	if at < f.base || at > f.base+int64(len(f.buf)) {
		return 0, io.ErrUnexpectedEOF
	}
	n := copy(p, f.buf[at-f.base:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *fetched) grow(ctx context.Context, from, _ int64) (g growth, err error) {
	if from > f.base {
		f.buf = append(f.buf[:0], f.buf[min(from-f.base, int64(len(f.buf))):]...)
		f.base = from
	}
	asked, at := time.Now(), f.base+int64(len(f.buf))
	number, header := strconv.FormatUint(f.number, 10), http.Header{"Range": {fmt.Sprintf("bytes=%d-", at)}}
	err = f.src.client.Get(ctx, number, askWait, header, func(r *http.Response) error {
		end, err := strconv.ParseInt(r.Header.Get(finalHeader), 10, 64)
		g.final = err == nil
		switch r.StatusCode {
		case http.StatusPartialContent:
			err = f.append(r, at)
		case http.StatusRequestedRangeNotSatisfiable:
			err = nil
			if g.final && end < at { // the tap has removed a partial frame after a failed write
				f.buf = f.buf[:max(end-f.base, 0)]
			}
		case http.StatusNotFound:
			err = fmt.Errorf("segment %d: %w", f.number, os.ErrNotExist)
		default:
			err = f.src.client.Refused(r)
		}
		g.size = f.base + int64(len(f.buf))
		g.final = g.final && g.size >= end
		return err
	})
	if err == nil && !g.final && g.size <= at {
		err = rest(ctx, asked)
	}
	return g, err
}

// append appends the response body to f.buf. at must be the offset of the body in the segment. If
// the body is truncated, append keeps the bytes that were received.
func (f *fetched) append(r *http.Response, at int64) error {
	var from, last int64
	if _, err := fmt.Sscanf(r.Header.Get("Content-Range"), "bytes %d-%d/", &from, &last); err != nil || from != at || last-from >= maxChunk {
		return f.src.client.NotTap("it returned a different byte range")
	}
	room := int(last - from + 1)
	n := len(f.buf)
	f.buf = append(f.buf, make([]byte, max(room, 0))...)
	got, err := io.ReadFull(r.Body, f.buf[n:])
	f.buf = f.buf[:n+got]
	return err
}
