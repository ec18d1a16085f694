package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink/failpoint"
)

// Sources of prompts. They differ in what survives a lost answer.
const (
	roadTraced  = ""        // answers have their prompts, and traces keep them
	roadTurns   = "turns"   // answers have their prompts, and nothing keeps them: lost ones are collected again
	roadRebuilt = "rebuilt" // prompts are rebuilt with a tokenizer, from answers or traces
)

// A run that is killed at random moments and resumed each time ends with exactly the samples that
// the server answered. Nothing is lost or duplicated, and nothing fails that does not fail without
// kills and cuts. This is tested with prompts that come only with the answers and with rebuilt
// prompts, both with cut replies. ROLLOUT_KILLS is the least number of kills, and ROLLOUT_SEED
// chooses the moments.
func TestKillRandom(t *testing.T) {
	t.Parallel()
	for _, road := range []string{roadTurns, roadRebuilt} {
		t.Run(road, func(t *testing.T) {
			if os.Getenv("ROLLOUT_KILLS") == "" {
				t.Parallel()
			}
			killRandom(t, road)
		})
	}
}

func killRandom(t *testing.T, road string) {
	t.Helper()
	kills, long := 8, false
	if text := os.Getenv("ROLLOUT_KILLS"); text != "" {
		var err error
		if kills, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
		long = true
	} else if testing.Short() {
		kills = 4
	}
	r := randomOf(t)
	bin := "rollout" // the test binary is also the program
	if long {
		bin = buildProgram(t)
	}
	o := killOptions{road: road, tasks: 8 + 3*kills, samples: 4, inFlight: 16, latency: "50ms..400ms", faults: append(killFaults(), cutFaults()...), format: []string{"parquet", "arrow"}[r.IntN(2)]}
	want := withoutKills(t, o)
	k := newKillRun(t, bin, o)
	for {
		p := k.start(t)
		k.live(p, r, kills)
		if p.code == -1 {
			k.died(t, p)
			if r.IntN(3) == 0 { // let the server continue meanwhile
				time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
			}
			if t.Failed() {
				t.FailNow()
			}
			continue
		}
		if p.code != exit.OK && p.code != exit.Failures {
			t.Fatalf("life %d: exit code %d\n%s", k.lives, p.code, p.said())
		}
		break
	}
	if len(k.kills) < kills {
		t.Errorf("the run was over after %d kills, want %d: make it longer", len(k.kills), kills)
	}
	k.check(t, want)
	if long {
		readWithPyarrow(t, k.dir, k.total)
	}
}

// live kills the process at a random moment, sometimes during its start and otherwise after it has
// begun to work. After enough kills it can end by itself.
func (k *killRun) live(p *process, r *rand.Rand, kills int) {
	rest, worked := time.Duration(r.IntN(500))*time.Millisecond, k.sends.worked.Load()
	switch {
	case len(k.kills) >= kills:
		rest = 5 * time.Minute
	case r.IntN(5) == 0:
		rest /= 4
	default:
		for began := time.Now(); p.alive() && k.sends.worked.Load() == worked && time.Since(began) < time.Minute; {
			time.Sleep(2 * time.Millisecond)
		}
	}
	select {
	case <-p.ended:
	case <-time.After(rest):
		p.kill()
	}
}

// A run survives a kill at each named step of the protocol, at the first and at a later hit.
func TestKillAtSteps(t *testing.T) {
	t.Parallel()
	bin := buildProgram(t, "-tags", "failpoint")
	o := killOptions{tasks: 6, samples: 3, inFlight: 6, latency: "20ms..80ms", faults: lettasim.Faults{{Kind: lettasim.NullCall, Rate: 0.1}}}
	want := withoutKills(t, o)
	for _, name := range failpoint.Names() {
		for _, hit := range []int{1, 3} {
			if testing.Short() && hit > 1 {
				continue
			}
			t.Run(fmt.Sprintf("%s:%d", name, hit), func(t *testing.T) {
				t.Parallel()
				k := newKillRun(t, bin, o)
				if strings.HasPrefix(string(name), "recover.") { // needs something to recover
					p := k.start(t, "ROLLOUT_FAILPOINT="+string(failpoint.WALAcked)+":5")
					p.wait(t, time.Minute)
					k.died(t, p)
				}
				p := k.start(t, fmt.Sprintf("ROLLOUT_FAILPOINT=%s:%d", name, hit))
				code := p.wait(t, time.Minute)
				switch {
				case code == -1:
					k.died(t, p)
					p = k.start(t)
					code = p.wait(t, time.Minute)
				case hit == 1:
					t.Fatalf("the step was never reached: exit code %d\n%s", code, p.said())
				}
				if code != exit.OK && code != exit.Failures {
					t.Fatalf("exit code %d\n%s", code, p.said())
				}
				k.check(t, want)
			})
		}
	}
}

// buildProgram builds the program like a release and returns its path.
func buildProgram(t *testing.T, flags ...string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "rollout")
	args := append(append([]string{"build"}, flags...), "-o", bin, ".")
	if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, out)
	}
	return bin
}

