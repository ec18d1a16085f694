package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/ctl"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/failpoint"
)

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

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
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: script, Latency: latencyOf(t, "10ms..200ms")})
	dir, args := collectArgs(t, sim, serveSim(t, sim), 80, "--resume", "--json", "--reward", "number", "--samples", fmt.Sprint(samples),
		"--min-std", "1e-6", "--until-groups", fmt.Sprint(need), "--max-in-flight", "6", "--preflight", "connect")
	bin, waited := failpointProgram(t), 0
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
			_ = p.cmd.Process.Kill() // it might have ended
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
	p := startProgram(t, "rollout", nil, args...)
	p.ends(t, 5*time.Minute, exit.OK)
	done := doneOf(t, p.stdout.String())
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

// doneOf returns the counts of the last event of a run.
func doneOf(t *testing.T, out string) counts {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var last struct {
		Event   string
		Summary counts
	}
	if noError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &last)); last.Event != "done" {
		t.Fatalf("the last event is %s", last.Event)
	}
	return last.Summary
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
	log, err := sink.ReadLogIn(nil, dir, func(c *sink.Commit) {
		for _, g := range c.Groups {
			of(g.ID).commits = append(of(g.ID).commits, c.Seq)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for s := range log.Shards(sink.KindData) {
		for r := range each(t, log.Facts(s)) {
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

// If a collector with --stream is killed at random moments, every task reported as accepted is
// collected once. A producer gives it all tasks in each life, and a reader acknowledges the
// reported groups. No task is accepted as new twice. No group is reported twice in one life, or
// after it was acknowledged.
func TestStreamKilled(t *testing.T) {
	t.Parallel()
	const total, samples = 48, 3
	lives := 20
	if testing.Short() {
		lives = 6
	}
	random := randomOf(t)
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript(), Latency: latencyOf(t, "10ms..200ms")})
	given := sim.Tasks(lettasim.TaskOptions{Scripted: total})
	dir := filepath.Join(t.TempDir(), "run")
	args := []string{
		"--resume", "--server", serveSim(t, sim), "--model", simModel,
		"--samples", fmt.Sprint(samples), "--max-ahead", "5", "--max-in-flight", "8", "--preflight", "connect",
	}
	accepted := map[string]bool{}                       // tasks
	acked, told := map[string]bool{}, map[string]bool{} // groups
	// live starts a collector, gives it all tasks, acknowledges every group, and kills the collector
	// after a time. With 0 it waits until the collector ends.
	live := func(n int, within time.Duration) {
		t.Helper()
		now := map[string]bool{} // groups that this collector reported
		var client *ctl.Client
		s := startStream(t, dir, func(e toldGroup) {
			switch e.Event {
			case "accepted":
				if !e.Again && accepted[e.Task] {
					t.Errorf("life %d: task %s was accepted before, and is new again", n, e.Task)
				}
				accepted[e.Task] = true
			case "group":
				if now[e.Group] || acked[e.Group] {
					t.Errorf("life %d: group %s is reported again: in this life %v, acknowledged %v", n, e.Group, now[e.Group], acked[e.Group])
				}
				now[e.Group], told[e.Group] = true, true
				if client == nil {
					client, _ = ctl.Dial(t.Context(), dir) // nil: killed or ended
				}
				if client != nil && client.Do(ctl.Request{Op: ctl.OpAck, Seq: &e.Seq, Groups: &e.N}, nil) == nil {
					maps.Copy(acked, now) // this group, and all groups before it
				}
			case "refused":
				t.Errorf("life %d: %+v", n, e)
			}
		}, args...)
		go func() {
			_, _ = s.stdin.Write(given) // a killed process stops reading
			if within == 0 {
				_ = s.stdin.Close()
			}
		}()
		if within > 0 {
			select {
			case <-s.ended:
				t.Errorf("life %d ended by itself", n)
			case <-time.After(within):
			}
			s.kill()
		}
		<-s.ended
		<-s.heard
		if client != nil {
			_ = client.Close()
		}
		if within == 0 && s.code != exit.OK || strings.Contains(s.stderr.String(), "panic:") || t.Failed() {
			t.Fatalf("life %d: exit code %d\n%s", n, s.code, s.stderr.String())
		}
	}
	for n := range lives {
		live(n, time.Duration(50+random.IntN(400))*time.Millisecond)
		if n%4 == 3 { // like a kill during a write
			f, err := os.OpenFile(filepath.Join(dir, runfolder.TasksFile), os.O_WRONLY|os.O_APPEND, 0)
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			_, werr := f.WriteString(`{"id":"torn","messa`)
			noError(t, errors.Join(err, werr, f.Close()))
		}
	}
	live(lives, 0)

	mustRun(t, exit.OK, "verify", dir)
	keys := committedKeys(t, dir)
	if n := len(keys); n != total*samples || len(slices.Compact(keys)) != n {
		t.Errorf("%d samples are committed, %d of them different, want %d", n, len(slices.Compact(keys)), total*samples)
	}
	if len(told) != total || len(accepted) != total {
		t.Errorf("%d groups were reported and %d tasks accepted, want %d", len(told), len(accepted), total)
	}
	kept := map[string]bool{}
	for task, err := range tasks.Read(filepath.Join(dir, runfolder.TasksFile), nil) {
		if err != nil || kept[task.ID] {
			t.Fatalf("task %s is there twice, or: %v", task.ID, err)
		}
		kept[task.ID] = true
	}
	if len(kept) != total {
		t.Errorf("%d tasks are kept, want %d", len(kept), total)
	}
}

// The program survives a kill at each step of a merge of small commits, and at the recovery step
// that keeps samples for their groups. After each kill the run verifies. A reader that knows the
// earlier log reads everything in the same order, including new data. Each sample is there once at
// the end.
func TestKilledInMerge(t *testing.T) {
	t.Parallel()
	const total, first = 30, 6 // so few that the first ones are not merged
	bin := failpointProgram(t)
	for _, steps := range [][]failpoint.Name{
		{failpoint.MergeStarted},
		{failpoint.MergeWritten},
		{failpoint.MergeCommitted},
		{failpoint.MergeMoving},
		{failpoint.MergeMoved},
		{failpoint.MergeCommitted, failpoint.MergeMoving}, // recovery reaches the second step
		{failpoint.MergeMoving, failpoint.MergeMoved},
		{failpoint.WALAcked + ":3", failpoint.RecoverKept, failpoint.MergeWritten},
	} {
		t.Run(fmt.Sprint(steps), func(t *testing.T) {
			t.Parallel()
			sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript(), Latency: latencyOf(t, "10ms..60ms")})
			given := bytes.SplitAfter(sim.Tasks(lettasim.TaskOptions{Scripted: total}), []byte("\n"))
			dir := filepath.Join(t.TempDir(), "run")
			args := []string{
				"collect", "--stream", "--resume", "--quiet", "--out", dir, "--server", serveSim(t, sim), "--model", simModel,
				"--samples", "2", "--max-in-flight", "1", "--preflight", "connect", // so the third sample is the first of a group
			}
			live := func(tasks int, step failpoint.Name) {
				t.Helper()
				p := newProcess(t, bin, []string{"ROLLOUT_FAILPOINT=" + string(step)}, args...)
				in := must(p.cmd.StdinPipe())(t)
				p.start(t)
				_, err := in.Write(bytes.Join(given[:tasks], nil)) // fits into a pipe
				want := -1                                         // killed
				if step == "" {
					err, want = errors.Join(err, in.Close()), exit.OK
				}
				if err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, os.ErrClosed) {
					t.Fatal(err)
				}
				p.ends(t, 2*time.Minute, want)
			}
			live(first, "")
			old := must(sink.ReadLog(dir))(t)
			known := rowsOf(t, old)
			look := func(when failpoint.Name) (keys []string) {
				t.Helper()
				if again := rowsOf(t, old); !maps.Equal(again, known) {
					t.Errorf("%s: the log of before reads %d rows, want %d as they were", when, len(again), len(known))
				}
				mustRun(t, exit.OK, "verify", dir)
				var groups sink.GroupLog
				whole := 0
				if _, err := sink.ReadLogIn(nil, dir, func(c *sink.Commit) {
					whole += len(groups.Add(c))
					for _, s := range c.Samples {
						keys = append(keys, s.Key)
					}
				}); err != nil {
					t.Fatal(err)
				}
				if whole*2 != len(keys) {
					t.Errorf("%s: %d groups are whole, with %d samples", when, whole, len(keys))
				}
				for i, k := range old.Commits[0].Samples {
					if keys[i] != k.Key {
						t.Errorf("%s: sample %d is %s, before it was %s", when, i, keys[i], k.Key)
					}
				}
				return keys
			}
			for _, step := range steps {
				live(total, step)
				look(step)
			}
			live(total, "")
			keys := look("the end")
			slices.Sort(keys)
			if n := len(keys); n != 2*total || len(slices.Compact(keys)) != n {
				t.Errorf("%d samples are committed, want each of %d once", n, 2*total)
			}
		})
	}
}

// rowsOf returns the rows of all shards of a log as text, by key and segment.
func rowsOf(t *testing.T, log *sink.Log) map[string]string {
	t.Helper()
	rows := map[string]string{}
	for s := range log.Shards(sink.KindData) {
		for r := range each(t, log.Rows(s)) {
			rows[fmt.Sprintf("%s/%d", r.SampleKey, r.SegmentIndex)] = fmt.Sprint(r.InputIDs, r.LossMask, r.Logprobs, r.GroupID, r.SampleIndex)
		}
	}
	return rows
}
