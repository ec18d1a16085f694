package sink_test

import (
	"context"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/sink/store"
	"github.com/rollout-rl/rollout/sink/store/storetest"
)

// A testBucket is a bucket of a server in this process.
type testBucket struct {
	store.Store
	requests *store.Requests
	server   *storetest.Server
	proxy    *storetest.Proxy
	location string
}

func newBucket(t *testing.T) *testBucket {
	t.Helper()
	b := &testBucket{server: &storetest.Server{}}
	b.server.Create("bucket")
	b.proxy = &storetest.Proxy{Server: b.server}
	listener := httptest.NewServer(b.proxy)
	t.Cleanup(listener.Close)
	b.location = "s3://bucket/run?endpoint_override=" + listener.URL
	return b.client(t)
}

// client returns the bucket with another client.
func (b *testBucket) client(t *testing.T) *testBucket {
	t.Helper()
	c, _ := b.process(t, sink.OS())
	return c
}

// process returns the bucket with the client of a process with local files, and a function that
// kills the process.
func (b *testBucket) process(t *testing.T, fs sink.FS) (c *testBucket, kill context.CancelCauseFunc) {
	t.Helper()
	one := *b
	c = &one
	c.requests = &store.Requests{}
	ctx, kill := context.WithCancelCause(context.Background()) // not t.Context: cleanups use the store
	t.Cleanup(func() { kill(nil) })
	var err error
	c.Store, err = store.Open(ctx, b.location, store.Options{Requests: c.requests, FS: fs, Timeout: time.Second})
	must(t, err)
	return c, kill
}

// upload copies the committed files of a folder. If merges have replaced entries, the bucket lacks
// these entries.
func (b *testBucket) upload(t *testing.T, dir string) {
	t.Helper()
	folder := store.Folder(sink.OS(), dir)
	for i := range each(t, folder.List("", "")) {
		if strings.HasPrefix(i.Name, "wal/") || strings.HasPrefix(i.Name, "replaced/") {
			continue
		}
		body, err := folder.Get(i.Name)
		must(t, err)
		must(t, b.Put(i.Name, body))
	}
}

// files returns the objects as files.
func (b *testBucket) files(t *testing.T) fs.FS {
	t.Helper()
	files := fstest.MapFS{}
	for _, key := range b.server.Keys("bucket") {
		name := strings.TrimPrefix(key, "run/")
		files[name] = &fstest.MapFile{Data: b.get(t, name), Mode: 0o666}
	}
	return files
}

func (b *testBucket) readLog(t *testing.T) *sink.Log {
	t.Helper()
	log, err := sink.ReadLogIn(b, "", nil)
	must(t, err)
	return log
}

func (b *testBucket) verify(t *testing.T) sink.VerifyReport {
	t.Helper()
	r, err := sink.Verify(t.Context(), "", sink.VerifyOptions{VocabSize: sinktest.Vocab, Store: b})
	if err != nil || r.ProblemCount > 0 {
		t.Fatalf("Verify: %v, %v", err, r.Problems)
	}
	return r
}

// next returns the Config of the next process that claims the bucket.
func (b *testBucket) next(t *testing.T, cfg sink.Config) sink.Config {
	t.Helper()
	cfg.Store, cfg.Epoch, cfg.Worker = b, 1, "worker"
	if claim := b.client(t).readLog(t).Claim(); claim != nil {
		cfg.Epoch = claim.Epoch + 1
	}
	return cfg
}

// bucketFaults are the faults that a store survives.
func bucketFaults(seed uint64, share float64) func(*http.Request) storetest.Fault {
	return storetest.Random(seed, share, storetest.Answer(500, "InternalError"), storetest.Answer(503, "SlowDown"),
		storetest.Answer(409, "ConditionalRequestConflict"), storetest.Drop, storetest.Lose, storetest.Truncate)
}

func (b *testBucket) get(t *testing.T, name string) []byte {
	t.Helper()
	body, err := b.Get(name)
	must(t, err)
	return body
}

// reads counts the requests that did not change the bucket.
func (b *testBucket) reads() int64 {
	return b.requests.Get.Load() + b.requests.List.Load() + b.requests.Head.Load()
}
