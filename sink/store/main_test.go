package store_test

import (
	"context"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"

	"github.com/rollout-rl/rollout/sink/store"
	"github.com/rollout-rl/rollout/sink/store/storetest"
)

func TestMain(m *testing.M) {
	storetest.Setenv()
	goleak.VerifyTestMain(m)
}

// serve starts a handler and returns the location of a prefix in its bucket.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return "s3://bucket/run?endpoint_override=" + server.URL
}

// newServer returns a server with a bucket, and a proxy before it.
func newServer() (*storetest.Server, *storetest.Proxy) {
	s := &storetest.Server{}
	s.Create("bucket")
	return s, &storetest.Proxy{Server: s}
}

func open(t *testing.T, location string, opts store.Options) store.Store {
	t.Helper()
	// Not t.Context: it ends before the cleanups, and some of them use the store.
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	s, err := store.Open(ctx, location, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// faults returns the faults that a store survives without an error.
func faults() []storetest.Fault {
	return []storetest.Fault{
		storetest.Answer(500, "InternalError"), storetest.Answer(503, "SlowDown"), storetest.Answer(409, "ConditionalRequestConflict"),
		storetest.Answer(400, "ExpiredToken"), storetest.Drop, storetest.Lose, storetest.Hang, storetest.Truncate, storetest.Slow,
	}
}

func wantBody(t *testing.T, s store.Store, name, want string) {
	t.Helper()
	got, err := s.Get(name)
	if err != nil || string(got) != want {
		t.Errorf("Get(%q) = %.50q, %v, want %.50q", name, got, err, want)
	}
	o, err := s.Open(name)
	if err != nil {
		t.Error(err)
		return
	}
	defer o.Close()
	read, err := io.ReadAll(io.NewSectionReader(o, 0, o.Size()))
	if err != nil || string(read) != want {
		t.Errorf("Open(%q) reads %.50q, %v, want %.50q", name, read, err, want)
	}
}

func list(t *testing.T, objects iter.Seq2[store.Info, error]) (names []string) {
	t.Helper()
	for info, err := range objects {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, info.Name)
	}
	return names
}
