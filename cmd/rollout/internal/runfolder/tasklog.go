package runfolder

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/plainjson"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/collector"
)

// This file keeps the tasks of a run that takes tasks as they come (collect --stream). Its
// tasks.jsonl only grows at its end. A task is accepted once its whole line is durable; what
// stands behind the last line feed was never accepted. run.json has the digest of the bytes
// that the file had when the last invocation began.

// ErrNoMore is the error of a task that comes after the end of the tasks.
var ErrNoMore = errors.New("no more tasks are taken")

// NoTasks returns the tasks of a run that begins without any and takes them as they come.
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

// streamNow reads the accepted tasks of a run that takes tasks as they come, or from now on
// does. It cuts what a killed process left behind the last whole line. keep tells that more
// tasks are to come.
func (e *Earlier) streamNow(l *config.Loader, keep bool) (_ *TaskSet, bad exit.Complaints, err error) {
	if given := l.ByKey["tasks.file"].Given(); given != "" && !keep {
		return nil, exit.Complaints{fmt.Errorf("tasks.file: the run takes its tasks as they come: give --stream as well to add some%s", given)}, nil
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

// cutFile cuts a file to a length, durably.
func cutFile(path string, to int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(to), f.Sync(), f.Close())
}

// checkPrefix compares the beginning of the tasks of a stream with its digest in run.json.
func checkPrefix(path string, had *Tasks) (digest string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // read only
	sum := sha256.New()
	if _, err := io.CopyN(sum, f, had.Bytes); err != nil && !errors.Is(err, io.EOF) {
		return "", err // at its end the digest differs
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// A TaskLog takes tasks while the run goes on. Its methods may be called from many goroutines.
type TaskLog struct {
	file  *os.File
	begin int64 // what the file held when it was opened

	mu      sync.Mutex
	change  *sync.Cond
	marks   map[taskHash]taskMark
	size    int64 // written
	durable int64 // synced: whole lines
	syncing bool
	ended   bool // nothing is taken any more
	stopped bool // and nothing is given any more
	err     error
}

// OpenTaskLog opens the tasks of a run for more of them.
func (f *Folder) OpenTaskLog(set *TaskSet) (*TaskLog, error) {
	path := f.TasksPath()
	file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if errors.Is(err, fs.ErrPermission) { // the run began with known tasks
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

// An Added says what became of one task.
type Added struct {
	Again bool  // it was accepted before
	Err   error // why it is refused: another task has its id
}

// Add appends the tasks that are new. A task that it does not refuse is accepted once Wait
// returned nil for the end that Add returns. Its error is of the storage, or ErrNoMore: then no
// task of the batch is accepted.
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
	enc := plainjson.NewEncoder(&buf)
	out := make([]Added, len(batch))
	for i, t := range batch {
		id, mark := hashOf(t.ID), markOf(t)
		had, known := l.marks[id]
		switch {
		case known && had == mark:
			out[i].Again = true
		case known:
			out[i].Err = fmt.Errorf("id %q is that of a task with other messages, agent, answer, metadata or samples, which was accepted before", t.ID)
		default:
			if err := enc.Encode(tasks.LineOf(t, now)); err != nil {
				out[i].Err = err // of checked JSON: cannot happen
				continue
			}
			l.marks[id] = mark
		}
	}
	if buf.Len() > 0 {
		if _, err := l.file.Write(buf.Bytes()); err != nil {
			_ = l.file.Truncate(l.size) // if not, the next process cuts it
			return nil, 0, l.fail(err)
		}
		l.size += int64(buf.Len())
	}
	return out, l.size, nil
}

// Has reports whether a task with the id was accepted.
func (l *TaskLog) Has(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, has := l.marks[hashOf(id)]
	return has
}

// Wait returns when what Add appended up to end is durable. One sync serves all who wait.
func (l *TaskLog) Wait(end int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sync(end)
}

// sync is Wait. The mutex is held.
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

// fail notes that the storage failed: nothing is taken any more. The mutex is held.
func (l *TaskLog) fail(err error) error {
	if l.err == nil {
		l.err = exit.With(exit.Storage, fmt.Errorf("the tasks of the run: %w", err))
	}
	l.change.Broadcast()
	return l.err
}

// Fail ends the taking of tasks with an error. [TaskLog.Follow] returns it behind the last task
// that was accepted.
func (l *TaskLog) Fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
	l.change.Broadcast()
}

// Err returns the error that ended the taking of tasks; nil: none did.
func (l *TaskLog) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// End ends the taking of tasks. What was accepted is still given.
func (l *TaskLog) End() { l.set(func() { l.ended = true }) }

// Stop ends the giving of tasks as well.
func (l *TaskLog) Stop() { l.set(func() { l.ended, l.stopped = true, true }) }

func (l *TaskLog) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	l.change.Broadcast()
}

// Stopped reports whether Stop was called.
func (l *TaskLog) Stopped() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stopped
}

// Close closes the file. Nothing else may be called any more.
func (l *TaskLog) Close() error { return l.file.Close() }

// Known reads the tasks that the file held when it was opened.
func (l *TaskLog) Known() io.Reader { return io.NewSectionReader(l.file, 0, l.begin) }

// Follow reads what is accepted after that, in whole lines. It waits for more, until End or
// Stop is called.
func (l *TaskLog) Follow() io.Reader { return &taskReader{log: l, at: l.begin} }

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
		_ = l.sync(l.size) // what came just before the end is accepted too; the error is l.err
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

// CountTasks brings the counts of tasks up to date that a run takes as they come: run.json has
// those of the moment when the last invocation began. A line that is being written is not
// counted.
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
	i.Tasks.Tasks, i.Tasks.Planned = count, Planned(had, &TaskSet{Samples: samples})
	return nil
}
