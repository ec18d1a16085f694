package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/ctl"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// A streamKill is a run whose collectors are killed, with the events that they reported.
type streamKill struct {
	t     *testing.T
	dir   string
	args  []string
	tasks []byte

	accepted    map[string]bool // tasks
	acked, told map[string]bool // groups
}

type streamLife struct {
	*streamKill
	n              int
	stdout, stderr lockedBuffer
	read           int             // bytes of stdout read so far
	now            map[string]bool // groups that it reported
	client         *ctl.Client     // nil before the first group
}

// live starts a collector, gives it all tasks, and kills it after a time. With 0 it waits until the
// collector ends.
func (k *streamKill) live(n int, within time.Duration) {
	k.t.Helper()
	l := &streamLife{streamKill: k, n: n, now: map[string]bool{}}
	cmd := exec.CommandContext(k.t.Context(), "rollout", k.args...)
	cmd.Stdout, cmd.Stderr = &l.stdout, &l.stderr
	in, err := cmd.StdinPipe()
	if err = errors.Join(err, cmd.Start()); err != nil {
		k.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // the exit code is checked below
	}()
	go func() {
		_, _ = in.Write(k.tasks) // a killed process stops reading
		if within == 0 {
			_ = in.Close()
		}
	}()
	for end := time.Now().Add(within); within == 0 || time.Now().Before(end); time.Sleep(time.Millisecond) {
		l.look()
		select {
		case <-ended:
			l.look()
			if code := cmd.ProcessState.ExitCode(); within > 0 || code != exit.OK {
				k.t.Fatalf("life %d ended by itself with exit code %d\n%s", n, code, l.stderr.String())
			}
			return
		default:
		}
	}
	_ = cmd.Process.Kill() // it was alive above
	<-ended
	l.look()
	if l.client != nil {
		_ = l.client.Close()
	}
	if bytes.Contains([]byte(l.stderr.String()), []byte("panic:")) {
		k.t.Fatalf("life %d: %s", n, l.stderr.String())
	}
}

func (l *streamLife) look() {
	for {
		line, _, whole := bytes.Cut([]byte(l.stdout.String())[l.read:], []byte("\n"))
		if !whole {
			return
		}
		l.read += len(line) + 1
		l.heard(line)
	}
}

// heard handles an event, and acknowledges a group.
func (l *streamLife) heard(line []byte) {
	var e struct {
		Event, Task, Group string
		Again              bool
		Seq                int64
		N                  int
	}
	if err := json.Unmarshal(line, &e); err != nil {
		l.t.Fatalf("life %d: %v: %s", l.n, err, line)
	}
	switch e.Event {
	case "accepted":
		if !e.Again && l.accepted[e.Task] {
			l.t.Errorf("life %d: task %s was accepted before, and is new again", l.n, e.Task)
		}
		l.accepted[e.Task] = true
	case "group":
		if l.now[e.Group] || l.acked[e.Group] {
			l.t.Errorf("life %d: group %s is reported again: in this life %v, acknowledged %v", l.n, e.Group, l.now[e.Group], l.acked[e.Group])
		}
		l.now[e.Group], l.told[e.Group] = true, true
		if l.client == nil {
			var err error
			if l.client, err = ctl.Dial(l.t.Context(), l.dir); err != nil {
				return // killed or ended
			}
		}
		if l.client.Do(ctl.Request{Op: ctl.OpAck, Seq: &e.Seq, Groups: &e.N}, nil) == nil {
			for g := range l.now { // and all groups before it
				l.acked[g] = true
			}
		}
	case "refused":
		l.t.Errorf("life %d: %s", l.n, line)
	}
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
	cfg := lettasim.Config{InputIDs: true, Script: killScript()}
	cfg.Latency = latencyOf(t, "10ms..200ms")
	sim := newSim(t, cfg)
	given := sim.Tasks(lettasim.TaskOptions{Scripted: total})
	dir := filepath.Join(t.TempDir(), "run")
	args := []string{
		"collect", "--stream", "--resume", "--json", "--out", dir, "--server", serveSim(t, sim), "--model", simModel,
		"--samples", fmt.Sprint(samples), "--max-ahead", "5", "--max-in-flight", "8", "--preflight", "connect",
	}

	k := &streamKill{t: t, dir: dir, args: args, tasks: given, accepted: map[string]bool{}, acked: map[string]bool{}, told: map[string]bool{}}
	for n := range lives {
		k.live(n, time.Duration(50+random.IntN(400))*time.Millisecond)
		if n%4 == 3 { // like a kill during a write
			f, err := os.OpenFile(filepath.Join(dir, runfolder.TasksFile), os.O_WRONLY|os.O_APPEND, 0)
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			_, werr := f.WriteString(`{"id":"torn","messa`)
			if err := errors.Join(err, werr, f.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
	k.live(lives, 0)

	mustRun(t, exit.OK, "verify", dir)
	keys := committedKeys(t, dir)
	if n := len(keys); n != total*samples || len(slices.Compact(keys)) != n {
		t.Errorf("%d samples are committed, %d of them different, want %d", n, len(slices.Compact(keys)), total*samples)
	}
	if len(k.told) != total || len(k.accepted) != total {
		t.Errorf("%d groups were reported and %d tasks accepted, want %d", len(k.told), len(k.accepted), total)
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
