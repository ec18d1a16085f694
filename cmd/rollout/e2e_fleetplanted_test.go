package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink/store/storetest"
)

// Two workers claim the same partition at the same time. With a store that ignores conditions after the
// probe, each of them overwrites the entries of the other, and the check of the fleet finds it.
func TestFleetBlindOverwrite(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the short tests run without Python")
	}
	for _, blind := range []bool{false, true} {
		t.Run(fmt.Sprint(blind), func(t *testing.T) {
			t.Parallel()
			f := newPlantedFleet(t)
			claim, commit := newTurns(), newTurns() // the second worker claims last, and commits first
			for i := range 2 {
				at, proxy := f.connect("workers")
				proxy.Plan(func(r *http.Request) storetest.Fault {
					switch {
					case r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/_commits/"):
						return nil
					case strings.HasSuffix(r.URL.Path, "1.json"):
						return claim.take(i == 0, blind)
					case strings.HasSuffix(r.URL.Path, "2.json") && blind:
						return commit.take(i == 1, blind)
					case blind:
						return unconditional
					}
					return nil
				})
				f.work(at)
			}
			for _, w := range f.workers {
				w.ends(t, 2*time.Minute, exit.OK)
			}
			if blind {
				f.isBroken("from a worker that no longer owned the log")
			} else {
				checkFleet(t, f.at, f.samples)
			}
		})
	}
}

// If the store loses a shard and the worker does not notice, the check of the fleet finds an entry
// that was written before its shard. The worker notices unless the store also lies when it is asked.
func TestFleetCommitBeforeUpload(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the short tests run without Python")
	}
	for _, lies := range []bool{false, true} {
		t.Run(fmt.Sprint(lies), func(t *testing.T) {
			t.Parallel()
			f := newPlantedFleet(t)
			elsewhere, lost := &storetest.Server{}, 0
			elsewhere.Create("bucket")
			at, proxy := f.connect("workers")
			proxy.Plan(func(r *http.Request) storetest.Fault {
				if !strings.Contains(r.URL.Path, "/data/") || !lies && (r.Method != http.MethodPut || lost > 0) {
					return nil
				}
				lost++
				return func(w http.ResponseWriter, r *http.Request, _ http.Handler) { elsewhere.ServeHTTP(w, r) }
			})
			f.work(at)
			f.workers[0].ends(t, 2*time.Minute, exit.OK)
			if lost == 0 {
				t.Error("no shard was lost")
			}
			if lies {
				f.isBroken("the file is missing")
			} else {
				checkFleet(t, f.at, f.samples)
			}
		})
	}
}

// A plantedFleet is a fleet of one partition in a bucket.
type plantedFleet struct {
	*chaosStore
	at      string // without faults
	samples int
	workers []*process
}

func newPlantedFleet(t *testing.T) *plantedFleet {
	t.Helper()
	server := &storetest.Server{}
	server.Create("bucket")
	f := &plantedFleet{chaosStore: &chaosStore{t: t, server: server}, samples: 12}
	f.at, _ = f.connect("checks")
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript(), Latency: latencyOf(t, "50ms..400ms")})
	planFleet(t, f.at, sim, serveSim(t, sim), 4, 3, 1)
	return f
}

func (f *plantedFleet) work(at string) {
	f.t.Helper()
	f.workers = append(f.workers, startProgram(f.t, "rollout", nil, "work", at, "--spool", filepath.Join(f.t.TempDir(), "spool"), "--preflight", "connect"))
}

// isBroken expects that the check of the fleet fails with a text.
func (f *plantedFleet) isBroken(text string) {
	f.t.Helper()
	p := startFleetCheck(f.t, f.at, "--complete")
	p.ends(f.t, time.Minute, 1)
	contains(f.t, p.stderr.String(), text)
}

