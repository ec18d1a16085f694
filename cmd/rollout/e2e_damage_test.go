package main

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/fleet"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/store"
)

// A damagedRun is a run to be copied and damaged: a folder, or a bucket with the spool of a worker. One
// process ended normally and left commits, and in a folder a report and a log. Another was killed and left
// commits, samples in the write-ahead log, a journal and a lock.
type damagedRun struct {
	*killRun
	want  map[sampleID]string
	keys  []string // in its commit logs
	files map[string][]string
}

// fileClasses are the kinds of files in a run's folder, by pattern. Each kind is damaged equally
// often.
var fileClasses = []string{
	"run.json", "tasks.jsonl", "report.json", "report.html", "lock", "logs/*", "journal/*", "wal/*", "data/*", "failures/*", "_commits/*",
}

// objectClasses are the kinds of objects in a fleet.
var objectClasses = []string{
	"fleet.json", "tasks/*/*", "workers/*", "partitions/*/data/*", "partitions/*/failures/*", "partitions/*/_commits/*", "partitions/*/_checkpoints/*",
}

func newDamagedRun(t *testing.T, o killOptions) *damagedRun {
	t.Helper()
	o.tasks, o.samples, o.inFlight, o.latency = 12, 3, 6, "5ms..40ms"
	o.faults = lettasim.Faults{{Kind: lettasim.NullCall, Rate: 0.1}, {Kind: lettasim.StopError, Rate: 0.1}}
	d := &damagedRun{files: map[string][]string{}}
	inBucket := o.bucket
	o.bucket = false
	d.want = withoutKills(t, o)
	o.bucket = inBucket
	d.killRun = newKillRun(t, "rollout", o)
	classes := objectClasses
	if d.bucket == nil {
		classes = fileClasses
		if r := invoke(t.Context(), append(slices.Clone(d.args), "--quiet", "--limit", "12")...); r.code != exit.OK && r.code != exit.Failures {
			t.Fatalf("exit code %d\n%s", r.code, r.stderr)
		}
		d.lives = 1
		d.args = append(d.args, "--limit", "0")
	} else {
		release := d.sends.holdAfter(14)
		p := d.start(t)
		waitFor(t, "a commit", func() bool { return len(keysOf(d.logs(t)...)) > 6 || !p.alive() })
		p.signal(t, os.Interrupt, "draining")
		release()
		p.ends(t, time.Minute, exit.Interrupted)
	}
	commits := len(keysOf(d.logs(t)...))
	defer d.sends.holdAfter(8)()
	p := d.start(t)
	waitFor(t, "samples in the write-ahead log, and a commit", func() bool {
		return d.waiting() > 2 && len(keysOf(d.logs(t)...)) >= commits || !p.alive()
	})
	p.kill()
	d.died(t, p)
	d.keys = keysOf(d.logs(t)...)
	for info := range each(t, d.objects().List("", "")) {
		for _, class := range classes {
			if ok, _ := path.Match(class, info.Name); ok {
				d.files[class] = append(d.files[class], info.Name)
			}
		}
	}
	if len(d.files) != len(classes) {
		t.Fatalf("the run has only %v", d.files)
	}
	return d
}

// waiting returns the number of samples in the write-ahead logs.
func (d *damagedRun) waiting() (n int) {
	spools, _ := filepath.Glob(filepath.Join(d.dir, "partitions", "*"))
	for _, dir := range append(spools, d.dir) {
		n += runfolder.Waiting(dir)
	}
	return n
}

// objects returns the files of the run.
func (d *damagedRun) objects() store.Store {
	if d.bucket != nil {
		return d.bucket.store
	}
	return store.Folder(store.OS(), d.dir)
}

// copied returns a copy of the run.
func (d *damagedRun) copied(t *testing.T) *damagedRun {
	t.Helper()
	run, c := *d.killRun, *d
	c.killRun, run.args = &run, slices.Clone(run.args)
	run.dir = filepath.Join(t.TempDir(), "run")
	noError(t, os.CopyFS(run.dir, os.DirFS(d.dir)))
	run.args[slices.Index(run.args, d.dir)] = run.dir
	if d.bucket != nil {
		run.bucket = newBucket(t)
		run.args[slices.Index(run.args, d.bucket.at)] = run.bucket.at
		d.bucket.copyTo(t, run.bucket.store)
	}
	return &c
}

