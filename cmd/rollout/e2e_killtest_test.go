package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/failpoint"
	"github.com/rollout-rl/rollout/sink/store/storetest"
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
// prompts, both with cut replies, and with a worker of a fleet in a bucket. The worker sometimes loses its
// spool, and the bucket loses answers. ROLLOUT_KILLS is the least number of kills, and ROLLOUT_SEED
// chooses the moments.
func TestKillRandom(t *testing.T) {
	t.Parallel()
	kills, bin := 8, "rollout" // the test binary is also the program
	long := os.Getenv("ROLLOUT_KILLS")
	if long != "" {
		kills = must(strconv.Atoi(long))(t)
		bin = must(buildProgram(filepath.Join(t.TempDir(), "rollout")))(t)
	} else if testing.Short() {
		kills = 4
	}
	for _, tt := range []struct{ name, road string }{{roadTurns, roadTurns}, {roadRebuilt, roadRebuilt}, {"bucket", roadTurns}} {
		t.Run(tt.name, func(t *testing.T) {
			if long == "" {
				t.Parallel()
			}
			r := randomOf(t)
			o := killOptions{road: tt.road, tasks: 8 + 4*kills, samples: 4, inFlight: 16, latency: "50ms..400ms", faults: append(killFaults(), cutFaults()...), format: []string{"parquet", "arrow"}[r.IntN(2)]}
			want := withoutKills(t, o)
			o.bucket = tt.name == "bucket"
			k := newKillRun(t, bin, o)
			if o.bucket {
				k.bucket.proxy.Plan(storetest.Random(r.Uint64(), 0.02, storetest.Answer(503, "SlowDown"), storetest.Drop, storetest.Lose))
			}
			p := k.live(t, r, kills)
			for ; p.code == -1 && !t.Failed(); p = k.live(t, r, kills) {
				k.died(t, p)
				if o.bucket && r.IntN(3) == 0 {
					k.lose(t, k.dir) // the next process is on another machine
					k.bucket.leave(t)
				}
				if r.IntN(3) == 0 { // let the server continue meanwhile
					time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
				}
			}
			if p.code != exit.OK && p.code != exit.Failures {
				t.Fatalf("life %d: exit code %d\n%s", k.lives, p.code, p.said())
			}
			if len(k.kills) < kills {
				t.Errorf("the run was over after %d kills, want %d: make it longer", len(k.kills), kills)
			}
			k.check(t, want)
			if long != "" && !o.bucket {
				readWithPyarrow(t, k.dir, k.total)
			}
		})
	}
}

// live starts a process and kills it at a random moment, sometimes during its start and otherwise
// after it has begun to work. After enough kills it can end by itself.
func (k *killRun) live(t *testing.T, r *rand.Rand, kills int) *process {
	t.Helper()
	p := k.start(t)
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
	return p
}