// unconditional removes the condition of a request.
func unconditional(w http.ResponseWriter, r *http.Request, server http.Handler) {
	r.Header.Del("If-None-Match")
	server.ServeHTTP(w, r)
}

// A turns orders the requests of two workers. The server handles none before both have been sent.
type turns struct {
	sent, handled       chan struct{} // closed when the second request was sent, and when the first was handled
	onceSent, onceFirst sync.Once
}

func newTurns() *turns { return &turns{sent: make(chan struct{}), handled: make(chan struct{})} }

// take returns a fault that only delays a request until it is its turn, and can remove its condition.
func (o *turns) take(first, blind bool) storetest.Fault {
	return func(w http.ResponseWriter, r *http.Request, server http.Handler) {
		if first {
			<-o.sent
			defer o.onceFirst.Do(func() { close(o.handled) })
		} else {
			o.onceSent.Do(func() { close(o.sent) })
			<-o.handled
		}
		if blind {
			unconditional(w, r, server)
		} else {
			server.ServeHTTP(w, r)
		}
	}
}

// The checks of a fleet find the traces that a worker leaves if it breaks a rule of the protocol.
func TestFleetBrokenRules(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the short tests run without Python")
	}
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript()})
	whole := filepath.Join(t.TempDir(), "store")
	planFleet(t, whole, sim, serveSim(t, sim), 4, 3, 1)
	mustRun(t, exit.OK, "work", whole, "--spool", filepath.Join(t.TempDir(), "spool"), "--preflight", "connect")
	checkFleet(t, whole, 12)
	for _, tt := range []struct {
		name, want string
		plant      func(l plantedLog) // the log is a claim, a commit, and its end
	}{
		{"names stay", "entry 2 is missing", func(l plantedLog) { l.remove(2) }},
		{"a taken name fences", "entry 2 is from a worker that no longer owned the log", func(l plantedLog) { l.copy(1, 1, `"epoch":1`, `"epoch":2`) }},
		{"the same bytes after a lost answer", "12 samples are in the store more than once", func(l plantedLog) { l.copy(3, 4); l.copy(2, 3) }},
		{"upload first", "the file is missing", func(l plantedLog) { l.removeShards() }},
		{"seal when complete", "12 planned: 0 committed", func(l plantedLog) { l.copy(3, 2); l.remove(3) }},
		{"the end is the end", "entry 4 follows the end", func(l plantedLog) { l.copy(2, 4) }},
		{"no end", "not sealed", func(l plantedLog) { l.remove(3) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "store")
			noError(t, os.CopyFS(dir, os.DirFS(whole)))
			tt.plant(plantedLog{t, filepath.Join(dir, "partitions", "0000")})
			p := startFleetCheck(t, dir, "--complete")
			p.ends(t, time.Minute, 1)
			contains(t, p.stderr.String(), tt.want)
			mustRun(t, exit.Verify, "verify", dir)
		})
	}
}

// A plantedLog is the dataset of a partition in a folder.
type plantedLog struct {
	t   *testing.T
	dir string
}

func (l plantedLog) path(entry int) string {
	return filepath.Join(l.dir, "_commits", fmt.Sprintf("%020d.json", entry))
}

// copy copies an entry to another number, and replaces texts in it.
func (l plantedLog) copy(from, to int, texts ...string) {
	l.t.Helper()
	body := string(must(os.ReadFile(l.path(from)))(l.t))
	texts = append(texts, fmt.Sprintf(`"seq":%d,`, from), fmt.Sprintf(`"seq":%d,`, to))
	noError(l.t, os.WriteFile(l.path(to), resummed([]byte(strings.NewReplacer(texts...).Replace(body))), 0o600))
}

func (l plantedLog) remove(entry int) {
	l.t.Helper()
	noError(l.t, os.Remove(l.path(entry)))
}

func (l plantedLog) removeShards() {
	l.t.Helper()
	noError(l.t, os.RemoveAll(filepath.Join(l.dir, "data")))
}
