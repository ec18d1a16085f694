package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/journal"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
)

// finishRun adds the first done samples of a new run, one per task, to its dataset and journal, as
// if an earlier process had collected them.
func finishRun(tb testing.TB, dir string, done int) {
	tb.Helper()
	info, err := runfolder.Read(dir)
	if err != nil {
		tb.Fatal(err)
	}
	dataset, err := sink.Create(dir, sink.Config{RunID: info.ID, MaxShardBytes: 16 << 20, MaxShardAge: time.Hour})
	if err != nil {
		tb.Fatal(err)
	}
	notes, err := journal.Open(filepath.Join(dir, runfolder.JournalDir), journal.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	work := make(chan collector.Task)
	var g errgroup.Group
	g.Go(func() error { return dataset.Run(tb.Context()) })
	var writers errgroup.Group
	var mine sync.Mutex // guards the builder
	b := sinktest.NewBuilder(1)
	rows := b.Row(60, 40)
	for range 256 {
		writers.Go(func() error {
			for task := range work {
				mine.Lock()
				s := b.Sample(rows)
				mine.Unlock()
				s.Key, s.TaskID, s.GroupID = collector.SampleKey(&task, 0), task.ID, collector.GroupID(&task)
				s.Index, s.GroupSize, s.RolloutID = 0, 1, collector.RolloutID(s.Key, 1)
				if err := writeNotes(notes, s.Key); err != nil {
					return err
				}
				if err := dataset.Append(tb.Context(), s, func(error) {}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	n := 0
	for task, err := range tasks.Read((&runfolder.Folder{Dir: dir}).TasksPath(), nil) {
		if err != nil {
			tb.Fatal(err)
		}
		if n++; n > done {
			break
		}
		if n > 1 { // the first sample was collected
			work <- task
		}
	}
	close(work)
	for _, wait := range []func() error{writers.Wait, func() error { return dataset.Close(tb.Context()) }, g.Wait, notes.Close} {
		if err := wait(); err != nil {
			tb.Fatal(err)
		}
	}
}

func writeNotes(j *journal.Journal, key string) error {
	if err := j.Begin(collector.Attempt{Key: key, N: 1}, "http://127.0.0.1:8283"); err != nil {
		return err
	}
	if err := j.Agent(key, 1, "agent-7f3c2f0e-9a5c-4c0e-8d6b-0123456789ab"); err != nil {
		return err
	}
	if err := j.ServerRun(key, 1, "run-7f3c2f0e-9a5c-4c0e-8d6b-0123456789ab"); err != nil {
		return err
	}
	return j.End(key, 1, collector.ClassNone, false)
}

// manyTasks writes a file with n tasks. The simulated server plays the first one.
func manyTasks(tb testing.TB, n int) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "many.jsonl")
	f, err := os.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	for i := range n {
		fmt.Fprintf(f, "{\"id\": \"scripted-%07d\", \"prompt\": \"Question %d: what is %d plus %d? Think step by step and answer.\", \"answer\": \"%d\"}\n", i, i, i, i*7%1000, i+i*7%1000)
	}
	if err := f.Close(); err != nil {
		tb.Fatal(err)
	}
	return path
}
