package tap

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/collector/tap/taphttp"
)

// The package comment describes these paths and headers.
const (
	listPath    = "/tap/segments"
	nowHeader   = "Tap-Now"
	finalHeader = "Tap-Final"
)

// The limits for a response. After new bytes have arrived, a response is delayed by the constant
// gather, so that it can contain several calls.
const (
	maxChunk = 1 << 20
	gather   = 5 * time.Millisecond
)

type listing struct {
	Version  int             `json:"version"`
	Segments []listedSegment `json:"segments"`
}

type listedSegment struct {
	Number uint64 `json:"number"`
	Bytes  int64  `json:"bytes"`
	Open   bool   `json:"open"`
}

// Handler returns a handler that serves the segments to remote Readers, under /tap/. A request can
// wait up to 30 s for more bytes. The wait ends early if the request's context ends or the spool is
// closed.
func (s *Spool) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+listPath, s.serveList)
	mux.HandleFunc("GET "+listPath+"/{number}", s.serveSegment)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(nowHeader, strconv.FormatInt(time.Now().UnixNano(), 10))
		mux.ServeHTTP(w, r)
	})
}

func (s *Spool) serveList(w http.ResponseWriter, r *http.Request) {
	wait, err := taphttp.Wait(r)
	after := uint64(0)
	if text := r.FormValue("after"); err == nil && text != "" {
		after, err = strconv.ParseUint(text, 10, 64)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var list []segment
	open := s.waitFor(r, wait, func(uint64) bool {
		list, err = segments(s.cfg.Dir)
		return err != nil || len(list) > 0 && list[len(list)-1].number > after
	})
	if err != nil {
		http.Error(w, "cannot read the spool", http.StatusInternalServerError)
		return
	}
	l := listing{Version: Version, Segments: []listedSegment{}}
	for _, seg := range list {
		l.Segments = append(l.Segments, listedSegment{seg.number, seg.bytes, seg.number == open})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(l) // an error means that the client disconnected
}

func (s *Spool) serveSegment(w http.ResponseWriter, r *http.Request) {
	wait, err := taphttp.Wait(r)
	from := int64(0)
	if text := r.Header.Get("Range"); err == nil && text != "" {
		from, err = rangeOf(text)
	}
	number, numberErr := strconv.ParseUint(r.PathValue("number"), 10, 64)
	if err = errors.Join(err, numberErr); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f, err := os.Open(segmentPath(s.cfg.Dir, number))
	if errors.Is(err, os.ErrNotExist) {
		http.Error(w, "no such segment", http.StatusNotFound)
		return
	}
	if err != nil {
		http.Error(w, "cannot read the segment", http.StatusInternalServerError)
		return
	}
	defer func() { _ = f.Close() }() // read only
	size := int64(0)
	open := s.waitFor(r, wait, func(open uint64) bool {
		var info os.FileInfo
		if info, err = f.Stat(); err != nil {
			return true
		}
		size = info.Size()
		return size > from || open != number
	})
	if err != nil {
		http.Error(w, "cannot read the segment", http.StatusInternalServerError)
		return
	}
	n := min(size-from, maxChunk)
	if open != number {
		w.Header().Set(finalHeader, strconv.FormatInt(size, 10))
	}
	if n <= 0 {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", size))
		w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, from+n-1, size))
	w.WriteHeader(http.StatusPartialContent)
	_, _ = io.Copy(w, io.NewSectionReader(f, from, n)) // if the file is too short, net/http closes the connection
}

// waitFor calls the function ready at once, and again each time a segment has grown or ended. It
// stops when ready returns true or the wait is over. It passes the number of the open segment to
// ready, or 0 if no segment is open, and returns the last number that it passed. This number is
// determined before ready inspects the file, so ready cannot miss bytes of a segment that has
// ended.
func (s *Spool) waitFor(r *http.Request, wait time.Duration, ready func(open uint64) bool) (open uint64) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for waited := false; ; waited = true {
		if waited {
			_ = pause(r.Context(), gather)
		}
		s.mu.Lock()
		grown, open, closed := s.grown, s.open, s.closed
		s.mu.Unlock()
		if ready(open) || closed || wait == 0 {
			return open
		}
		select {
		case <-grown:
		case <-timer.C:
			wait = 0
		case <-r.Context().Done():
			return open
		}
	}
}

// rangeOf returns the offset at which the range in a Range header begins. The range must be
// open-ended.
func rangeOf(text string) (int64, error) {
	from, ok := strings.CutPrefix(text, "bytes=")
	from, open := strings.CutSuffix(from, "-")
	n, err := strconv.ParseInt(from, 10, 64)
	if !ok || !open || err != nil || n < 0 {
		return 0, fmt.Errorf("range: %q is not a range such as bytes=100-", text)
	}
	return n, nil
}
