package main

import (
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink/store/storetest"
)

// bytesIn returns the size of all files below a folder.
func bytesIn(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error { // files come and go
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}

// While the store is away, the spool stays within its bound, no sample starts after 30 s, and the run completes
// when the store is back. ROLLOUT_AWAY is the time for which it is away. The bound follows from the settings:
// the samples of shard_age, of the 30 s in which samples still start, and those in flight. They are in the
// write-ahead log, and again in a shard.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits until a worker starts no more samples")
	}
	const (
		inFlight, perSample = 16, 6 << 10 // bytes of a sample in the write-ahead log, at most
		latency, shardAge   = 500 * time.Millisecond, 5 * time.Second
		starts, restarts    = 30 * time.Second, 2 * time.Second // a worker starts samples for 30 s; the store is asked every 2 s
	)
	away, bin, tasks := 40*time.Second, "rollout", 168 // each of 8 samples: more than start in 30 s
	if text := os.Getenv("ROLLOUT_AWAY"); text != "" {
		away = must(time.ParseDuration(text))(t)
		bin = must(buildProgram(filepath.Join(t.TempDir(), "rollout")))(t)
		tasks = 400 // more than the bound, if the worker collected them all while the store is away
	}
	bound := 2 * perSample * inFlight * (int64((shardAge+starts)/latency) + 1)
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: lettasim.Script{Calls: lettasim.Range{Min: 1, Max: 1}, Tokens: lettasim.Range{Min: 500, Max: 600}}, Latency: latencyOf(t, latency.String())})
	sends := newSendLog(sim)
	spool, args := collectArgs(t, sim, serveHandler(t, sim, sends), tasks, "--samples", "8", "--max-in-flight", strconv.Itoa(inFlight), "--preflight", "connect",
		"-c", writeFile(t, "run.yaml", []byte("server: {adaptive: false}\noutput: {shard_age: "+shardAge.String()+"}\n")))
	b := newBucket(t)
	work := b.plan(t, 1, args...)
	p := startProgram(t, bin, nil, work...)
	waitFor(t, "commits", func() bool { return len(keysOf(b.logs(t)...)) > 0 || !p.alive() })

	b.proxy.Plan(func(*http.Request) storetest.Fault { return storetest.Drop })
	began, before := time.Now(), bytesIn(spool)
	var most, atStop int64
	last := 0
	for tick := time.NewTicker(100 * time.Millisecond); time.Since(began) < away && p.alive(); <-tick.C {
		most = max(most, bytesIn(spool))
		if time.Since(began) < starts+restarts {
			last, atStop = sends.count(), most
		} else if n := sends.count(); n != last {
			t.Fatalf("%d samples started %v after the store went away", n-last, time.Since(began).Round(time.Second))
		}
	}
	committed := len(keysOf(b.logs(t)...))
	b.proxy.Plan(nil)
	p.ends(t, 5*time.Minute, exit.OK)
	if most > bound {
		t.Errorf("the spool had %d bytes, more than its bound of %d", most, bound)
	}
	t.Logf("the store was away for %v: the spool had %d bytes before, %d after %v and at most %d of %d; %d of %d samples were committed and %d answered when it came back",
		away, before, atStop, starts+restarts, most, bound, committed, 8*tasks, last)
	contains(t, p.said(), "the store is away; waiting for it", "the store is back")
	if n := strings.Count(p.said(), "the store is away"); n > 2 {
		t.Errorf("%d lines about the store:\n%s", n, p.said())
	}
	mustRun(t, exit.OK, "verify", b.at)
	got := readLogs(t, b.logs(t)...)
	if keys := got.once(t); len(keys) != 8*tasks || sends.count() != 8*tasks {
		t.Errorf("%d samples, %d sends, want %d", len(keys), sends.count(), 8*tasks)
	}
	if left := agentsLeft(t, sim); left != nil {
		t.Errorf("agents are left: %q", left)
	}
}

// While the store or its quota is full, the run waits and says why. It completes when there is room.
func TestStoreFull(t *testing.T) {
	t.Parallel()
	for _, full := range []struct {
		status int
		code   string
	}{{http.StatusForbidden, "QuotaExceeded"}, {http.StatusInsufficientStorage, "XMinioStorageFull"}} {
		t.Run(full.code, func(t *testing.T) {
			t.Parallel()
			sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript(), Latency: latencyOf(t, "20ms")})
			_, args := collectArgs(t, sim, serveSim(t, sim), 10, "--samples", "2", "--preflight", "connect")
			b := newBucket(t)
			work := b.plan(t, 3, args...)
			b.proxy.Plan(func(r *http.Request) storetest.Fault {
				if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/data/") {
					return storetest.Answer(full.status, full.code)
				}
				return nil
			})
			p := startProgram(t, "rollout", nil, work...)
			why := "the store is full (" + strconv.Itoa(full.status) + " " + full.code + "): delete objects, or raise the quota"
			waitFor(t, why, func() bool { return strings.Contains(p.said(), why) || !p.alive() })
			b.proxy.Plan(nil)
			p.ends(t, time.Minute, exit.OK)
			contains(t, p.said(), why)
			contains(t, mustRun(t, exit.OK, "verify", b.at).stdout, "; 20 samples, 0 of them failed; ")
			readLogs(t, b.logs(t)...).once(t)
		})
	}
}
