package rescore

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/reward"
	"github.com/rollout-rl/rollout/sink"
)

// A taskIndex finds the task of a group in the run's tasks.jsonl. It takes about 50 bytes per task.
type taskIndex struct {
	file  *os.File
	lines map[sink.KeyID]line // by group id

	first      *collector.Task // nil if the run has no tasks
	n          int
	unscorable int // tasks without an answer that the scorer can use
}

type line struct {
	at, bytes int64
}

func openTasks(dir string, info *runfolder.Info, checker reward.Checker) (_ *taskIndex, err error) {
	if _, err := runfolder.CheckSnapshot(dir, info); err != nil {
		return nil, err
	}
	f, err := os.Open(filepath.Join(dir, runfolder.TasksFile))
	if err != nil {
		return nil, exit.With(exit.Storage, err)
	}
	x := &taskIndex{file: f, lines: map[sink.KeyID]line{}}
	if err := x.read(checker); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return x, nil
}

func (x *taskIndex) read(checker reward.Checker) error {
	lines := bufio.NewReaderSize(x.file, 256<<10)
	for at := int64(0); ; {
		body, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return nil // a killed process can leave a part of a line
		}
		if err != nil {
			return exit.With(exit.Storage, err)
		}
		where := line{at, int64(len(body))}
		at += where.bytes
		if len(bytes.TrimSpace(body)) == 0 {
			continue
		}
		t, err := tasks.ParseTask(bytes.TrimSpace(body))
		if err != nil {
			return exit.With(exit.Verify, fmt.Errorf("%s: %w", x.file.Name(), err))
		}
		x.lines[sink.IDOf(collector.GroupID(&t))] = where
		if x.n++; x.first == nil {
			x.first = &t
		}
		if checker != nil && checker.Check(&t) != nil {
			x.unscorable++
		}
	}
}

// of returns the task of a row. If the run does not have the task, because it was imported, only its id and its
// metadata are known.
func (x *taskIndex) of(r *sink.StoredRow) (*collector.Task, error) {
	t := &collector.Task{ID: r.TaskID}
	at, ok := x.lines[sink.IDOf(r.GroupID)]
	if ok {
		body := make([]byte, at.bytes)
		if _, err := x.file.ReadAt(body, at.at); err != nil {
			return nil, exit.With(exit.Storage, err)
		}
		read, err := tasks.ParseTask(bytes.TrimSpace(body))
		if err != nil {
			return nil, exit.With(exit.Verify, fmt.Errorf("%s: %w", x.file.Name(), err))
		}
		t, t.ID = &read, r.TaskID // the column has the task that the program of a session stated
	}
	if t.Metadata == nil && r.Metadata != nil {
		t.Metadata = []byte(*r.Metadata)
	}
	return t, nil
}

// scorable returns an error if no sample can be scored.
func (x *taskIndex) scorable(kind string, checker reward.Checker) error {
	switch {
	case checker == nil:
		return nil
	case x.n > 0 && x.unscorable < x.n:
		return nil
	case x.n > 0:
		return exit.Usagef("reward.kind %s needs an answer in the task, but none of the %d tasks has a usable answer", kind, x.n)
	}
	if err := checker.Check(&collector.Task{}); err != nil {
		return exit.Hint(exit.Usagef("reward.kind %s needs an answer in the task, but the run has no tasks", kind),
			"an import has no tasks; use a command, a Python function or regex, which can do without an answer")
	}
	return nil
}
