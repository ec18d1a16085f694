// Package stream lets a run take tasks as they come, and tells what becomes of their groups.
//
//	intake.go    tasks from readers and from the socket: checked, made durable, given on
//	lines.go     the lines of a reader, of which any may be bad
//	tracker.go   commits become whole groups: events, acknowledgement, what the pace counts
//	recall.go    the figures of groups that are told again
//	judge.go     which groups are marked with keep=false
//
// An accepted task is in tasks.jsonl of the run and nowhere else: the collector reads it from
// there. So a producer that never stops costs no memory but 40 bytes a task, by which a task
// that comes again is known.
package stream

import (
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/collector"
)

// MaxWaiting is about how many tasks may be accepted and not begun. Further ones wait in their
// pipe or connection.
const MaxWaiting = 4096

// Config is what an Intake needs.
type Config struct {
	Log *runfolder.TaskLog
	// Samples is the number of samples of a task that does not say its own.
	Samples int
	// Check looks at a task for what only the settings of the run can say. It is called from
	// one goroutine at a time.
	Check func(*collector.Task) error
	// Accepted is called with the number of samples of each task that is new. It is called from
	// one goroutine at a time.
	Accepted func(samples int)
}

// A Receipt says what became of a task.
type Receipt struct {
	Group   string // collector.GroupID of the task
	Samples int
	Again   bool  // it was accepted before
	Err     error // why it is refused; nil: it is accepted
}

// An Intake takes the tasks of a run as they come. Its methods may be called from many
// goroutines.
type Intake struct {
	cfg Config

	mu      sync.Mutex
	change  *sync.Cond
	waiting map[string]struct{} // groups that this process accepted and that have not begun
	why     string              // of the first End; empty: tasks are taken
	crowded bool                // by Crowd

	checking sync.Mutex
}

// New makes an Intake.
func New(cfg Config) *Intake {
	in := &Intake{cfg: cfg, waiting: map[string]struct{}{}}
	in.change = sync.NewCond(&in.mu)
	return in
}

// End ends the taking of tasks. What was accepted is still given to the collector. Only the
// first why counts.
func (in *Intake) End(why string) {
	in.mu.Lock()
	if in.why == "" {
		in.why = why
	}
	in.change.Broadcast()
	in.cfg.Log.End() // under the lock: what Add still takes is counted before End returns
	in.mu.Unlock()
}

// Stop ends the giving of tasks to the collector as well.
func (in *Intake) Stop(why string) {
	in.End(why)
	in.cfg.Log.Stop()
}

// Why returns why no tasks are taken any more; empty: they are.
func (in *Intake) Why() string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.why
}

// Add takes tasks, in their place among the others. The function that it returns waits until
// those that are accepted are durable, and then returns one receipt for each, in their order.
// Add waits while MaxWaiting tasks are accepted and not begun, and after Crowd(true).
func (in *Intake) Add(batch ...*collector.Task) func() []Receipt {
	out := make([]Receipt, len(batch))
	var good []*collector.Task
	var at []int // their places in batch
	closed := in.room()
	for i, t := range batch {
		if out[i].Err = closed; closed == nil {
			out[i].Err = in.check(t)
		}
		if out[i].Err != nil {
			continue
		}
		out[i].Group, out[i].Samples = collector.GroupID(t), t.Samples
		if t.Samples == 0 {
			out[i].Samples = in.cfg.Samples
		}
		good, at = append(good, t), append(at, i)
	}
	in.mu.Lock() // until the tasks are noted, because one may begin at once
	added, end, err := in.cfg.Log.Add(good)
	for k := range added {
		r := &out[at[k]]
		if r.Again, r.Err = added[k].Again, added[k].Err; added[k] == (runfolder.Added{}) {
			in.waiting[r.Group] = struct{}{}
			in.cfg.Accepted(r.Samples)
		}
	}
	in.mu.Unlock()
	return func() []Receipt {
		if err == nil && len(good) > 0 {
			err = in.cfg.Log.Wait(end)
		}
		if errors.Is(err, runfolder.ErrNoMore) {
			err = in.closed()
		}
		for _, i := range at {
			if err != nil {
				out[i].Err = err
			}
		}
		return out
	}
}

// Crowd lets no task be taken from Crowd(true) to Crowd(false): whoever tells what becomes of
// them has more to tell than it may keep.
func (in *Intake) Crowd(on bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.crowded = on
	in.change.Broadcast()
}

// Begun notes that a sample of the group has begun, or that none will, and reports whether the
// group was waiting for that.
func (in *Intake) Begun(group string) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	_, waited := in.waiting[group]
	if waited {
		delete(in.waiting, group)
		in.change.Broadcast()
	}
	return waited
}

// room waits until a task may be taken, or returns why none is taken any more.
func (in *Intake) room() error {
	in.mu.Lock()
	for (len(in.waiting) >= MaxWaiting || in.crowded) && in.why == "" {
		in.change.Wait()
	}
	in.mu.Unlock()
	return in.closed()
}

// closed is the error of a task that comes too late.
func (in *Intake) closed() error {
	if why := in.Why(); why != "" {
		return &ClosedError{why}
	}
	return nil
}

// A ClosedError is why a task is refused that comes after the end of the tasks.
type ClosedError struct{ why string }

func (e *ClosedError) Error() string { return "no more tasks are taken: " + e.why }

func (in *Intake) check(t *collector.Task) error {
	in.checking.Lock()
	defer in.checking.Unlock()
	err := in.cfg.Check(t)
	if bad, ok := errors.AsType[*tasks.BadError](err); ok {
		return bad.Err // its place is told beside it
	}
	return err
}

// Known yields the tasks that the run had when this process began.
func (in *Intake) Known() iter.Seq2[collector.Task, error] {
	return tasks.ReadLines(in.cfg.Log.Known(), runfolder.TasksFile)
}

// More yields what is accepted after that, and waits for it. It ends after End, when
// everything was yielded, and after Stop. It is collector.Config.More.
func (in *Intake) More(ctx context.Context) iter.Seq2[*collector.Task, error] {
	return func(yield func(*collector.Task, error) bool) {
		defer context.AfterFunc(ctx, in.cfg.Log.Stop)()
		for t, err := range tasks.ReadLines(in.cfg.Log.Follow(), runfolder.TasksFile) {
			if in.cfg.Log.Stopped() {
				return
			}
			if failed := in.cfg.Log.Err(); err != nil && failed != nil {
				err = failed // with its exit code
			}
			if !yield(&t, err) {
				return
			}
		}
	}
}
