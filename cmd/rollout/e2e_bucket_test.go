package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/fleet"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/store"
	"github.com/rollout-rl/rollout/sink/store/storetest"
)

// A bucket is a bucket of a server in this process, behind a proxy with faults. The suites of runs in a
// folder also run on a fleet in it.
type bucket struct {
	proxy *storetest.Proxy
	at    string      // location of the fleet, through the proxy
	store store.Store // the same, for the test: it uses no proxy
}

func newBucket(t *testing.T) *bucket {
	t.Helper()
	server := &storetest.Server{}
	server.Create("bucket")
	b := &bucket{proxy: &storetest.Proxy{Server: server}}
	location := func(handler http.Handler) string {
		return "s3://bucket/run1?region=eu-north-1&endpoint_override=" + serve(t, &http.Server{Handler: handler})
	}
	b.at = location(b.proxy)
	ctx, stop := context.WithCancel(context.Background()) // not t.Context: cleanups use the store
	t.Cleanup(stop)
	b.store = must(store.Open(ctx, location(server), store.Options{}))(t)
	return b
}

// plan plans a fleet with the arguments of a collect. It returns the arguments of a worker whose spool is the
// folder of that collect.
func (b *bucket) plan(t *testing.T, partitions int, collect ...string) (work []string) {
	t.Helper()
	args := slices.Clone(collect)
	out := slices.Index(args, "--out") + 1
	spool := args[out]
	args[0], args[out] = "plan", b.at
	args = slices.DeleteFunc(args, func(arg string) bool { return arg == "--resume" || arg == "--quiet" })
	mustRun(t, exit.OK, append(args, "--partitions", fmt.Sprint(partitions))...)
	return []string{"work", b.at, "--spool", spool}
}

// work runs n workers with own spools until the fleet is complete.
func (b *bucket) work(t *testing.T, n int, args ...string) {
	t.Helper()
	var workers sync.WaitGroup
	spool := slices.Index(args, "--spool") + 1
	for i := range n {
		own := slices.Clone(args)
		own[spool] = fmt.Sprintf("%s-%d", own[spool], i)
		workers.Go(func() {
			if r := invoke(t.Context(), append(own, "--quiet")...); r.code != exit.OK {
				t.Errorf("worker %d: exit code %d\n%s%s", i, r.code, r.stdout, r.stderr)
			}
		})
	}
	workers.Wait()
}

// logs reads the logs of all partitions that have tasks.
func (b *bucket) logs(t *testing.T) (logs []*sink.Log) {
	t.Helper()
	for p, of := range must(fleet.Read(b.store))(t).Partitions {
		if of.Tasks > 0 {
			logs = append(logs, must(sink.ReadLogIn(fleet.Dataset(b.store, p), "", nil))(t))
		}
	}
	return logs
}

// names returns the names of all objects.
func (b *bucket) names(t *testing.T) (names []string) {
	t.Helper()
	for info := range each(t, b.store.List("", "")) {
		names = append(names, info.Name)
	}
	return names
}

// leave hands the partitions of all workers over, as a minute without a heartbeat does.
func (b *bucket) leave(t *testing.T) {
	t.Helper()
	for p := range must(fleet.Read(b.store))(t).Partitions {
		end := must(sink.ReadEnd(fleet.Dataset(b.store, p), sink.End{}))(t)
		if end.Worker == "" || end.Sealed {
			continue
		}
		name := "workers/" + end.Worker + ".json"
		h := fleet.Heartbeat{Claims: map[int]fleet.Claim{}}
		noError(t, json.Unmarshal(must(b.store.Get(name))(t), &h))
		h.Claims[p] = fleet.Claim{Epoch: end.Epoch, State: "left"}
		noError(t, b.store.Put(name, must(json.Marshal(h))(t)))
	}
}

// copyTo copies all objects to another store.
func (b *bucket) copyTo(t *testing.T, to store.Store) {
	t.Helper()
	for _, name := range b.names(t) {
		noError(t, to.Put(name, must(b.store.Get(name))(t)))
	}
}

// partitionOf returns the partition to which an object of a fleet belongs, or "".
func partitionOf(name string) string {
	switch parts := strings.Split(name, "/"); parts[0] {
	case "partitions":
		return parts[1]
	case "tasks":
		return strings.TrimSuffix(path.Base(name), ".jsonl.zst")
	}
	return ""
}
