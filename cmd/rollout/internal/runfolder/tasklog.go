package runfolder

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/collector"
)

// This file stores the tasks of a streaming run (collect --stream). The run's tasks.jsonl only
// grows at the end. A task is accepted once its whole line is durable. Bytes after the last line
// feed are not part of an accepted task. run.json contains the digest of the file at the start of
// the last invocation.

// ErrNoMore is the error for a task that arrives after [TaskLog.End].
var ErrNoMore = errors.New("no more tasks are accepted")

// NoTasks returns an empty set of tasks for a streaming run.
func NoTasks(dir string, mode fs.FileMode) (*TaskSet, error) {
	if dir == "" {
		return &TaskSet{grows: true}, nil
	}
	s, err := newSpool(dir, mode)
	if err != nil {
		return nil, err
	}
	defer s.discard()
	set, err := s.finish()
	if err == nil {
		set.grows, set.marks = true, map[taskHash]taskMark{}
	}
	return set, err
}

// streamNow reads the accepted tasks of a streaming run. If a killed process left an incomplete
// last line, streamNow removes that line. The parameter keep is true if more tasks will arrive.
func (e *Earlier) streamNow(l *config.Loader, keep bool) (_ *TaskSet, bad exit.Complaints, err error) {
	if given := l.ByKey["tasks.file"].Given(); given != "" && !keep {
		return nil, exit.Complaints{fmt.Errorf("tasks.file: the run takes tasks from a stream; to add tasks, use --stream%s", given)}, nil
	}
	set, err := e.readStream(l, keep)
	return set, nil, err
}

func (e *Earlier) readStream(l *config.Loader, keep bool) (*TaskSet, error) {
	dir := l.Config.Output.Dir
	set := &TaskSet{path: filepath.Join(dir, TasksFile), own: true, grows: keep}
	if keep {
		set.marks = map[taskHash]taskMark{}
	}
	f, err := os.Open(set.path)
	if err != nil {
		return nil, exit.With(exit.Storage, err)
	}
	defer func() { _ = f.Close() }() // read only
	sum := sha256.New()
	lines := bufio.NewReaderSize(f, 64<<10)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF):
			set.digest = hex.EncodeToString(sum.Sum(nil))
			if len(line) > 0 && e.Folder != nil {
				err = cutFile(set.path, set.bytes)
				return set, exit.With(exit.Storage, err)
			}
			return set, nil
		case err != nil:
			return nil, exit.With(exit.Storage, err)
		}
		t, err := tasks.ParseTask(bytes.TrimSpace(line))
		if err != nil {
			return nil, exit.Hint(exit.With(exit.Verify, fmt.Errorf("%s:%d: %w", set.path, n, err)), restoreTasks)
		}
		_, _ = sum.Write(line) // never fails
		set.bytes += int64(len(line))
		set.Tasks++
		set.Samples += samplesOf(t.Samples, l.Config.Tasks.Samples)
		if keep {
			set.marks[hashOf(t.ID)] = markOf(&t)
		}
	}
}

func cutFile(path string, to int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(to), f.Sync(), f.Close())
}

// A TaskLog accepts tasks during the run. It is safe for concurrent use.
type TaskLog struct {
	file  *os.File
	begin int64 // size of the file when it was opened

	mu      sync.Mutex
	change  *sync.Cond
	marks   map[taskHash]taskMark
	size    int64 // bytes written
	durable int64 // bytes synced, always whole lines
	syncing bool
	ended   bool // no more tasks are accepted
	stopped bool // no more tasks are delivered
	err     error
}

// OpenTaskLog opens a run's tasks.jsonl for appending.
func (f *Folder) OpenTaskLog(set *TaskSet) (*TaskLog, error) {
	path := f.TasksPath()
	file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if errors.Is(err, fs.ErrPermission) { // the run started with a fixed set of tasks, and its file is read-only
		if info, serr := os.Stat(path); serr == nil && os.Chmod(path, info.Mode().Perm()|0o200) == nil {
			file, err = os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
		}
	}
	if err != nil {
		return nil, exit.With(exit.Storage, err)
	}
	l := &TaskLog{file: file, begin: set.bytes, size: set.bytes, durable: set.bytes, marks: set.marks}
	l.change = sync.NewCond(&l.mu)
	return l, nil
}

// An Added is the result of adding one task.
type Added struct {
	Again bool  // the task has been added before
	Err   error // why the task is rejected: another task has the same id
}