// A run survives a kill at each named step of the protocol, at the first and at a later hit, once in
// each format. A worker of a fleet in a bucket survives the first hit of each step, for every second step
// without its write-ahead logs.
func TestKillAtSteps(t *testing.T) {
	t.Parallel()
	bin := failpointProgram(t)
	o := killOptions{tasks: 6, samples: 3, inFlight: 6, latency: "20ms..80ms", faults: lettasim.Faults{{Kind: lettasim.NullCall, Rate: 0.1}}}
	want := withoutKills(t, o)
	for i, name := range failpoint.Names() {
		for j, tt := range []struct {
			place string
			hit   int
		}{{"folder", 1}, {"folder", 3}, {"bucket", 1}} {
			hit := tt.hit
			if testing.Short() && j > 0 {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s:%d", tt.place, name, hit), func(t *testing.T) {
				t.Parallel()
				o := o
				o.format, o.bucket = []string{"parquet", "arrow"}[(i+j)%2], tt.place == "bucket"
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
					if o.bucket && i%2 == 0 {
						k.lose(t, filepath.Join(k.dir, "partitions"))
					}
					if name == failpoint.ShardWritten && !o.bucket { // verify finds the file, but it is not data
						if v := mustRun(t, exit.OK, "verify", k.dir); !orphaned.MatchString(v.stderr) {
							t.Errorf("verify: %s%s", v.stdout, v.stderr)
						}
					}
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

var orphaned = regexp.MustCompile(`(?m)^rollout: data/\.tmp-\S+: orphaned file \(no commit lists it\)$`)

// failpointProgram returns the path of the program with failpoints, which the tests share.
func failpointProgram(t *testing.T) string {
	t.Helper()
	bin := must(failpointBuild())(t)
	return bin
}

var failpointBuild = sync.OnceValues(func() (bin string, err error) {
	return buildProgram(filepath.Join(programs, "rollout"), "-tags", "failpoint")
})

// buildProgram builds the program like a release.
func buildProgram(bin string, flags ...string) (string, error) {
	args := append(append([]string{"build"}, flags...), "-o", bin, ".")
	out, err := exec.CommandContext(context.Background(), "go", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go %v: %w\n%s", args, err, out)
	}
	return bin, nil
}

func readWithPyarrow(t *testing.T, dir string, samples int) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), findPython(t), filepath.Join("testdata", "python", "dump.py"), dir).Output()
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
	second := startProgram(t, k.bin, nil, append(k.args, "--resume")...)
	if code := second.wait(t, time.Minute); code != exit.Locked {
		t.Errorf("a second one on the same folder: exit code %d, want %d\n%s", code, exit.Locked, second.said())
	}
	if !p.alive() {
		t.Fatalf("the first one ended\n%s", p.said())
	}
	p.kill()
	k.died(t, p)
	if left, listed := k.sim.Stats().AgentsAlive, mustRun(t, exit.OK, "clean", k.dir, "--dry-run").stdout; int64(strings.Count(listed, "\n")) != left || left == 0 {
		t.Errorf("%d agents are left, clean lists\n%.2000s", left, listed)
	}
	p = k.start(t)
	p.ends(t, time.Minute, exit.OK)
	k.check(t, want)
	if again := k.sends.count() - k.total; again > k.total/100 {
		t.Errorf("%d of %d runs were made again", again, k.total)
	}
}

// A killRun is one run over several processes ("lives"), with its server.
type killRun struct {
	bin    string
	road   string
	sim    *lettasim.Server
	sends  *sendLog
	bucket *bucket  // nil if the run is in a folder
	dir    string   // folder of the run, or the spool of the worker
	args   []string // of every life, without --resume
	total  int
	lives  int

	kills     []killed
	dropped   int             // samples that were in no commit when a spool was lost, at most
	committed []string        // the keys after the last kill
	done      map[string]bool // keys that were reported done
}

// A killed is one kill: its time, and the samples done by then.
type killed struct {
	at   time.Time
	done map[string]bool // by key
}

type killOptions struct {
	road                     string // source of the prompts
	tasks, samples, inFlight int
	latency                  string
	faults                   lettasim.Faults
	server                   string // more settings of the server section
	bucket                   bool   // the run is a fleet in a bucket
	format                   string
}

// rebuildable are the recorded exchanges for runs that rebuild prompts.
var rebuildable = []string{"single", "tool", "tool-two", "multi", "tool-text", "tool-parallel", "tool-unicode", "length", "newlines", "tool-args-compact"}

// cutFaults cuts every tenth reply in its body and gives every twentieth a wrong length, in first
// and second attempts. All sends of such a rollout are affected.
func cutFaults() lettasim.Faults {
	return lettasim.Faults{
		{Kind: lettasim.Drop, Rate: 0.1, Attempts: 3, Send: -1},
		{Kind: lettasim.Truncated, Rate: 0.05, Attempts: 3, Send: -1},
	}
}

// killFaults returns faults that affect runs with and without kills equally, followed by faults
// that a second attempt recovers from. The order matters: a send has at most one fault.
func killFaults() lettasim.Faults {
	return append(lettasim.Faults{
		{Kind: lettasim.NullCall, Rate: 0.02},
		{Kind: lettasim.StopError, Rate: 0.02},
		{Kind: lettasim.TooMany, Rate: 0.02},
		{Kind: lettasim.Stalled, Rate: 0.005},
	}, recoverableFaults(0.02)...)
}

func newKillRun(t *testing.T, bin string, o killOptions) *killRun {
	t.Helper()
	cfg := lettasim.Config{
		InputIDs: o.road != roadRebuilt, BareTraces: o.road != roadTraced,
		Script: killScript(), Faults: o.faults, KeptTraces: 1 << 16, KeepAnswers: true, Latency: latencyOf(t, o.latency),
	}
	k := &killRun{bin: bin, road: o.road, sim: newSim(t, cfg), dir: filepath.Join(t.TempDir(), "run"), total: o.tasks * o.samples, done: map[string]bool{}}
	k.sends = newSendLog(k.sim)
	url := serveHandler(t, k.sim, k.sends)
	if o.format == "" {
		o.format = "parquet"
	}
	config := "server: {" + o.server + "idle_timeout: 1s, urls: [" + url + "]}\noutput: {shard_age: 1s, shard_bytes: 64KiB}\n" +
		"reward: {kind: number}\nrun: {fail_on_error: 100%, retries: 5, preflight: connect}\n" // lives are short, and sends are counted
	tasks := k.sim.Tasks(lettasim.TaskOptions{Scripted: o.tasks})
	if o.road == roadRebuilt {
		tasks = recordedTasks(t, k.sim, o.tasks)
	}
	k.args = []string{
		"-c", writeFile(t, "run.yaml", []byte(config)), "--model", simModel, "--out", k.dir, "--format", o.format,
		"--tasks", writeFile(t, "tasks.jsonl", tasks),
		"--samples", strconv.Itoa(o.samples), "--max-in-flight", strconv.Itoa(o.inFlight),
	}
	if o.road == roadRebuilt {
		k.args = append(k.args, "--tokenizer", qwen3Dir)
	}
	k.args = append([]string{"collect"}, k.args...)
	if o.bucket {
		k.bucket = newBucket(t)
		k.args = k.bucket.plan(t, 4, k.args...)
	}
	return k
}

func recordedTasks(t *testing.T, sim *lettasim.Server, n int) []byte {
	t.Helper()
	byName := map[string][]byte{}
	for line := range bytes.Lines(sim.Tasks(lettasim.TaskOptions{Cases: true})) {
		var task struct{ ID string }
		noError(t, json.Unmarshal(line, &task))
		byName[task.ID] = line
	}
	var out []byte
	for i := range n {
		name := rebuildable[i%len(rebuildable)]
		line := byName[name]
		if line == nil {
			t.Fatalf("there is no recorded exchange %s", name)
		}
		out = append(out, bytes.Replace(line, fmt.Appendf(nil, "%q", name), fmt.Appendf(nil, `"%s#%d","answer":"5"`, name, i), 1)...)
	}
	return out
}

func (k *killRun) start(t *testing.T, env ...string) *process {
	t.Helper()
	args := append(slices.Clone(k.args), "--json")
	if k.lives > 0 && k.bucket == nil {
		args = append(args, "--resume")
	}
	k.lives++
	return startProgram(t, k.bin, env, args...)
}

// logs reads the logs of the run.
func (k *killRun) logs(t *testing.T) []*sink.Log {
	t.Helper()
	if k.bucket != nil {
		return k.bucket.logs(t)
	}
	return []*sink.Log{must(sink.ReadLog(k.dir))(t)}
}

// at returns the location of the rows.
func (k *killRun) at() string {
	if k.bucket != nil {
		return k.bucket.at
	}
	return k.dir
}

// lose removes the spool, or a folder in it. After a kill, only the samples in the bucket are then done.
func (k *killRun) lose(t *testing.T, dir string) {
	t.Helper()
	noError(t, os.RemoveAll(dir))
	k.dropped += k.total - len(k.committed)
	k.done = map[string]bool{}
	for _, key := range k.committed {
		k.done[key] = true
	}
	if n := len(k.kills); n > 0 {
		k.kills[n-1].done = maps.Clone(k.done)
	}
}

// died checks what a killed process left: samples that it reported done exist, and so do all
// earlier ones.
func (k *killRun) died(t *testing.T, p *process) {
	t.Helper()
	now := time.Now()
	if p.code != -1 {
		t.Fatalf("life %d ended by itself with exit code %d\n%s", k.lives, p.code, p.said())
	}
	if strings.Contains(p.stderr.String(), "panic:") || strings.Contains(p.stderr.String(), "fatal error:") {
		t.Errorf("life %d: %s", k.lives, p.stderr.String())
	}
	if _, err := os.Stat(filepath.Join(k.dir, runfolder.RunFile)); err != nil {
		k.lives = 0 // it had not begun, so a plain start is right
		return
	}
	keys := keysOf(k.logs(t)...)
	if len(slices.Compact(slices.Clone(keys))) < len(keys) {
		t.Errorf("life %d: a sample is in the commit log twice: %q", k.lives, keys)
	}
	for _, key := range k.committed {
		if _, ok := slices.BinarySearch(keys, key); !ok {
			t.Errorf("life %d: sample %s was committed and is gone", k.lives, key)
		}
	}
	k.committed = keys
	reportedDone(t, keys, k.dir, k.done)
	k.kills = append(k.kills, killed{now, maps.Clone(k.done)})
}

// check compares the finished run with the server's log and with the same samples collected without
// a kill.
func (k *killRun) check(t *testing.T, want map[sampleID]string) {
	t.Helper()
	if v := invoke(t.Context(), "verify", k.at()); v.code != exit.OK || strings.Contains(v.stderr, "orphaned file") {
		t.Errorf("verify: exit code %d\n%s%s", v.code, v.stdout, v.stderr)
	}
	got := readLogs(t, k.logs(t)...)
	keys := got.once(t)
	if len(keys) != k.total {
		t.Errorf("%d samples in the commit log, want %d", len(keys), k.total)
	}
	for key := range k.done {
		if keys[key] == 0 {
			t.Errorf("sample %s was reported done and is lost", key)
		}
	}
	for id, failures := range got.failures {
		if len(failures) > 0 && len(got.rows[id]) > 0 {
			t.Errorf("%v is both data and a failure", id)
		}
	}
	for id, rows := range got.rows {
		for i, r := range rows {
			if int(r.SegmentIndex) != i || int(r.SegmentCount) != len(rows) || r.Attempt != rows[0].Attempt {
				t.Errorf("%v: row %d of %d is segment %d of %d, attempt %d", id, i, len(rows), r.SegmentIndex, r.SegmentCount, r.Attempt)
			}
		}
	}
	if k.bucket != nil {
		contains(t, mustRun(t, exit.OK, "status", k.at()).stdout, fmt.Sprintf("%d planned: %d committed, %d failed, 0 remaining", k.total, len(got.rows), len(got.failures)))
		mustRun(t, exit.OK, "clean", k.at()) // agents of a worker that has lost its spool
	} else {
		k.checkReport(t, got)
	}
	sameSamples(t, got.logical(t), want)
	k.checkSends(t, got)
	if left := agentsLeft(t, k.sim); left != nil {
		t.Errorf("%d agents remain: %v", len(left), left)
	}
}

func (k *killRun) checkReport(t *testing.T, got *readBack) {
	t.Helper()
	type coverage struct{ Planned, Committed, Failed, Skipped, Remaining int }
	var report struct { // counts of the last life and of the files
		Last     coverage `json:"last_invocation"`
		Coverage coverage
	}
	readReport(t, k.dir, &report)
	if c := report.Coverage; report.Last != c || c.Planned != k.total || c.Remaining != 0 ||
		c.Committed != len(got.rows) || c.Failed != len(got.failures) || c.Committed+c.Failed+c.Skipped != k.total {
		t.Errorf("the report does not add up: %+v; %d samples have rows, %d failed", report, len(got.rows), len(got.failures))
	}
}

// checkSends checks every sample that was sent twice: the earlier send failed, or a kill came
// before the sample was done.
func (k *killRun) checkSends(t *testing.T, got *readBack) {
	t.Helper()
	keyOf := map[sampleID]string{}
	for id, r := range got.allRows() {
		keyOf[id] = r.SampleKey
	}
	for id, f := range got.allFailures() {
		keyOf[id] = f.SampleKey
	}
	answered := map[attempt]bool{} // in full
	for _, a := range k.sim.Answers() {
		if a.Traced && k.road == roadTurns {
			continue // its prompts are lost
		}
		answered[attempt{sampleID{a.Task, int32(a.Sample)}, a.Attempt}] = true
	}
	sends, again, open, rerun := 0, 0, 0, 0
	for id, list := range k.sends.all() {
		sends += len(list)
		for i := range list {
			// Check whether a kill came during this send, or just after it.
			cut := false
			for _, kill := range k.kills {
				if list[i].began.Before(kill.at) && (list[i].ended.IsZero() || !list[i].ended.Before(kill.at.Add(-50*time.Millisecond))) {
					cut = true
				}
			}
			if cut {
				open++
			}
			if i+1 == len(list) || list[i+1].agent == list[i].agent {
				continue // the last send, or the next message of the task
			}
			again++
			if cut {
				rerun++
			}
			next := list[i+1]
			right := !answered[attempt{id, list[i].attempt}]
			for _, kill := range k.kills {
				between := list[i].began.Before(kill.at) && kill.at.Before(next.began)
				if between {
					right = !kill.done[keyOf[id]]
				}
			}
			if !right {
				t.Errorf("%v was sent again %v after a send that was answered with %d, and no kill came while it was not done", id, next.began.Sub(list[i].began), list[i].status)
			}
		}
	}
	// Samples that also had a fault are rightly collected again.
	if open > 40 && k.dropped == 0 && rerun*4 > open && k.road != roadTurns {
		t.Errorf("%d of %d sends that were open at a kill were made again", rerun, open)
	}
	faults := faultsOf(k.sim)
	// Every second send follows a fault or a kill. Nearly all follow a fault, unless the work of a
	// kill has to be repeated.
	most := faults + len(k.kills)
	if k.road == roadTurns || k.bucket != nil {
		most = faults + open + k.dropped
	}
	if again > most {
		t.Errorf("%d sends were made again, for %d faults, %d kills and %d sends open at them", again, faults, len(k.kills), open)
	}
	t.Logf("%d samples, %d kills, %d faults, %d sends; %d of them after another; %d were open at a kill, %d of them were made again", k.total, len(k.kills), faults, sends, again, open, rerun)
}

// withoutKills collects the same samples in one life, without recoverable faults.
func withoutKills(t *testing.T, o killOptions) map[sampleID]string {
	t.Helper()
	o.faults = slices.DeleteFunc(slices.Clone(o.faults), func(f lettasim.Fault) bool { return f.Kind.Recoverable() })
	o.latency, o.inFlight = "0s", 8
	k := newKillRun(t, "rollout", o)
	r := invoke(t.Context(), append(k.args, "--quiet")...)
	if r.code != exit.OK && r.code != exit.Failures {
		t.Fatalf("exit code %d\n%s", r.code, r.stderr)
	}
	return readDataset(t, k.dir).logical(t)
}
