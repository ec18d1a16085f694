package store_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/sink/store"
	"github.com/rollout-rl/rollout/sink/store/storetest"
)

// TestChanged tests that a reader notices that its object was replaced.
func TestChanged(t *testing.T) {
	t.Parallel()
	_, proxy := newServer()
	s := open(t, serve(t, proxy), store.Options{})
	if err := s.Put("card", []byte("old content")); err != nil {
		t.Fatal(err)
	}
	o, err := s.Open("card")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put("card", []byte("other words")); err != nil {
		t.Fatal(err)
	}
	for _, header := range []string{"", "If-Match"} { // a store can ignore If-Match
		proxy.Plan(func(r *http.Request) storetest.Fault {
			r.Header.Del(header)
			return nil
		})
		if n, err := o.ReadAt(make([]byte, 3), 0); n != 0 || !errors.Is(err, store.ErrChanged) {
			t.Errorf("ReadAt without %q = %d, %v, want ErrChanged", header, n, err)
		}
	}
}

// TestBrokenStore tests that a store that ignores ranges and a store that does not sort its lists are
// noticed.
func TestBrokenStore(t *testing.T) {
	t.Parallel()
	_, proxy := newServer()
	s := open(t, serve(t, proxy), store.Options{})
	if err := s.PutNew("a", []byte("0123456789")); err != nil {
		t.Fatal(err)
	}
	o, err := s.Open("a")
	if err != nil {
		t.Fatal(err)
	}
	proxy.Plan(func(r *http.Request) storetest.Fault {
		r.Header.Del("Range")
		return nil
	})
	if n, err := o.ReadAt(make([]byte, 3), 5); n != 0 || !errors.Is(err, store.ErrContent) {
		t.Errorf("ReadAt without ranges = %d, %v, want ErrContent", n, err)
	}
	// The end of the context must not hide the last answer.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if s, err = store.Open(ctx, serve(t, proxy), store.Options{}); err != nil {
		t.Fatal(err)
	}
	tries := 0
	proxy.Plan(func(*http.Request) storetest.Fault {
		if tries++; tries == 1 {
			return storetest.Answer(503, "SlowDown")
		}
		return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			io.WriteString(w, "<ListBucketResult><Contents><Key>run/b</Key></Contents><Contents><Key>run/a</Key></Contents></ListBucketResult>")
		}
	})
	for info, err := range s.List("", "") {
		cancel()
		if info.Name != "b" && !errors.Is(err, store.ErrContent) {
			t.Errorf("List yields %q, %v, want b and ErrContent", info.Name, err)
		}
	}
}

// TestPutFileWithWrongSum tests that a file with other content than its digest is not stored and is kept.
func TestPutFileWithWrongSum(t *testing.T) {
	t.Parallel()
	server, _ := newServer()
	s := open(t, serve(t, server), store.Options{})
	file := filepath.Join(t.TempDir(), "part")
	if err := os.WriteFile(file, []byte("damaged"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := s.PutFile("data/part", file, sha256.Sum256([]byte("good"))); !errors.Is(err, store.ErrContent) {
		t.Errorf("PutFile = %v, want ErrContent", err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	if keys := server.Keys("bucket"); len(keys) > 0 {
		t.Errorf("the bucket has %q", keys)
	}
}

// TestPutFileCutShort tests that a store that keeps only a part of a file is noticed.
func TestPutFileCutShort(t *testing.T) {
	t.Parallel()
	_, proxy := newServer()
	s := open(t, serve(t, proxy), store.Options{})
	proxy.Plan(storetest.First(1, http.MethodPut, func(w http.ResponseWriter, r *http.Request, server http.Handler) {
		r.Body = io.NopCloser(io.LimitReader(r.Body, 3))
		r.Header.Del("X-Amz-Content-Sha256")
		server.ServeHTTP(w, r)
	}))
	file := filepath.Join(t.TempDir(), "part")
	if err := os.WriteFile(file, []byte("whole"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := s.PutFile("data/part", file, sha256.Sum256([]byte("whole"))); !errors.Is(err, store.ErrContent) {
		t.Errorf("PutFile = %v, want ErrContent", err)
	}
}

// TestRequests tests the counts of requests, and that an entry costs one request.
func TestRequests(t *testing.T) {
	t.Parallel()
	server, _ := newServer()
	var n store.Requests
	s := open(t, serve(t, server), store.Options{Requests: &n})
	if n.List.Load() != 1 || n.Other.Load() != 1 {
		t.Errorf("Open made %d lists and %d lookups, want 1 and 1", n.List.Load(), n.Other.Load())
	}
	if err := s.PutNew("a", []byte("12345")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get("a"); err != nil {
		t.Fatal(err)
	}
	wantBody(t, s, "a", "12345")
	if err := s.Delete("a"); err != nil {
		t.Fatal(err)
	}
	got := []int64{n.Put.Load(), n.Get.Load(), n.Head.Load(), n.List.Load(), n.Delete.Load(), n.Other.Load()}
	if want := []int64{1, 3, 1, 1, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("counts = %d, want %d", got, want)
	}
}
