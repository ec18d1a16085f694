package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// A killRun is one run of collect over several processes ("lives"), with its server.
type killRun struct {
	bin   string
	road  string
	sim   *lettasim.Server
	sends *sendLog
	dir   string
	args  []string // of every life, without --resume
	total int
	lives int

	kills     []killed
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
		Script: killScript(), Faults: o.faults, KeptTraces: 1 << 16, KeepAnswers: true,
	}
	cfg.Latency = latencyOf(t, o.latency)
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

// modelFolder returns a folder with the tokenizer and chat template of the recorded model.
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

func (k *killRun) start(t *testing.T, env ...string) *process {
	t.Helper()
	args := append([]string{"collect", "--json"}, k.args...)
	if k.lives > 0 {
		args = append(args, "--resume")
	}
	k.lives++
	return startProgram(t, k.bin, env, args...)
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

// check compares the finished run with the server's log and with the same samples collected without
// a kill.
func (k *killRun) check(t *testing.T, want map[sampleID]string) {
	t.Helper()
	if v := invoke(t.Context(), "verify", k.dir); v.code != exit.OK || strings.Contains(v.stderr, "orphan: ") {
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
	var report struct { // counts of the last life and of the files
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
		t.Errorf("%d agents remain: %v", len(left), left)
	}
}

// checkSends checks every sample that was sent twice: the earlier send failed, or a kill came
// before the sample was done.
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
	if open > 40 && rerun*4 > open && k.road != roadTurns {
		t.Errorf("%d of %d sends that were open at a kill were made again", rerun, open)
	}
	faults := int64(0)
	for _, n := range k.sim.Stats().Faults {
		faults += n
	}
	// Every second send follows a fault or a kill. Nearly all follow a fault, unless the work of a
	// kill has to be repeated.
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
