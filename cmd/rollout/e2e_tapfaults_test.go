package main

import (
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	seen "github.com/rollout-rl/rollout/cmd/rollout/internal/live/enginecheck"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
)

// A tapTrial is a collection with prompts from a tap that fails meanwhile.
type tapTrial struct {
	t       *testing.T
	r       *rand.Rand
	engine  *enginesim.Engine
	url     string // of the engine
	tap     *tapProcess
	run     string
	samples int
	ended   chan ran
}

// newTapTrial starts collecting. The prompts come from the tap's URL, or from its folder.
func newTapTrial(t *testing.T, overHTTP bool) *tapTrial {
	t.Helper()
	engine, err := enginesim.New(enginesim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(engine)
	t.Cleanup(server.Close)
	x := &tapTrial{t: t, r: randomOf(t), engine: engine, url: server.URL, run: filepath.Join(t.TempDir(), "run"), samples: 60 * 4, ended: make(chan ran, 1)} // buffered: read at the end
	x.tap = startTap(t, "--engine", x.url)
	cfg := lettasim.Config{InputIDs: true, Seed: x.r.Uint64() >> 1, Engine: x.tap.url}
	cfg.Script.Calls.Min, cfg.Script.Calls.Max = 1, 4
	sim := newSim(t, cfg)
	tasks := writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 60}))
	where := x.tap.spool
	if overHTTP {
		where = x.tap.url
	}
	args := []string{"collect", "--server", serveSim(t, sim), "--model", simModel, "--tasks", tasks, "--samples", "4", "--prompts", "tap", "--tap", where, "--out", x.run, "--max-in-flight", "8", "--quiet"}
	go func() { x.ended <- invoke(t.Context(), args...) }()
	return x
}

// made waits until the engine has made this many calls. It reports whether the collection still
// runs.
func (x *tapTrial) made(calls int) bool {
	x.t.Helper()
	waitFor(x.t, "calls of the engine", func() bool { return len(x.ended) > 0 || len(x.engine.Calls()) >= calls })
	return len(x.ended) == 0
}

func (x *tapTrial) restart() {
	x.t.Helper()
	spool := x.tap.spool
	x.tap = startTap(x.t, "--engine", x.url, "--listen", strings.TrimPrefix(x.tap.url, "http://"), "--spool", spool)
	x.tap.spool = spool
}

// check waits for the end. Every sample has rows or a failure, and every claimed prompt matches the
// engine's log. At least the given share of the calls is in rows.
func (x *tapTrial) check(least float64) *seen.Result {
	x.t.Helper()
	end := <-x.ended
	if end.code != exit.OK && end.code != exit.Tolerance {
		x.t.Fatalf("exit code %d\n%s%s", end.code, end.stdout, end.stderr)
	}
	run, err := seen.Read(x.run)
	if err != nil {
		x.t.Fatal(err)
	}
	res := seen.Compare(run, x.engine.Calls())
	x.t.Logf("%v", res)
	if res.Wrongs > 0 || res.Samples != x.samples || res.Rows != res.Grades["exact"] {
		x.t.Errorf("wrong, or not all: %d samples, want %d\n%s", res.Samples, x.samples, end.stderr)
	}
	if share := float64(res.InRows.Calls) / float64(len(x.engine.Calls())); share < least {
		x.t.Errorf("%.2f of the calls are in rows, want %.2f", share, least)
	}
	return res
}

func tapTrials(t *testing.T, trial func(t *testing.T, overHTTP bool)) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes some seconds: run without -short")
	}
	for name, overHTTP := range map[string]bool{"folder": false, "http": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trial(t, overHTTP)
		})
	}
}

// If a tap is killed during a run and restarted, calls that it had not written are quarantined, and
// all others have their prompts.
func TestTapKilled(t *testing.T) {
	t.Parallel()
	tapTrials(t, func(t *testing.T, overHTTP bool) {
		t.Helper()
		x := newTapTrial(t, overHTTP)
		for kills := 1; kills <= 3 && x.made(100*kills+x.r.IntN(60)); kills++ {
			if err := x.tap.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = x.tap.cmd.Wait() // killed
			x.restart()
		}
		x.check(0.5)
		if m := readTapFacts(t, x.run).Tap.Missing; m["torn"] == 0 || m["damaged"]+m["dropped"]+m["removed"] > 0 {
			t.Errorf("the report counts %v as missing", m)
		}
	})
}

// If the spool is damaged while it is written and read, damaged data never counts as a call, and
// intact calls are found.
func TestTapDamaged(t *testing.T) {
	t.Parallel()
	tapTrials(t, func(t *testing.T, overHTTP bool) {
		t.Helper()
		x := newTapTrial(t, overHTTP)
		hits := 0
		for n := 20; x.made(n); n += 5 {
			hits += x.damage()
		}
		res := x.check(0.3)
		if hits == 0 {
			t.Errorf("nothing was damaged: %v", res)
		}
		if m := readTapFacts(t, x.run).Tap.Missing; m["damaged"] == 0 || m["dropped"]+m["torn"] > 0 {
			t.Errorf("the report counts %v as missing", m)
		}
	})
}

// damage overwrites some bytes of each segment, most often at its end.
func (x *tapTrial) damage() (hits int) {
	files, err := os.ReadDir(x.tap.spool)
	if err != nil {
		x.t.Fatal(err)
	}
	for _, entry := range files {
		if filepath.Ext(entry.Name()) != ".tap" {
			continue
		}
		f, err := os.OpenFile(filepath.Join(x.tap.spool, entry.Name()), os.O_WRONLY, 0)
		if err != nil {
			continue // it was removed
		}
		info, err := f.Stat()
		if err == nil && info.Size() > 2000 {
			at := info.Size() - 1 - x.r.Int64N(1000)
			junk := make([]byte, 1+x.r.Int64N(100))
			for i := range junk {
				junk[i] = byte(x.r.Uint32())
			}
			if _, err := f.WriteAt(junk[:min(int64(len(junk)), info.Size()-at)], at); err == nil {
				hits++
			}
		}
		_ = f.Close()
	}
	return hits
}
