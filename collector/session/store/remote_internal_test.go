package store

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// SetPatience sets how long a request is retried.
func (r *Remote) SetPatience(d time.Duration) { r.client.Patience = d }

// TestRemoteLimit proves that a file above the limit is an error, whether the tap states its size or not,
// and that a file of the largest size is read.
func TestRemoteLimit(t *testing.T) {
	t.Parallel()
	s, err := Open(Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	x := must(t, s)
	newTalk(1).add(t, x)
	seal(t, x)
	entries, err := s.Sealed("")
	if err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
	stated := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		s.Handler().ServeHTTP(rec, r)
		if stated {
			w.Header().Set("Content-Length", rec.Header().Get("Content-Length"))
		}
		half := rec.Body.Len() / 2
		_, _ = w.Write(rec.Body.Bytes()[:half])
		_ = http.NewResponseController(w).Flush() // so that net/http does not state the size
		_, _ = w.Write(rec.Body.Bytes()[half:])
	}))
	defer server.Close()
	r, err := OpenRemote(t.Context(), server.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.most != maxFileBytes || int64(int(r.most)) != r.most {
		t.Errorf("the limit is %d", r.most)
	}
	for _, stated = range []bool{true, false} {
		r.most = entries[0].Bytes
		if rec, err := r.Read(t.Context(), x.id); err != nil || len(rec.Calls) != 1 {
			t.Errorf("stated %t: %+v, %v", stated, rec, err)
		}
		r.most--
		if rec, err := r.Read(t.Context(), x.id); err == nil || !strings.Contains(err.Error(), "more than") {
			t.Errorf("stated %t: %+v, %v", stated, rec, err)
		}
	}
}
