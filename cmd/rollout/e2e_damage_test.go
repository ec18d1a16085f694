package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// A damagedRun is the folder of a run, to be copied and damaged. One process ended normally and
// left commits, a report and a log. Another was killed and left commits, samples in the write-ahead
// log, a journal and a lock.
type damagedRun struct {
	*killRun
	base  string
	want  map[sampleID]string
	keys  []string // in its commit log
	files map[string][]string
}

// fileClasses are the kinds of files in a run's folder, by pattern. Each kind is damaged equally
// often.
var fileClasses = []string{
	"run.json", "tasks.jsonl", "report.json", "report.html", "lock", "logs/*", "journal/*", "wal/*", "data/*", "failures/*", "_commits/*",
}

func newDamagedRun(t *testing.T, format string) *damagedRun {
	t.Helper()
	o := killOptions{tasks: 12, samples: 3, inFlight: 6, latency: "5ms..40ms", format: format, faults: lettasim.Faults{
		{Kind: lettasim.NullCall, Rate: 0.1}, {Kind: lettasim.StopError, Rate: 0.1},
	}}
	d := &damagedRun{want: withoutKills(t, o), killRun: newKillRun(t, "rollout", o), files: map[string][]string{}}
	if r := invoke(t.Context(), append([]string{"collect", "--quiet", "--limit", "12"}, d.args...)...); r.code != exit.OK && r.code != exit.Failures {
		t.Fatalf("exit code %d\n%s", r.code, r.stderr)
	}
	d.base, d.lives = d.dir, 1
	commits := len(committedKeys(t, d.base))
	d.args = append(d.args, "--limit", "0")
	p := d.start(t)
	waitFor(t, "samples in the write-ahead log, and a commit", func() bool {
		return runfolder.Waiting(d.base) > 2 && len(committedKeys(t, d.base)) >= commits || !p.alive()
	})
	p.kill()
	d.died(t, p)
	d.keys = committedKeys(t, d.base)
	for _, class := range fileClasses {
		names, err := fs.Glob(os.DirFS(d.base), class)
		if err != nil || len(names) == 0 {
			t.Fatalf("the run has no %s: %v", class, err)
		}
		d.files[class] = names
	}
	return d
}

// damage damages a random file of the run in dir and describes the damage.
func (d *damagedRun) damage(t *testing.T, r *rand.Rand, dir string) string {
	t.Helper()
	class := fileClasses[r.IntN(len(fileClasses))]
	names := d.files[class]
	name := names[r.IntN(len(names))]
	path := filepath.Join(dir, name)
	body := must(os.ReadFile(path))(t)
	write := func(path string, body []byte) {
		t.Helper()
		_ = os.Remove(path) // it can be read-only
		noError(t, os.WriteFile(path, body, 0o600))
	}
	at := 0
	if len(body) > 0 {
		at = r.IntN(len(body))
	}
	kind := []string{"bit", "byte", "cut", "zero", "delete", "copy", "swap", "junk"}[r.IntN(8)]
	switch bad := bytes.Clone(body); kind {
	case "bit", "byte":
		flip := byte(1 << r.IntN(8))
		if kind == "byte" {
			flip = byte(1 + r.IntN(255))
		}
		if len(bad) > 0 {
			bad[at] ^= flip
		}
		write(path, bad)
	case "cut":
		write(path, bad[:at])
	case "zero":
		clear(bad[at:min(len(bad), at+1+r.IntN(600))])
		write(path, bad)
	case "delete":
		noError(t, os.Remove(path))
	case "copy": // under a valid name for such a file
		at = 0
		write(nextName(dir, name, r), body)
	case "swap":
		other := names[r.IntN(len(names))]
		kind += " with " + other
		theirs := must(os.ReadFile(filepath.Join(dir, other)))(t)
		write(path, theirs)
		write(filepath.Join(dir, other), body)
	case "junk":
		junk := make([]byte, 1+r.IntN(100))
		for i := range junk {
			junk[i] = byte(r.IntN(256))
		}
		write(path, append(bad, junk...))
	}
	return fmt.Sprintf("%s: %s at %d of %d", name, kind, at, len(body))
}

