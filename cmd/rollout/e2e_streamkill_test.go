package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
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

// TestStreamKilled kills a collector with --stream at random moments, while a producer gives
// it all tasks in each of its lives and a reader acknowledges what it is told. Every task that
// was called accepted is collected once, nothing is accepted as new twice, no group is told
// twice in one life, and none after it was acknowledged.
func TestStreamKilled(t *testing.T) {
	t.Parallel()
	const total, samples = 48, 3
	lives := 20
	if testing.Short() {
		lives = 6
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	cfg := lettasim.Config{InputIDs: true, Script: killScript()}
	cfg.Latency = latencyOf(t, "10ms..200ms")
	sim := newSim(t, cfg)
	given := sim.Tasks(lettasim.TaskOptions{Scripted: total})
	dir := filepath.Join(t.TempDir(), "run")
	args := []string{
		"collect", "--stream", "--resume", "--json", "--out", dir, "--server", serveSim(t, sim), "--model", simModel,
		"--samples", fmt.Sprint(samples), "--max-ahead", "5", "--max-in-flight", "8", "--preflight", "connect",
	}

	accepted, acked, told := map[string]bool{}, map[string]bool{}, map[string]bool{}
	live := func(n int, within time.Duration) {
		cmd := exec.CommandContext(t.Context(), "rollout", args...)
		var stdout, stderr lockedBuffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		in, err := cmd.StdinPipe()
		if err = errors.Join(err, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = cmd.Wait() // its exit code is looked at below
		}()
		go func() {
			_, _ = in.Write(given) // a killed process reads no more
			if within == 0 {
				_ = in.Close()
			}
		}()
		var client *ctl.Client
		read, now := 0, map[string]bool{}
		look := func() {
			for {
				line, _, whole := bytes.Cut([]byte(stdout.String())[read:], []byte("\n"))
				if !whole {
					return
				}
				read += len(line) + 1
				var e struct {
					Event, Task, Group string
					Again              bool
					Seq                int64
					N                  int
				}
				if err := json.Unmarshal(line, &e); err != nil {
					t.Fatalf("life %d: %v: %s", n, err, line)
				}
				switch e.Event {
				case "accepted":
					if !e.Again && accepted[e.Task] {
						t.Errorf("life %d: task %s was accepted before, and is new again", n, e.Task)
					}
					accepted[e.Task] = true
				case "group":
					if now[e.Group] || acked[e.Group] {
						t.Errorf("life %d: group %s is told again: in this life %v, acknowledged %v", n, e.Group, now[e.Group], acked[e.Group])
					}
					now[e.Group], told[e.Group] = true, true
					if client == nil {
						if client, err = ctl.Dial(t.Context(), dir); err != nil {
							return // it was killed or has ended
						}
					}
					if client.Do(ctl.Request{Op: ctl.OpAck, Seq: &e.Seq, Groups: &e.N}, nil) == nil {
						for g := range now { // all before it as well
							acked[g] = true
						}
					}
				case "refused":
					t.Errorf("life %d: %s", n, line)
				}
			}
		}
		for end := time.Now().Add(within); within == 0 || time.Now().Before(end); time.Sleep(time.Millisecond) {
			look()
			select {
			case <-ended:
				look()
				if code := cmd.ProcessState.ExitCode(); within > 0 || code != exit.OK {
					t.Fatalf("life %d ended by itself with exit code %d\n%s", n, code, stderr.String())
				}
				return
			default:
			}
		}
		_ = cmd.Process.Kill() // the check above has seen it alive
		<-ended
		look()
		if client != nil {
			_ = client.Close()
		}
		if bytes.Contains([]byte(stderr.String()), []byte("panic:")) {
			t.Fatalf("life %d: %s", n, stderr.String())
		}
	}
	for n := range lives {
		live(n, time.Duration(50+random.IntN(400))*time.Millisecond)
		if n%4 == 3 { // what a kill in the middle of a write leaves
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
	live(lives, 0)

	mustRun(t, exit.OK, "verify", dir)
	keys := committedKeys(t, dir)
	if n := len(keys); n != total*samples || len(slices.Compact(keys)) != n {
		t.Errorf("%d samples are committed, %d of them different, want %d", n, len(slices.Compact(keys)), total*samples)
	}
	if len(told) != total || len(accepted) != total {
		t.Errorf("%d groups were told and %d tasks accepted, want %d", len(told), len(accepted), total)
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
