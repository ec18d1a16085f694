package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
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

	"github.com/klauspost/compress/zstd"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink/failpoint"
)

// A killRun is one run of collect that has several lives, and the server that it
// collects from.
type killRun struct {
	bin   string
	road  string
	sim   *lettasim.Server
	sends *sendLog
	dir   string
	args  []string // of every life but for --resume
	total int
	lives int

	kills     []killed
	committed []string        // the keys after the last kill
	done      map[string]bool // keys that were reported done
}

// A killed is one kill: when, and what was done by then.
type killed struct {
	at   time.Time
	done map[string]bool // by key
}

// killOptions shape a run that is to be killed.
type killOptions struct {
	road                     string // where prompts come from
	tasks, samples, inFlight int
	latency                  string
	faults                   lettasim.Faults
	server                   string // more of that section of the configuration
	format                   string
}

// The roads from an answer to its prompts. On each a lost answer is worth something else.
const (
	roadTraced  = ""        // answers bring their prompts along, and traces keep them
	roadTurns   = "turns"   // answers bring them along, and nothing keeps them: what is lost is made again
	roadRebuilt = "rebuilt" // they are rebuilt with a tokenizer, from answers and traces alike
)

// rebuildable are the recorded exchanges that are played where prompts are rebuilt.
var rebuildable = []string{"single", "tool", "tool-two", "multi", "tool-text", "tool-parallel", "tool-unicode", "length", "newlines", "tool-args-compact"}

// cutFaults have every tenth reply end in the middle of its body, and every twentieth
// say a false length: whether it is a first attempt or a second. Those of a rollout with
// several sends are all cut.
func cutFaults() lettasim.Faults {
	return lettasim.Faults{
		{Kind: lettasim.Drop, Rate: 0.1, Attempts: 3, Send: -1},
		{Kind: lettasim.Truncated, Rate: 0.05, Attempts: 3, Send: -1},
	}
}

// killFaults are the faults that both ways of a run meet alike, and those after which
// a second attempt is right. The former come first: a send that meets one of them meets
// no other.
func killFaults() lettasim.Faults {
	return append(lettasim.Faults{
		{Kind: lettasim.NullCall, Rate: 0.02},
		{Kind: lettasim.StopError, Rate: 0.02},
		{Kind: lettasim.TooMany, Rate: 0.02},
		{Kind: lettasim.Stalled, Rate: 0.005},
	}, recoverableFaults(0.02)...)
}

// newKillRun makes the run; nothing is started.
func newKillRun(t *testing.T, bin string, o killOptions) *killRun {
	t.Helper()
	cfg := lettasim.Config{
		InputIDs: o.road != roadRebuilt, BareTraces: o.road != roadTraced,
		Script: killScript(), Faults: o.faults, KeptTraces: 1 << 16, KeepAnswers: true,
	}
	var err error
	if cfg.Latency, err = lettasim.ParseLatency(o.latency); err != nil {
		t.Fatal(err)
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
		k.args = append(k.args, "--tokenizer", modelFolder(t))
	}
	return k
}

// recordedTasks are n tasks that play recorded exchanges.
func recordedTasks(t *testing.T, sim *lettasim.Server, n int) []byte {
	t.Helper()
	byName := map[string][]byte{}
	for line := range bytes.Lines(sim.Tasks(lettasim.TaskOptions{Cases: true})) {
		var task struct{ ID string }
		if err := json.Unmarshal(line, &task); err != nil {
			t.Fatal(err)
		}
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

// modelFolder holds the tokenizer and the chat template of the recorded model.
func modelFolder(t *testing.T) string {
	t.Helper()
	from, dir := filepath.Join("..", "..", "testdata", "tokenizers", "qwen3"), t.TempDir()
	packed, err := os.ReadFile(filepath.Join(from, "tokenizer.json.zst"))
	if err != nil {
		t.Fatal(err)
	}
	z, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	tokenizer, err := z.DecodeAll(packed, nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(from, "tokenizer_config.json"))
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"tokenizer.json": tokenizer, "tokenizer_config.json": config} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// start begins the next life.
func (k *killRun) start(t *testing.T, env ...string) *process {
	t.Helper()
	args := append([]string{"collect", "--json"}, k.args...)
	if k.lives > 0 {
		args = append(args, "--resume")
	}
	k.lives++
	return startProgram(t, k.bin, env, args...)
}

// died takes note of what a killed process left: what it said was done is there, and
// what was there before still is.
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
		k.lives = 0 // it had not begun: a plain start is right
		return
	}
	keys := committedKeys(t, k.dir)
	for i, key := range keys {
		if i > 0 && keys[i-1] == key {
			t.Errorf("life %d: sample %s is in the commit log twice", k.lives, key)
		}
	}
	for _, key := range k.committed {
		if _, ok := slices.BinarySearch(keys, key); !ok {
			t.Errorf("life %d: sample %s was committed and is gone", k.lives, key)
		}
	}
	k.committed = keys
	reportedDone(t, k.dir, k.done)
	k.kills = append(k.kills, killed{now, maps.Clone(k.done)})
}

