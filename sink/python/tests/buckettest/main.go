// Command buckettest is an S3 server for the tests of the Python package. It also writes datasets with
// package sink, as a worker does.
//
//	GET  /-/requests                 the requests since the last call, by method
//	POST /-/fault?kind=              none, away, denied or some (a quarter of the requests)
//	POST /-/write?to=&first=&groups=&size=&format=&fast=&merge=&seal=    one commit per group
//	POST /-/upload?from=&to=         copies the objects of a store to another store
//	POST /-/delete?from=&name=       deletes an object
//	POST /-/damage?from=&name=&at=   changes one byte of an object
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/sink/store"
	"github.com/rollout-rl/rollout/sink/store/storetest"
	"github.com/rollout-rl/rollout/tokenize"
)

type server struct {
	objects *storetest.Server
	proxy   *storetest.Proxy
	mu      sync.Mutex
	seen    map[string]int
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	what, ours := strings.CutPrefix(r.URL.Path, "/-/")
	if !ours {
		s.mu.Lock()
		name := r.Method
		if r.URL.Query().Has("list-type") {
			name = "LIST"
		}
		s.seen[name]++
		s.mu.Unlock()
		s.proxy.ServeHTTP(w, r)
		return
	}
	answer, err := s.do(r.Context(), what, r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_ = json.NewEncoder(w).Encode(answer) // the client has gone
}

func (s *server) do(ctx context.Context, what string, q url.Values) (any, error) {
	switch what {
	case "requests":
		s.mu.Lock()
		defer s.mu.Unlock()
		seen := s.seen
		s.seen = map[string]int{}
		return seen, nil
	case "fault":
		plans := map[string]func(*http.Request) storetest.Fault{
			"away": func(*http.Request) storetest.Fault {
				return storetest.Answer(http.StatusServiceUnavailable, "SlowDown")
			},
			"denied": func(*http.Request) storetest.Fault { return storetest.Answer(http.StatusForbidden, "AccessDenied") },
			"some":   storetest.Random(1, 0.25, storetest.Answer(http.StatusInternalServerError, "InternalError"), storetest.Drop, storetest.Slow),
		}
		s.proxy.Plan(plans[q.Get("kind")])
		return nil, nil
	case "write":
		return nil, write(ctx, q)
	}
	from, err := store.Open(ctx, q.Get("from"), store.Options{})
	if err != nil {
		return nil, err
	}
	switch what {
	case "upload":
		return nil, upload(ctx, from, q.Get("to"))
	case "delete":
		return nil, from.Delete(q.Get("name"))
	case "damage":
		body, err := from.Get(q.Get("name"))
		if err != nil {
			return nil, err
		}
		at, err := strconv.Atoi(q.Get("at"))
		if err == nil {
			body[(at+len(body))%len(body)] ^= 1
			err = from.Put(q.Get("name"), body)
		}
		return nil, err
	}
	return nil, fmt.Errorf("unknown request %q", what)
}

func upload(ctx context.Context, from store.Store, location string) error {
	to, err := store.Open(ctx, location, store.Options{})
	if err != nil {
		return err
	}
	for i, err := range from.List("", "") {
		var body []byte
		if err == nil {
			body, err = from.Get(i.Name)
		}
		if err == nil {
			err = to.Put(i.Name, body)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// write claims the dataset at a location, commits groups to it, and leaves it or seals it. Each seventh
// sample fails. The second of every three samples has two rows.
func write(ctx context.Context, q url.Values) error {
	dir, err := os.MkdirTemp("", "bucket-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // only test data
	objects, err := store.Open(ctx, q.Get("to"), store.Options{})
	if err != nil {
		return err
	}
	end, err := sink.ReadEnd(objects, sink.End{})
	if err != nil {
		return err
	}
	cfg := sink.Config{Store: objects, Epoch: end.Epoch + 1, Worker: "worker", CommitGroups: true, MergeAt: 1 << 20, VocabSize: sinktest.Vocab, RowGroupTokens: 2000}
	if q.Has("fast") { // many commits that do not wait for each other
		cfg.CommitGroups, cfg.MaxShardBytes, cfg.RowGroupTokens = false, 1, 1000
	}
	if q.Get("format") == "arrow" {
		cfg.Format = sink.Arrow
	}
	if q.Has("merge") {
		cfg.MergeAt = number(q, "merge")
	}
	d, err := sink.Create(dir, cfg)
	if err != nil {
		return err
	}
	run := make(chan error, 1)
	go func() { run <- d.Run(ctx) }()
	err = appendGroups(ctx, d, q)
	for merged := !q.Has("merge"); !merged && err == nil; time.Sleep(10 * time.Millisecond) {
		var log *sink.Log
		log, err = sink.ReadLogIn(objects, "", nil)
		merged = err == nil && slices.ContainsFunc(log.Commits, func(c sink.Commit) bool { return c.IsMerge() })
	}
	err = errors.Join(err, d.Close(ctx), <-run)
	if q.Has("seal") && err == nil {
		err = d.Seal()
	}
	return err
}

// appendGroups appends groups one after the other, or up to 64 at the same time.
func appendGroups(ctx context.Context, d *sink.Dataset, q url.Values) error {
	first, groups, size := number(q, "first"), number(q, "groups"), number(q, "size")
	slots := make(chan struct{}, 1)
	if q.Has("fast") {
		slots = make(chan struct{}, 64)
	}
	errs := make(chan error, groups*size)
	for g := first; g < first+groups; g++ {
		slots <- struct{}{}
		var group sync.WaitGroup
		for i, sample := range samplesOf(g, size, q.Has("fast")) {
			group.Add(1)
			go func() {
				if err := d.Append(ctx, sample, func(err error) { errs <- err; group.Done() }); err != nil {
					errs <- fmt.Errorf("sample %d: %w", i, err)
					group.Done()
				}
			}()
		}
		go func() { group.Wait(); <-slots }()
	}
	var err error
	for range groups * size {
		err = errors.Join(err, <-errs)
	}
	return err
}

func samplesOf(g, size int, long bool) (samples []*tokenize.Sample) {
	b := sinktest.NewBuilder(uint64(g))
	for i := range size {
		var s *tokenize.Sample
		switch {
		case long:
			s = b.Sample(b.Row(500, 600))
		case (g*size+i)%7 == 6:
			s = b.Failure(3)
		case i%3 == 1:
			s = b.Sample(b.Row(5, 30), b.Row(30, 20, 3, 1))
		default:
			s = b.Sample(b.Row(20, 30+g%7))
		}
		s.Key, s.TaskID, s.GroupID = fmt.Sprintf("%032x-%d", g, i), fmt.Sprint("t", g), fmt.Sprint("g", g)
		s.RolloutID, s.Index, s.GroupSize = s.Key+"/1", int32(i), int32(size)
		samples = append(samples, s)
	}
	return samples
}

// number returns a number in a query, or 0 if it is missing.
func number(q url.Values, name string) int {
	n, _ := strconv.Atoi(q.Get(name))
	return n
}

func main() {
	s := &server{objects: &storetest.Server{}, seen: map[string]int{}}
	s.objects.Create("bucket")
	s.proxy = &storetest.Proxy{Server: s.objects}
	listener := httptest.NewServer(s)
	defer listener.Close()
	fmt.Fprintln(os.Stdout, listener.URL)
	_, _ = io.Copy(io.Discard, os.Stdin) // the test closes standard input
}
