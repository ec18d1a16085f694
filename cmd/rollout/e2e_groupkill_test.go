package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/failpoint"
)

// A collector is killed or interrupted within groups. The finished samples of a group wait for the
// rest. Each group is one commit, gets one verdict from the rewards of all its samples, and is
// counted by it.
func TestGroupsKilled(t *testing.T) {
	t.Parallel()
	const samples, need = 4, 12
	lives := 10
	if testing.Short() {
		lives = 5
	}
	random := randomOf(t)
	script := killScript()
	script.Wrong = 0.15 // about half of the groups are informative
	cfg := lettasim.Config{InputIDs: true, Script: script}
	cfg.Latency = latencyOf(t, "10ms..200ms")
	sim := newSim(t, cfg)
	tasks, dir := filepath.Join(t.TempDir(), "tasks.jsonl"), filepath.Join(t.TempDir(), "run")
	if err := os.WriteFile(tasks, sim.Tasks(lettasim.TaskOptions{Scripted: 80}), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{
		"collect", "--resume", "--json", "--out", dir, "--server", serveSim(t, sim), "--model", simModel, "--tasks", tasks, "--reward", "number",
		"--samples", fmt.Sprint(samples), "--min-std", "1e-6", "--until-groups", fmt.Sprint(need), "--max-in-flight", "6", "--preflight", "connect",
	}
	bin, waited := buildProgram(t, "-tags", "failpoint"), 0
	for n := range lives {
		var env []string
		if n%3 == 0 { // at one of the first samples, within a group
			env = append(env, fmt.Sprintf("ROLLOUT_FAILPOINT=%s:%d", failpoint.WALAcked, 1+random.IntN(3)))
		}
		p := startProgram(t, bin, env, args...)
		if n%3 > 0 {
			waitFor(t, "the run", func() bool { return strings.Contains(p.stdout.String(), `"event":"launch"`) || !p.alive() })
			time.Sleep(time.Duration(random.IntN(500)) * time.Millisecond) // at a random moment
		}
		switch n % 3 {
		case 1:
			_ = p.cmd.Process.Kill() // it can have ended
		case 2: // a normal stop; the second signal does not wait for samples in flight
			_ = p.cmd.Process.Signal(os.Interrupt)
			_ = p.cmd.Process.Signal(os.Interrupt)
		}
		if p.wait(t, 5*time.Minute); strings.Contains(p.said(), "panic:") {
			t.Fatalf("life %d: %s", n, p.said())
		}
		if log, err := sink.ReadLog(dir); err == nil {
			for _, err := range log.Waiting() {
				if err != nil {
					t.Fatal(err)
				}
				waited++
			}
		}
	}
	done := lastEvent(t, runOK(t, args...), "done")
	mustRun(t, exit.OK, "verify", dir)
	if waited == 0 {
		t.Error("no kill was in the middle of a group: the test shows nothing")
	}
	groups := checkGroups(t, dir)
	informative, kept, filtered := 0, 0, 0
	for _, g := range groups {
		if g.differ() {
			informative++
			kept += len(g.rewards)
		} else {
			filtered += len(g.rewards)
		}
	}
	if informative < need {
		t.Errorf("%d informative groups, want %d", informative, need)
	}
	if done.Committed != kept || done.Filtered != filtered || done.Planned != kept+filtered+done.Failed+done.Skipped || done.Remaining != 0 {
		t.Errorf("counted %+v, want %d committed and %d filtered", done, kept, filtered)
	}
}

type counts struct{ Planned, Committed, Filtered, Failed, Skipped, Remaining int }

func runOK(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "rollout", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	return out
}

func lastEvent(t *testing.T, out []byte, name string) (c counts) {
	t.Helper()
	found := false
	for line := range bytes.Lines(out) {
		var e struct{ Event string }
		if json.Unmarshal(line, &e) == nil && e.Event == name {
			var with struct{ Summary counts }
			found = json.Unmarshal(line, &with) == nil
			c = with.Summary
		}
	}
	if !found {
		t.Fatalf("no event %s in\n%s", name, out)
	}
	return c
}

// A readGroup is a group in the files of a run.
type readGroup struct {
	commits []int64
	rewards map[string]float64 // of samples with rows, by key
	keep    []string           // distinct verdicts of the rows
}

func (g *readGroup) differ() bool {
	var all []float64
	for _, r := range g.rewards {
		all = append(all, r)
	}
	return len(all) > 1 && slices.Min(all) != slices.Max(all)
}

// checkGroups checks that each group of a run is in one commit and has one verdict.
func checkGroups(t *testing.T, dir string) map[string]*readGroup {
	t.Helper()
	groups := map[string]*readGroup{}
	of := func(id string) *readGroup {
		if groups[id] == nil {
			groups[id] = &readGroup{rewards: map[string]float64{}}
		}
		return groups[id]
	}
	log, err := sink.ReadLogEach(dir, func(c *sink.Commit) {
		for _, g := range c.Groups {
			of(g.ID).commits = append(of(g.ID).commits, c.Seq)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for s := range log.Shards(sink.KindData) {
		for r, err := range log.Facts(s) {
			if err != nil {
				t.Fatal(err)
			}
			g, keep := of(r.GroupID), "null"
			if r.Keep != nil {
				keep = fmt.Sprint(*r.Keep)
			}
			if !slices.Contains(g.keep, keep) {
				g.keep = append(g.keep, keep)
			}
			if r.Reward != nil {
				g.rewards[r.SampleKey] = *r.Reward
			}
		}
	}
	for id, g := range groups {
		want := "false"
		if g.differ() {
			want = "null"
		}
		if len(g.commits) != 1 || !slices.Equal(g.keep, []string{want}) {
			t.Errorf("group %s is in commits %d and has keep %q, want one and %s; rewards %v", id, g.commits, g.keep, want, g.rewards)
		}
	}
	return groups
}