// damage damages a random file of the run. It returns the files, and a description.
func (d *damagedRun) damage(t *testing.T, r *rand.Rand) (damaged []string, what string) {
	t.Helper()
	classes := slices.Sorted(maps.Keys(d.files))
	names := d.files[classes[r.IntN(len(classes))]]
	name, objects := names[r.IntN(len(names))], d.objects()
	damaged = []string{name}
	body := must(objects.Get(name))(t)
	write := func(name string, body []byte) {
		t.Helper()
		noError(t, objects.Put(name, body))
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
		write(name, bad)
	case "cut":
		write(name, bad[:at])
	case "zero":
		clear(bad[at:min(len(bad), at+1+r.IntN(600))])
		write(name, bad)
	case "delete":
		noError(t, objects.Delete(name))
	case "copy": // under a valid name for such a file
		at = 0
		write(nextName(objects, name, r), body)
	case "swap":
		other := names[r.IntN(len(names))]
		kind += " with " + other
		damaged = append(damaged, other)
		theirs := must(objects.Get(other))(t)
		write(name, theirs)
		write(other, body)
	case "junk":
		junk := make([]byte, 1+r.IntN(100))
		for i := range junk {
			junk[i] = byte(r.IntN(256))
		}
		write(name, append(bad, junk...))
	}
	return damaged, fmt.Sprintf("%s: %s at %d of %d", name, kind, at, len(body))
}

// nextName returns the name for a copy of a file, with the next number or another digest.
func nextName(objects store.Store, name string, r *rand.Rand) string {
	digits := regexp.MustCompile(`0{3,}[0-9]+`)
	number := digits.FindString(path.Base(name))
	if number == "" {
		return path.Join(path.Dir(name), "x"+path.Base(name))
	}
	n, _ := strconv.Atoi(number)
	for {
		n++
		to := path.Join(path.Dir(name), strings.Replace(path.Base(name), number, fmt.Sprintf("%0*d", len(number), n), 1))
		if _, err := objects.Get(to); err != nil && r.IntN(2) == 0 {
			return to
		}
	}
}

// The verbs handle a run with a randomly damaged file. Each exits with 0, or with the code of a run
// with failed samples, and then the run has every sample once with the right rows. Otherwise it
// exits with 9, or with 7 if the file that marks the folder as a run is gone. None crashes. If an object in a
// bucket is damaged, a worker also collects all other partitions. ROLLOUT_DAMAGES sets the number of rounds and
// ROLLOUT_SEED the random damage.
func TestDamage(t *testing.T) {
	t.Parallel()
	n := 24
	if text := os.Getenv("ROLLOUT_DAMAGES"); text != "" {
		n = must(strconv.Atoi(text))(t)
	} else if testing.Short() {
		n = 10
	}
	r := randomOf(t)
	for name, o := range map[string]killOptions{"parquet": {format: "parquet"}, "arrow": {format: "arrow"}, "bucket": {bucket: true, format: "parquet"}} {
		t.Run(name, func(t *testing.T) {
			d := newDamagedRun(t, o)
			found := map[int]int{}
			for i := range n / 2 {
				t.Run(fmt.Sprint(i), func(t *testing.T) { // removes its files
					c := d.copied(t)
					damaged, what := c.damage(t, r)
					found[c.check(t, damaged, what)]++
				})
			}
			t.Logf("of %d damages, by the exit status of the resumed run: %v", n/2, found)
		})
	}
}