// Add appends the new tasks in the batch. A task without an Err is accepted once Wait(end) has
// returned nil. If Add returns an error (a storage error or ErrNoMore), none of the batch's tasks
// is accepted.
func (l *TaskLog) Add(batch []*collector.Task) (_ []Added, end int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, 0, l.err
	}
	if l.ended {
		return nil, 0, ErrNoMore
	}
	var buf bytes.Buffer
	now := time.Now()
	enc := format.NewJSONEncoder(&buf)
	out := make([]Added, len(batch))
	for i, t := range batch {
		id, mark := hashOf(t.ID), markOf(t)
		had, known := l.marks[id]
		switch {
		case known && had == mark:
			out[i].Again = true
		case known:
			out[i].Err = fmt.Errorf("id %q belongs to an accepted task with different messages, agent, answer, metadata or samples", t.ID)
		default:
			if err := enc.Encode(tasks.LineOf(t, now)); err != nil {
				out[i].Err = err // cannot happen: the JSON was validated
				continue
			}
			l.marks[id] = mark
		}
	}
	if buf.Len() > 0 {
		if _, err := l.file.Write(buf.Bytes()); err != nil {
			_ = l.file.Truncate(l.size) // if Truncate fails, the next process truncates the file
			return nil, 0, l.fail(err)
		}
		l.size += int64(buf.Len())
	}
	return out, l.size, nil
}

// Has reports whether a task with the given id has been added.
func (l *TaskLog) Has(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, has := l.marks[hashOf(id)]
	return has
}

// Wait blocks until the first end bytes of the file are durable. Concurrent calls share one sync.
func (l *TaskLog) Wait(end int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sync(end)
}

// sync implements Wait. The caller holds l.mu.
func (l *TaskLog) sync(to int64) error {
	for l.durable < to && l.err == nil {
		if l.syncing {
			l.change.Wait()
			continue
		}
		l.syncing = true
		end := l.size
		l.mu.Unlock()
		err := l.file.Sync()
		l.mu.Lock()
		l.syncing = false
		if err != nil {
			_ = l.fail(err)
			break
		}
		l.durable = end
		l.change.Broadcast()
	}
	return l.err
}

// fail records a storage error and stops accepting tasks. The caller holds l.mu.
func (l *TaskLog) fail(err error) error {
	if l.err == nil {
		l.err = exit.With(exit.Storage, fmt.Errorf("cannot write the run's tasks: %w", err))
	}
	l.change.Broadcast()
	return l.err
}

// Fail stops accepting tasks. [TaskLog.Follow] yields err after the last accepted task.
func (l *TaskLog) Fail(err error) { l.set(func() { l.err = cmp.Or(l.err, err) }) }

// End stops accepting tasks. Accepted tasks are still delivered.
func (l *TaskLog) End() { l.set(func() { l.ended = true }) }

// Stop stops accepting tasks and delivering them.
func (l *TaskLog) Stop() { l.set(func() { l.ended, l.stopped = true, true }) }

func (l *TaskLog) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	l.change.Broadcast()
}

// Close closes the file. No other method can be called afterwards.
func (l *TaskLog) Close() error { return l.file.Close() }

// Known yields the tasks that were in the file when it was opened.
func (l *TaskLog) Known() iter.Seq2[collector.Task, error] {
	return tasks.ReadLines(io.NewSectionReader(l.file, 0, l.begin), TasksFile)
}

// Follow yields the tasks accepted since the file was opened. It waits for more tasks until End,
// Stop or Fail is called.
func (l *TaskLog) Follow() iter.Seq2[collector.Task, error] {
	return func(yield func(collector.Task, error) bool) {
		for t, err := range tasks.ReadLines(&taskReader{log: l, at: l.begin}, TasksFile) {
			l.mu.Lock()
			stopped, failed := l.stopped, l.err
			l.mu.Unlock()
			if err != nil {
				err = cmp.Or(failed, err) // prefer l.err, because it has an exit code
			}
			if stopped || !yield(t, err) {
				return
			}
		}
	}
}

type taskReader struct {
	log *TaskLog
	at  int64
}

func (r *taskReader) Read(p []byte) (int, error) {
	l := r.log
	l.mu.Lock()
	for r.at >= l.durable && !l.ended && l.err == nil {
		l.change.Wait()
	}
	if l.ended && !l.stopped {
		_ = l.sync(l.size) // also sync tasks added just before End; a failure is recorded in l.err
	}
	left, stopped, err := l.durable-r.at, l.stopped, l.err
	l.mu.Unlock()
	switch {
	case stopped || left == 0 && err == nil:
		return 0, io.EOF
	case left == 0:
		return 0, err
	}
	n, err := l.file.ReadAt(p[:min(int64(len(p)), left)], r.at)
	r.at += int64(n)
	return n, err
}

// CountTasks updates the task counts of a streaming run from its tasks, because the counts in
// run.json are from the start of the last invocation. It does not count an incomplete last line.
func (i *Info) CountTasks(dir string) error {
	if !i.Tasks.Stream {
		return nil
	}
	had, err := i.taskSettings()
	if err != nil {
		return err
	}
	count, samples := 0, 0
	for t, err := range tasks.Read(filepath.Join(dir, TasksFile), nil) {
		if _, bad := errors.AsType[*tasks.BadError](err); bad {
			break
		}
		if err != nil {
			return err
		}
		count++
		samples += samplesOf(t.Samples, had.Tasks.Samples)
	}
	i.Tasks.Tasks, i.Tasks.Planned = count, plannedSamples(had, &TaskSet{Samples: samples})
	return nil
}