// nextName returns the path for a copy of a file, with the next number or another digest.
func nextName(dir, name string, r *rand.Rand) string {
	digits := regexp.MustCompile(`0{3,}[0-9]+`)
	number := digits.FindString(name)
	if number == "" {
		return filepath.Join(dir, filepath.Dir(name), "x"+filepath.Base(name))
	}
	n, _ := strconv.Atoi(number)
	for {
		n++
		to := filepath.Join(dir, strings.Replace(name, number, fmt.Sprintf("%0*d", len(number), n), 1))
		if _, err := os.Lstat(to); err != nil && r.IntN(2) == 0 {
			return to
		}
	}
}

// The verbs handle a run with a randomly damaged file. Each exits with 0, or with the code of a run
// with failed samples, and then the run has every sample once with the right rows. Otherwise it
// exits with 9, or with 7 if the file that marks the folder as a run is gone. None crashes.
// ROLLOUT_DAMAGES sets the number of rounds and ROLLOUT_SEED the random damage.
func TestDamage(t *testing.T) {
	t.Parallel()
	n := 24
	if text := os.Getenv("ROLLOUT_DAMAGES"); text != "" {
		n = must(strconv.Atoi(text))(t)
	} else if testing.Short() {
		n = 10
	}
	r := randomOf(t)
	for _, format := range []string{"parquet", "arrow"} {
		d := newDamagedRun(t, format)
		found := map[int]int{}
		for range n / 2 {
			dir := filepath.Join(t.TempDir(), "run")
			noError(t, os.CopyFS(dir, os.DirFS(d.base)))
			found[d.check(t, dir, d.damage(t, r, dir))]++
			noError(t, os.RemoveAll(dir))
		}
		t.Logf("%s: of %d damages, by the exit status of collect --resume: %v", format, n/2, found)
	}
}

// check runs the verbs on a damaged run, and returns the exit code of collect.
func (d *damagedRun) check(t *testing.T, dir, what string) int {
	t.Helper()
	wrong := func(r ran, verb, format string, args ...any) {
		t.Helper()
		t.Errorf("%s: %s: exit code %d: %s\n%s%s", what, verb, r.code, fmt.Sprintf(format, args...), tailOf(r.stdout), tailOf(r.stderr))
	}
	gone := strings.HasPrefix(what, "run.json: delete")
	allowed := func(r ran, verb string, codes ...int) {
		t.Helper()
		if gone {
			codes = []int{exit.Folder}
		}
		if !slices.Contains(codes, r.code) || strings.Contains(r.stdout+r.stderr, "goroutine ") {
			wrong(r, verb, "want one of %v", codes)
		}
	}
	verified := invoke(t.Context(), "verify", dir)
	allowed(verified, "verify", exit.OK, exit.Verify)
	if verified.code == exit.OK {
		keys := committedKeys(t, dir)
		if gone := slices.DeleteFunc(slices.Clone(d.keys), func(key string) bool { return slices.Contains(keys, key) }); len(gone) > 0 {
			wrong(verified, "verify", "samples %q were committed and are gone", gone)
		}
	}
	for _, verb := range []string{"inspect", "report", "failures"} {
		allowed(invoke(t.Context(), verb, dir), verb, exit.OK, exit.Verify)
	}
	args := slices.Clone(d.args)
	args[slices.Index(args, d.base)] = dir
	r := invoke(t.Context(), append([]string{"collect", "--quiet", "--resume"}, args...)...)
	allowed(r, "collect", exit.OK, exit.Failures, exit.Verify)
	if verified.code == exit.Verify && r.code != exit.Verify {
		wrong(r, "collect", "verify found damage:\n%s", tailOf(verified.stdout+verified.stderr))
	}
	if r.code != exit.OK && r.code != exit.Failures {
		return r.code
	}
	if v := invoke(t.Context(), "verify", dir); v.code != exit.OK {
		wrong(v, "verify at the end", "want 0")
		return r.code
	}
	got := readDataset(t, dir)
	failedBefore := t.Failed()
	got.once(t)
	sameSamples(t, got.logical(t), d.want)
	if t.Failed() && !failedBefore {
		wrong(r, "collect", "the samples are not those of a run without damage, each once")
	}
	return r.code
}

func tailOf(text string) string { return text[max(0, len(text)-1500):] }
