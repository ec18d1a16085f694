package sink_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/store/storetest"
	"github.com/rollout-rl/rollout/tokenize"
)

// TestBucketKill kills the process at each request, before or after the server has handled it, and
// at each operation on a local file. Another process then continues, on the same machine with the
// write-ahead log or on another machine without it. In the end each sample is in the dataset once,
// and nothing else.
func TestBucketKill(t *testing.T) {
	t.Parallel()
	for _, tt := range []killTest{
		{"commits", sink.Config{MaxShardBytes: 5000}, faultSamples},
		{"groups", sink.Config{CommitGroups: true, MergeAt: 2}, cutGroups},
	} {
		probe := newBucket(t)
		var requests atomic.Int64
		disk := faulty(newPowerCut("run", 0), -1, nil)
		p, _ := probe.process(t, disk)
		cfg := p.next(t, tt.cfg)
		probe.proxy.Plan(func(*http.Request) storetest.Fault { requests.Add(1); return nil })
		_, err := live(t, disk, cfg, tt.lines(), map[attemptID]bool{})
		must(t, err)
		t.Logf("%s: %d requests, %d local operations", tt.name, requests.Load(), len(disk.Ops()))
		for _, elsewhere := range []bool{false, true} {
			for at := range int(requests.Load()) {
				for handled, fault := range map[bool]storetest.Fault{false: storetest.Drop, true: storetest.Lose} {
					t.Run(fmt.Sprintf("%s/elsewhere=%t/request=%d/handled=%t", tt.name, elsewhere, at, handled), func(t *testing.T) {
						t.Parallel()
						tt.kill(t, elsewhere, at, fault, -1)
					})
				}
			}
			for at, op := range disk.Ops() {
				if tt.cfg.CommitGroups && at%5 > 0 {
					continue
				}
				t.Run(fmt.Sprintf("%s/elsewhere=%t/%d-%s", tt.name, elsewhere, at, op), func(t *testing.T) {
					t.Parallel()
					tt.kill(t, elsewhere, -1, nil, at)
				})
			}
		}
	}
}

type killTest struct {
	name  string
	cfg   sink.Config
	lines func() [3][]*tokenize.Sample
}

// errKilled is the error of all operations of a killed process.
var errKilled = &fs.PathError{Op: "killed", Path: "run", Err: syscall.EIO}

func (tt *killTest) kill(t *testing.T, elsewhere bool, request int, fault storetest.Fault, op int) {
	t.Helper()
	b := newBucket(t)
	disk := newPowerCut("run", 0)
	local := faulty(disk, op, errKilled)
	local.dead = true
	p, kill := b.process(t, local)
	config := p.next(t, tt.cfg)
	n := 0
	b.proxy.Plan(func(*http.Request) storetest.Fault {
		if n++; n-1 != request {
			return nil
		}
		local.Kill(errKilled)
		kill(errKilled)
		return fault
	})
	lines, durable := tt.lines(), map[attemptID]bool{}
	done, err := live(t, local, config, lines, durable)
	if err != nil && !errors.Is(err, errKilled) {
		t.Errorf("%v does not wrap its cause", err)
	}
	kill(errKilled)
	b.proxy.Plan(nil)
	disk.Kill()
	committed := b.attempts(t, newPowerCut("run", 0))
	for id, err := range done {
		if err == nil && committed[id] != 1 {
			t.Errorf("%v was reported as committed and is not in the log", id)
		}
	}
	if elsewhere {
		disk, durable = newPowerCut("run", 0), map[attemptID]bool{}
	}
	p, _ = b.process(t, disk)
	if _, err := sink.Create("run", withFS(p.next(t, tt.cfg), disk)); err != nil {
		t.Fatalf("recovery: %v", err)
	}
	found := b.attempts(t, disk)
	for id := range durable {
		if found[id] != 1 {
			t.Errorf("%v was durable and is lost", id)
		}
	}
	for id := range found {
		durable[id] = true
	}
	disk.Kill()
	if _, err := live(t, disk, p.next(t, tt.cfg), lines, durable); err != nil {
		t.Fatalf("the process that continues: %v", err)
	}
	want := tt.lines()
	compareLog(t, b.readLog(t), slices.Concat(want[:]...))
	if r := b.verify(t); len(r.Orphans) > 0 && !tt.cfg.CommitGroups { // a merge that Close has stopped leaves its shards
		t.Errorf("orphans: %q", r.Orphans)
	}
}

// attempts counts the attempts in the log and in the write-ahead log. None must be there twice.
func (b *testBucket) attempts(t *testing.T, disk *powerCut) map[attemptID]int {
	t.Helper()
	log, err := sink.ReadLogIn(b, dump(t, disk), nil)
	must(t, err)
	n := map[attemptID]int{}
	for _, c := range log.Commits {
		for _, s := range c.Samples {
			n[attemptID{s.Key, s.Attempt}]++
		}
	}
	for w := range each(t, log.Waiting()) {
		n[attemptID{w.Key, w.Attempt}]++
	}
	for id, times := range n {
		if times > 1 {
			t.Errorf("%v is %d times in the dataset", id, times)
		}
	}
	return n
}

// TestMergeBucketKill kills a process at each request of its merges.
func TestMergeBucketKill(t *testing.T) {
	t.Parallel()
	// merge makes merges and ends at a request. It returns the number of requests.
	merge := func(t *testing.T, at int, fault storetest.Fault) int {
		t.Helper()
		b, dir := newBucket(t), t.TempDir()
		cfg := b.next(t, sink.Config{MergeAt: 2})
		cfg.Epoch = 0
		smallCommits(t, dir, cfg, 4, 9)
		want := linesOf(t, b.readLog(t))
		p, kill := b.process(t, sink.OS())
		d := open(t, dir, p.next(t, cfg))
		n := 0
		b.proxy.Plan(func(*http.Request) storetest.Fault {
			if n++; n-1 != at {
				return nil
			}
			kill(errKilled)
			return fault
		})
		if made, err := d.MergeAll(t.Context()); err != nil && !strings.Contains(err.Error(), "killed run") || at < 0 && made < 2 {
			t.Errorf("%d merges, %v", made, err)
		}
		b.proxy.Plan(nil)
		for range 2 {
			if got := linesOf(t, b.readLog(t)); !slices.Equal(got, want) {
				t.Errorf("%d lines, want %d", len(got), len(want))
			}
			d := open(t, dir, b.next(t, cfg))
			if _, err := d.MergeAll(t.Context()); err != nil {
				t.Error(err)
			}
			if r := b.verify(t); len(r.Orphans) > 0 {
				t.Errorf("orphans: %q", r.Orphans)
			}
		}
		return n
	}
	requests := merge(t, -1, nil)
	t.Logf("%d requests", requests)
	for at := range requests {
		for handled, fault := range map[bool]storetest.Fault{false: storetest.Drop, true: storetest.Lose} {
			t.Run(fmt.Sprintf("request=%d/handled=%t", at, handled), func(t *testing.T) {
				t.Parallel()
				merge(t, at, fault)
			})
		}
	}
}