func readWithPyarrow(t *testing.T, dir string, samples int) {
	t.Helper()
	python := os.Getenv("ROLLOUT_PYTHON")
	if python == "" {
		python = filepath.Join("..", "..", ".build", "venv", "bin", "python")
	}
	if _, err := exec.LookPath(python); err != nil {
		t.Fatalf("no Python for this test: run make python, or set ROLLOUT_PYTHON (%v)", err)
	}
	out, err := exec.CommandContext(t.Context(), python, filepath.Join("testdata", "python", "dump.py"), dir).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf("%v\n%s", err, exit.Stderr)
	}
	if lines := bytes.Count(out, []byte("\n")); err != nil || lines < samples {
		t.Errorf("pyarrow reads %d rows of %d samples, %v", lines, samples, err)
	}
}

// If the program is killed while 500 server runs are in progress, the next process reattaches to
// nearly all of them. Meanwhile no other process can collect into the folder.
func TestTakenOver(t *testing.T) {
	t.Parallel()
	o := killOptions{tasks: 63, samples: 8, inFlight: 504, latency: "4s..6s", server: "adaptive: false, "}
	if testing.Short() {
		o.tasks, o.inFlight = 7, 56
	}
	want := withoutKills(t, o)
	k := newKillRun(t, "rollout", o)
	p := k.start(t)
	waitFor(t, "as many runs as there are samples", func() bool { return k.sim.Stats().InFlight >= int64(k.total) || !p.alive() })
	if alive := k.sim.Stats().InFlight; alive < int64(k.total) {
		t.Fatalf("%d runs are alive, want %d\n%s", alive, k.total, p.said())
	}
	second := startProgram(t, k.bin, nil, append([]string{"collect", "--resume"}, k.args...)...)
	if code := second.wait(t, time.Minute); code != exit.Locked {
		t.Errorf("a second one on the same folder: exit code %d, want %d\n%s", code, exit.Locked, second.said())
	}
	if !p.alive() {
		t.Fatalf("the first one ended\n%s", p.said())
	}
	p.kill()
	k.died(t, p)
	p = k.start(t)
	if code := p.wait(t, time.Minute); code != exit.OK {
		t.Fatalf("exit code %d\n%s", code, p.said())
	}
	k.check(t, want)
	sends := 0
	for _, list := range k.sends.all() {
		sends += len(list)
	}
	if again := sends - k.total; again > k.total/100 {
		t.Errorf("%d of %d runs were made again", again, k.total)
	}
}

// Files of a newer format version are refused, not guessed at.
func TestNewerVersions(t *testing.T) {
	t.Parallel()
	k := newKillRun(t, "rollout", killOptions{tasks: 10, samples: 10, inFlight: 16, latency: "50ms..200ms"})
	p := k.start(t)
	waitFor(t, "a commit", func() bool {
		commits, _ := filepath.Glob(filepath.Join(k.dir, "_commits", "0*.json"))
		return len(commits) > 0 && k.sim.Stats().InFlight > 0 || !p.alive()
	})
	p.kill()
	k.died(t, p)
	object := func(b []byte) []byte {
		return resummed(regexp.MustCompile(`"version": ?\d`).ReplaceAll(b, []byte(`"version":9`)))
	}
	header := func(at int) func([]byte) []byte {
		return func(b []byte) []byte {
			b[at]++
			binary.LittleEndian.PutUint32(b[28:], crc32.Checksum(b[:28], crc32.MakeTable(crc32.Castagnoli)))
			return b
		}
	}
	for _, tt := range []struct {
		name, file string
		change     func([]byte) []byte
	}{
		{"run.json", "run.json", object},
		{"commit", "_commits/0*.json", object},
		{"wal framing", "wal/*", header(16)},
		{"wal", "wal/*", header(18)},
		{"journal framing", "journal/*", header(16)},
		{"journal", "journal/*", header(18)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "run")
			if err := os.CopyFS(dir, os.DirFS(k.dir)); err != nil {
				t.Fatal(err)
			}
			files, _ := filepath.Glob(filepath.Join(dir, tt.file))
			if len(files) == 0 {
				t.Fatalf("there is no %s", tt.file)
			}
			before, err := os.ReadFile(files[0])
			if err != nil {
				t.Fatal(err)
			}
			changed := tt.change(bytes.Clone(before))
			if bytes.Equal(changed, before) {
				t.Fatalf("nothing was changed: %.60q", before)
			}
			if err := os.Chmod(files[0], 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(files[0], changed, 0o644); err != nil {
				t.Fatal(err)
			}
			args := slices.Clone(k.args)
			args[slices.Index(args, k.dir)] = dir
			r := invoke(t.Context(), append([]string{"collect", "--quiet", "--resume"}, args...)...)
			if r.code == exit.OK || r.code == exit.Failures || r.code == exit.Internal || !strings.Contains(r.stderr, "version") && !strings.Contains(r.stderr, "newer") {
				t.Errorf("exit code %d\n%s", r.code, r.stderr)
			}
			if after, err := os.ReadFile(files[0]); err != nil || !bytes.Equal(after, changed) {
				t.Errorf("the file was changed, or is gone: %v", err)
			}
			t.Logf("exit code %d: %s", r.code, strings.TrimSpace(r.stderr))
		})
	}
}