// check runs the verbs on a damaged run, and returns the exit code of the process that resumes it.
func (d *damagedRun) check(t *testing.T, damaged []string, what string) int {
	t.Helper()
	wrong := func(r ran, verb, format string, args ...any) {
		t.Helper()
		t.Errorf("%s: %s: exit code %d: %s\n%s%s", what, verb, r.code, fmt.Sprintf(format, args...), tailOf(r.stdout), tailOf(r.stderr))
	}
	gone := strings.HasPrefix(what, "run.json: delete") || strings.HasPrefix(what, "fleet.json: delete")
	allowed := func(r ran, verb string, codes ...int) {
		t.Helper()
		if gone {
			codes = []int{exit.Folder}
		}
		if d.bucket != nil && strings.Contains(what, "_commits/") && strings.Contains(what, ": copy") {
			codes = append(codes, exit.Storage) // to a bucket, a gap is an entry that the store does not return yet
		}
		if !slices.Contains(codes, r.code) || strings.Contains(r.stdout+r.stderr, "goroutine ") {
			wrong(r, verb, "want one of %v", codes)
		}
	}
	verified := invoke(t.Context(), "verify", d.at())
	allowed(verified, "verify", exit.OK, exit.Verify)
	// A bucket that has lost the end of a log cannot show it, because shards without an entry are normal there.
	if verified.code == exit.OK && (d.bucket == nil || !strings.Contains(what, "_commits/")) {
		keys := keysOf(d.logs(t)...)
		if gone := slices.DeleteFunc(slices.Clone(d.keys), func(key string) bool { return slices.Contains(keys, key) }); len(gone) > 0 {
			wrong(verified, "verify", "samples %q were committed and are gone", gone)
		}
	}
	for _, args := range [][]string{{"inspect"}, {"report"}, {"failures"}, {"view", "--out", "-"}} {
		allowed(invoke(t.Context(), append(args, d.at())...), args[0], exit.OK, exit.Verify)
	}
	args := append(slices.Clone(d.args), "--quiet")
	if d.bucket == nil {
		args = append(args, "--resume")
	}
	r := invoke(t.Context(), args...)
	allowed(r, args[0], exit.OK, exit.Failures, exit.Verify)
	if verified.code == exit.Verify && r.code != exit.Verify && d.bucket == nil {
		wrong(r, args[0], "verify found damage:\n%s", tailOf(verified.stdout+verified.stderr))
	}
	if r.code != exit.OK && r.code != exit.Failures && d.bucket == nil {
		return r.code
	}
	v := invoke(t.Context(), "verify", d.at())
	if v.code == exit.Storage {
		allowed(v, "verify at the end")
		return r.code
	}
	if d.bucket != nil && v.code == exit.Verify {
		d.checkOthers(t, damaged, what, r)
		return r.code
	}
	if v.code != exit.OK && !gone {
		wrong(v, "verify at the end", "want 0")
	}
	if v.code != exit.OK {
		return r.code
	}
	got := readLogs(t, d.logs(t)...)
	failedBefore := t.Failed()
	got.once(t)
	sameSamples(t, got.logical(t), d.want)
	if t.Failed() && !failedBefore {
		wrong(r, args[0], "the samples differ from the samples of an undamaged run")
	}
	return r.code
}

// checkOthers checks that a worker has collected all partitions of a damaged fleet that are intact, and that
// it has one line about the damage when it finds it, and one at its end. A worker does not read shards again, so it
// can end without an error.
func (d *damagedRun) checkOthers(t *testing.T, damaged []string, what string, r ran) {
	t.Helper()
	if slices.Contains(damaged, fleet.Name) {
		return
	}
	named := func(name string) bool { return strings.Contains(r.stderr, "partitions/"+partitionOf(name)) }
	if n := strings.Count(r.stderr, "rollout: "); r.code == exit.Verify && (n != 2 || !slices.ContainsFunc(damaged, named)) {
		t.Errorf("%s: the worker has %d lines:\n%s", what, n, r.stderr)
	}
	f := must(fleet.Read(d.bucket.store))(t)
	for p := range f.Partitions {
		if slices.ContainsFunc(damaged, func(name string) bool { return partitionOf(name) == fmt.Sprintf("%04d", p) }) {
			continue
		}
		tasks := must(f.Tasks(d.bucket.store, p))(t)
		got := readLogs(t, must(sink.ReadLogIn(fleet.Dataset(d.bucket.store, p), "", nil))(t))
		if got.once(t); len(got.keys()) != f.Partitions[p].Samples || len(tasks) > 0 && !got.logs[0].Sealed() {
			t.Errorf("%s: partition %d is not complete:\n%s", what, p, r.stderr)
		}
		for id, text := range got.logical(t) {
			if text != d.want[id] {
				t.Errorf("%s: %v differs: %s", what, id, firstDifference(text, d.want[id]))
			}
		}
	}
}

func tailOf(text string) string { return text[max(0, len(text)-1500):] }