// check compares the finished run with what the server knows and with the same samples
// collected without a kill.
func (k *killRun) check(t *testing.T, want map[sampleID]string) {
	t.Helper()
	if v := invoke(t.Context(), "verify", k.dir); v.code != exit.OK || strings.Contains(v.stderr, "not data") {
		t.Errorf("verify: exit code %d\n%s%s", v.code, v.stdout, v.stderr)
	}
	got := readDataset(t, k.dir)
	keys := got.keys()
	if len(keys) != k.total {
		t.Errorf("%d samples in the commit log, want %d", len(keys), k.total)
	}
	for key, n := range keys {
		if n != 1 {
			t.Errorf("sample %s is in the commit log %d times", key, n)
		}
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
	b, err := os.ReadFile(filepath.Join(k.dir, runfolder.ReportFile))
	if err != nil {
		t.Fatal(err)
	}
	var report struct { // what the last life counted, and what the files say
		LastInvocation, Coverage struct{ Planned, Committed, Failed, Skipped, Remaining int }
	}
	if err := json.Unmarshal(bytes.ReplaceAll(b, []byte("last_invocation"), []byte("LastInvocation")), &report); err != nil {
		t.Fatal(err)
	}
	if c := report.Coverage; report.LastInvocation != c || c.Planned != k.total || c.Remaining != 0 ||
		c.Committed != len(got.rows) || c.Failed != len(got.failures) || c.Committed+c.Failed+c.Skipped != k.total {
		t.Errorf("the report does not add up: %+v; %d samples have rows, %d failed", report, len(got.rows), len(got.failures))
	}
	sameSamples(t, got.logical(t), want)
	k.checkSends(t, got)
	if left := agentsLeft(t, k.sim); left != nil {
		t.Errorf("%d agents are left: %v", len(left), left)
	}
}

// checkSends looks at every sample that was sent twice: either the send before it
// failed, or a kill came while the sample was not done.
func (k *killRun) checkSends(t *testing.T, got *readBack) {
	t.Helper()
	keyOf := map[sampleID]string{}
	for key, id := range got.keysOf() {
		keyOf[id] = key
	}
	type attempt struct {
		sampleID
		n int
	}
	answered := map[attempt]bool{} // in full
	for _, a := range k.sim.Answers() {
		if a.Traced && k.road == roadTurns {
			continue // its prompts are nowhere
		}
		answered[attempt{sampleID{a.Task, int32(a.Sample)}, a.Attempt}] = true
	}
	sends, again, open, rerun := 0, 0, 0, 0
	for id, list := range k.sends.all() {
		sends += len(list)
		for i := range list {
			// A kill fell into this send, or just behind it.
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
				continue // the last one, or the next message of the task
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
	// Those that met a fault besides are made again by right.
	if open > 40 && rerun*4 > open && k.road != roadTurns {
		t.Errorf("%d of %d sends that were open at a kill were made again", rerun, open)
	}
	faults := int64(0)
	for _, n := range k.sim.Stats().Faults {
		faults += n
	}
	// Each second send has a fault or a kill before it; nearly all have a fault, but where
	// what was open at a kill is made again.
	most := faults + int64(len(k.kills))
	if k.road == roadTurns {
		most = faults + int64(open)
	}
	if int64(again) > most {
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
	r := invoke(t.Context(), append([]string{"collect", "--quiet"}, k.args...)...)
	if r.code != exit.OK && r.code != exit.Failures {
		t.Fatalf("exit code %d\n%s", r.code, r.stderr)
	}
	return readDataset(t, k.dir).logical(t)
}

// TestKillRandom kills the program at random moments, resumes it each time, and
// compares the end with what the server knows that it answered. ROLLOUT_KILLS is the
// least number of kills, ROLLOUT_SEED chooses the moments.
//
// It does so where prompts come with the answers and nothing keeps them, and where they
// are rebuilt; each with replies that are cut. Nothing may be lost, nothing be there
// twice, and nothing fail that did not fail without a kill and without a cut.
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
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("ROLLOUT_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("ROLLOUT_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	bin := "rollout" // the test's own binary, which is the program too
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
			if r.IntN(3) == 0 { // the server gets on meanwhile
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

// live kills the process at a random moment: now and then while it starts, else some
// time after it has begun to work. When there were enough kills it may end by itself.
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

// TestKillAtSteps kills the program at each named step of the protocol, at the first
// hit and at a later one.
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
					t.Fatalf("the step was never come to: exit code %d\n%s", code, p.said())
				}
				if code != exit.OK && code != exit.Failures {
					t.Fatalf("exit code %d\n%s", code, p.said())
				}
				k.check(t, want)
			})
		}
	}
}

// buildProgram builds the program as a release is built, and returns its path.
func buildProgram(t *testing.T, flags ...string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "rollout")
	args := append(append([]string{"build"}, flags...), "-o", bin, ".")
	if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, out)
	}
	return bin
}

// readWithPyarrow has another reader open every file of a run.
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

// TestTakenOver kills the program while 500 runs are alive on the server: nearly all
// of them are taken over, not made again. Meanwhile nobody else may collect into the
// folder.
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

// TestNewerVersions: no file that a newer program wrote is guessed at.
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
		return resummed(regexp.MustCompile(`"version": ?2`).ReplaceAll(b, []byte(`"version":3`)))
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
