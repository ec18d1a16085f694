package store_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/sink/store"
	"github.com/rollout-rl/rollout/sink/store/storetest"
)

// TestWritersThroughFaults tests a log with several writers, each behind a proxy of its own that spoils
// every third request. Each name has exactly one winner, and the winner knows it.
func TestWritersThroughFaults(t *testing.T) {
	t.Parallel()
	const writers, names = 6, 20
	server, _ := newServer()
	won := make([][]string, writers)
	var wg sync.WaitGroup
	for i := range writers {
		proxy := &storetest.Proxy{Server: server}
		s := open(t, serve(t, proxy), store.Options{Timeout: time.Second})
		proxy.Plan(storetest.Random(uint64(i), 0.33, faults()...))
		wg.Go(func() {
			for n := range names {
				name := fmt.Sprintf("log/%03d", n)
				err := s.PutNew(name, fmt.Appendf(nil, "writer %d", i))
				if err == nil {
					won[i] = append(won[i], name)
				} else if !errors.Is(err, fs.ErrExist) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if total := len(slices.Concat(won...)); total != names {
		t.Errorf("%d names have %d winners: %q", names, total, won)
	}
	direct := open(t, serve(t, server), store.Options{})
	for i, names := range won {
		for _, name := range names {
			wantBody(t, direct, name, fmt.Sprintf("writer %d", i))
		}
	}
}

// TestRetries tests that each operation survives each fault, at each of its requests.
func TestRetries(t *testing.T) {
	t.Parallel()
	body := bytes.Repeat([]byte("0123456789"), 1000)
	operations := map[string]func(store.Store) error{ // after the methods of their requests
		"PUT PutNew":           func(s store.Store) error { return s.PutNew("new", body) },
		"PUT GET PutNew again": func(s store.Store) error { return s.PutNew("old", body) },
		"PUT GET PutNew taken": func(s store.Store) error {
			if err := s.PutNew("old", []byte("other")); !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("%w, want fs.ErrExist", err)
			}
			return nil
		},
		"PUT Put": func(s store.Store) error { return s.Put("old", body) },
		"PUT HEAD PutFile": func(s store.Store) error {
			file := filepath.Join(t.TempDir(), "part")
			return errors.Join(os.WriteFile(file, body, 0o666), s.PutFile("new", file, sha256.Sum256(body)))
		},
		"GET Get": func(s store.Store) error {
			got, err := s.Get("old")
			if err == nil && !bytes.Equal(got, body) {
				err = fmt.Errorf("got %d bytes", len(got))
			}
			return err
		},
		"HEAD GET ReadAt": func(s store.Store) error {
			o, err := s.Open("old")
			if err != nil {
				return err
			}
			got, err := io.ReadAll(io.NewSectionReader(o, 10, 5000))
			if err == nil && !bytes.Equal(got, body[10:5010]) {
				err = fmt.Errorf("got %d bytes", len(got))
			}
			return err
		},
		"GET List": func(s store.Store) error {
			var names []string
			for info, err := range s.List("", "") {
				if err != nil {
					return err
				}
				names = append(names, info.Name)
			}
			if !slices.Equal(names, []string{"a", "b", "c", "d", "old"}) {
				return fmt.Errorf("names %q", names)
			}
			return nil
		},
		"DELETE Delete": func(s store.Store) error { return s.Delete("old") },
	}
	var wg sync.WaitGroup // all at once, because they only wait
	for op, run := range operations {
		for _, method := range []string{http.MethodPut, http.MethodGet, http.MethodHead, http.MethodDelete} {
			if !strings.Contains(op, method+" ") {
				continue
			}
			for i, fault := range faults() {
				server, proxy := newServer()
				server.PageKeys = 2
				s := open(t, serve(t, proxy), store.Options{Timeout: time.Second})
				wg.Go(func() {
					for _, name := range []string{"a", "b", "c", "d", "old"} {
						if err := s.Put(name, body); err != nil {
							t.Error(err)
						}
					}
					proxy.Plan(storetest.First(2, method, fault))
					if err := run(s); err != nil {
						t.Errorf("%s: %s spoiled by fault %d: %v", op, method, i, err)
					}
				})
			}
		}
	}
	wg.Wait()
}

// TestStaleList tests that a list that omits new objects does not let PutNew replace one.
func TestStaleList(t *testing.T) {
	t.Parallel()
	_, proxy := newServer()
	s := open(t, serve(t, proxy), store.Options{})
	stale := storetest.Stale()
	proxy.Plan(func(*http.Request) storetest.Fault { return stale })
	list(t, s.List("log/", ""))
	if err := s.PutNew("log/1", []byte("one")); err != nil {
		t.Fatal(err)
	}
	if got := list(t, s.List("log/", "")); len(got) > 0 {
		t.Fatalf("the list is not stale: %q", got)
	}
	if err := s.PutNew("log/1", []byte("two")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("PutNew = %v, want ErrExist", err)
	}
}

// TestVanishing tests that a 404 after a 412 does not end PutNew: it proves nothing about the winner.
func TestVanishing(t *testing.T) {
	t.Parallel()
	_, proxy := newServer()
	s := open(t, serve(t, proxy), store.Options{})
	if err := s.PutNew("a", []byte("one")); err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]error{"one": nil, "two": fs.ErrExist} {
		proxy.Plan(storetest.First(3, http.MethodGet, storetest.Answer(404, "NoSuchKey")))
		if err := s.PutNew("a", []byte(body)); !errors.Is(err, want) {
			t.Errorf("PutNew(%q) = %v, want %v", body, err, want)
		}
	}
}

// TestAway tests that an operation waits for a store that is away, that the log has one line when it is
// away and one when it is back, and that the end of the context ends the wait.
func TestAway(t *testing.T) {
	t.Parallel()
	_, proxy := newServer()
	var log syncBuffer
	var n store.Requests
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	s, err := store.Open(ctx, serve(t, proxy), store.Options{Log: slog.New(slog.NewTextHandler(&log, nil)), Requests: &n})
	if err != nil {
		t.Fatal(err)
	}
	away := func(*http.Request) storetest.Fault { return storetest.Answer(503, "SlowDown") }
	proxy.Plan(away)
	const operations = 20
	var wg sync.WaitGroup
	for i := range operations {
		wg.Go(func() {
			if err := s.PutNew(fmt.Sprint(i), nil); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, func() bool { return log.String() != "" })
	logged := n.Put.Load()
	eventually(t, func() bool { return n.Put.Load() > logged+2*operations }) // these tries are not logged
	proxy.Plan(nil)
	wg.Wait()
	if got := log.String(); strings.Count(got, "\n") != 2 || strings.Count(got, "is back") != 1 || !strings.Contains(got, "503 SlowDown") {
		t.Errorf("the log is %q, want one line for away and one for back", got)
	}
	proxy.Plan(away)
	why := errors.New("stopped for the test")
	time.AfterFunc(time.Second, func() { cancel(why) })
	if err := s.PutNew("x", nil); !errors.Is(err, why) || !strings.Contains(err.Error(), "503 SlowDown") {
		t.Errorf("PutNew = %v, want the cause and the last answer", err)
	}
	for _, err := range s.List("", "") {
		if !errors.Is(err, why) {
			t.Errorf("List yields %v, want the cause", err)
		}
	}
}

// TestFull tests that an operation waits for room in the store, and that the log does not call the store away.
func TestFull(t *testing.T) {
	t.Parallel()
	_, proxy := newServer()
	var log syncBuffer
	s := open(t, serve(t, proxy), store.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	proxy.Plan(storetest.First(1<<30, http.MethodPut, storetest.Answer(507, "XMinioStorageFull")))
	put := make(chan error, 1)
	go func() { put <- s.Put("a", nil) }()
	eventually(t, func() bool { return log.String() != "" })
	proxy.Plan(nil)
	if err := <-put; err != nil {
		t.Error(err)
	}
	got := log.String()
	for _, want := range []string{`msg="waiting for room in the store"`, "the store is full (507 XMinioStorageFull): free space in it", `msg="the store has room again"`} {
		if !strings.Contains(got, want) {
			t.Errorf("the log is %q, want %q in it", got, want)
		}
	}
	if strings.Contains(got, "away") {
		t.Errorf("the log is %q, want no line about a store that is away", got)
	}
}

// TestOpenOverloaded tests that Open waits for a store that answers, but not longer than Options.GiveUp.
func TestOpenOverloaded(t *testing.T) {
	t.Parallel()
	for _, fault := range []storetest.Fault{storetest.Answer(503, "SlowDown"), storetest.Answer(429, "TooManyRequests")} {
		_, proxy := newServer()
		location := serve(t, proxy)
		proxy.Plan(storetest.First(5, http.MethodGet, fault)) // more than the 4 tries for a wrong location
		open(t, location, store.Options{})
		proxy.Plan(storetest.First(1<<30, http.MethodGet, fault))
		if _, err := store.Open(t.Context(), location, store.Options{GiveUp: time.Millisecond}); !errors.Is(err, store.ErrUnreachable) {
			t.Errorf("Open = %v, want ErrUnreachable", err)
		}
	}
}

// TestGiveUp tests that Options.GiveUp ends operations, and that they do not wait for a full store.
func TestGiveUp(t *testing.T) {
	t.Parallel()
	_, proxy := newServer()
	location := serve(t, proxy)
	patient, s := open(t, location, store.Options{GiveUp: time.Hour}), open(t, location, store.Options{GiveUp: 200 * time.Millisecond})
	proxy.Plan(storetest.First(3, http.MethodPut, storetest.Answer(503, "SlowDown")))
	if err := patient.Put("a", nil); err != nil {
		t.Errorf("Put = %v after 3 failed tries", err)
	}
	proxy.Plan(func(*http.Request) storetest.Fault { return storetest.Answer(503, "SlowDown") })
	if err := s.Put("a", nil); !errors.Is(err, store.ErrUnreachable) {
		t.Errorf("Put = %v, want ErrUnreachable", err)
	}
	if err := store.Probe(s); !errors.Is(err, store.ErrUnreachable) {
		t.Errorf("Probe = %v, want ErrUnreachable", err)
	}
	proxy.Plan(func(*http.Request) storetest.Fault { return storetest.Answer(507, "Full") })
	if err := patient.Put("a", nil); !errors.Is(err, store.ErrFull) {
		t.Errorf("Put = %v, want ErrFull", err)
	}
}

// A syncBuffer is a buffer that several goroutines can use.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not happen within a minute")
		}
	}
}
