package tap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/sink/frame"
)

// A remote is a source that reads a spool from a tap's URL.
type remote struct {
	base   *url.URL
	token  string // empty: none
	client *http.Client

	mu       sync.Mutex
	ahead    time.Duration // the skew
	measured time.Time     // when the skew was measured; zero: never
}

// These are the timeouts and limits for a remote's requests. The timeout of a request is the time
// that it asks the tap to wait, plus askMore.
const (
	askWait   = 2 * time.Second
	askMore   = 10 * time.Second
	askWithin = 10 * time.Second // timeout of the first request, in OpenReader
	remeasure = time.Minute
	atLeast   = 50 * time.Millisecond // minimum time between a request that returned no new data and the next request
	maxList   = 16 << 20              // maximum size of the list of segments, in bytes
)

// dial connects to a URL and returns an error if the URL does not belong to a tap.
func dial(where, token string) (*remote, error) {
	u, err := url.Parse(where)
	if err != nil || u.Host == "" {
		return nil, errors.New("invalid URL (want http://HOST:PORT)") // the URL can contain a password
	}
	transport, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		transport = &http.Transport{}
	}
	transport = transport.Clone()
	transport.DisableCompression = true // token ids are not worth compressing
	s := &remote{base: u, token: token, client: &http.Client{Transport: transport}}
	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	defer cancel()
	if _, err := s.listing(ctx, 0, 0); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *remote) close() { s.client.CloseIdleConnections() }

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

// get sends a GET request, passes the response to the function read, and closes the body.
func (s *remote) get(ctx context.Context, path string, wait time.Duration, query url.Values, from int64, read func(*http.Response) error) error {
	ctx, cancel := context.WithTimeout(ctx, wait+askMore)
	defer cancel()
	u := s.base.JoinPath(path)
	if wait > 0 {
		query.Set("wait", strconv.FormatFloat(wait.Seconds(), 'f', -1, 64))
	}
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	if from >= 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	sent := time.Now()
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // read only
	s.measure(sent, resp.Header)
	return read(resp)
}

func (s *remote) listing(ctx context.Context, after uint64, wait time.Duration) (l listing, err error) {
	query := url.Values{}
	if after > 0 {
		query.Set("after", strconv.FormatUint(after, 10))
	}
	err = s.get(ctx, listPath, wait, query, -1, func(r *http.Response) error {
		if r.StatusCode != http.StatusOK {
			return s.refused(r)
		}
		if err := json.NewDecoder(io.LimitReader(r.Body, maxList)).Decode(&l); err != nil || l.Version < 1 {
			return s.notTap("its answer is not a list of segments")
		}
		if l.Version > Version {
			return fmt.Errorf("%s: %w: the tap writes version %d, but this program reads versions up to %d; upgrade rollout", s.base.Redacted(), frame.ErrNewer, l.Version, Version)
		}
		return nil
	})
	return l, err
}

func (s *remote) refused(r *http.Response) error {
	if r.StatusCode == http.StatusNotFound || r.StatusCode == http.StatusMethodNotAllowed {
		return s.notTap("GET " + listPath + ": " + r.Status)
	}
	return fmt.Errorf("%s: GET %s: %s", s.base.Redacted(), r.Request.URL.Path, r.Status)
}

func (s *remote) notTap(why string) error {
	return fmt.Errorf("%s is not a tap (%s); use the listen address of rollout tap", s.base.Redacted(), why)
}

// rest waits until at least atLeast has passed since the request. It is called after a response
// without new data, because a tap that is shutting down returns such responses immediately.
func rest(ctx context.Context, asked time.Time) error {
	return pause(ctx, max(0, atLeast-time.Since(asked)))
}

func (s *remote) list(ctx context.Context, after uint64) ([]segment, error) {
	asked := time.Now()
	l, err := s.listing(ctx, after, askWait)
	if err != nil {
		return nil, err
	}
	var list []segment
	for _, seg := range l.Segments {
		if n := len(list); n > 0 && seg.Number <= list[n-1].number {
			return nil, s.notTap("its segments are not in order")
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
	path := listPath + "/" + strconv.FormatUint(f.number, 10)
	err = f.src.get(ctx, path, askWait, url.Values{}, at, func(r *http.Response) error {
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
			err = f.src.refused(r)
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
		return f.src.notTap("it returned a different byte range")
	}
	room := int(last - from + 1)
	n := len(f.buf)
	f.buf = append(f.buf, make([]byte, max(room, 0))...)
	got, err := io.ReadFull(r.Body, f.buf[n:])
	f.buf = f.buf[:n+got]
	return err
}
