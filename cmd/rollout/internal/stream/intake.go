// Package stream lets a run accept tasks while it runs, and reports the outcome of their groups.
//
//	intake.go    tasks from readers and from the socket: validated, made durable, passed on
//	lines.go     the lines of a reader, any of which can be bad
//	tracker.go   commits become whole groups: events, acknowledgement, counts for the pacer
//	recall.go    figures of groups that are reported again
//	judge.go     which groups are marked with keep=false
//
// Accepted tasks are stored only in the run's tasks.jsonl, from which the collector reads them. So
// an endless producer costs only 40 bytes of memory per task, to recognize a repeated task.
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

// MaxWaiting is the approximate limit of tasks that are accepted and not started. Further tasks
// wait in their pipe or connection.
const MaxWaiting = 4096

// Config configures an Intake.
type Config struct {
	Log *runfolder.TaskLog
	// Samples is the number of samples of a task that does not set its own.
	Samples int
	// Check validates a task against the run's settings. It is called from one goroutine at a time.
	Check func(*collector.Task) error
	// Accepted is called with the number of samples of each new task, from one goroutine at a time.
	Accepted func(samples int)
}

// A Receipt is the result for one task.
type Receipt struct {
	Group   string // collector.GroupID of the task
	Samples int
	Again   bool  // the task was accepted before
	Err     error // reason for a rejection; nil: accepted
}

// An Intake accepts tasks during a run. It is safe for concurrent use.
type Intake struct {
	cfg Config

	mu      sync.Mutex
	change  *sync.Cond
	waiting map[string]struct{} // groups that this process accepted and that have not started
	why     string              // reason passed to the first End; empty: tasks are accepted
	unread  bool                // set by HoldUnread

	checking sync.Mutex
}

// New returns an Intake.
func New(cfg Config) *Intake {
	in := &Intake{cfg: cfg, waiting: map[string]struct{}{}}
	in.change = sync.NewCond(&in.mu)
	return in
}

// End stops accepting tasks. The collector still gets the accepted tasks. Later calls do not change
// the reason why.
func (in *Intake) End(why string) {
	in.mu.Lock()
	if in.why == "" {
		in.why = why
	}
	in.change.Broadcast()
	in.cfg.Log.End() // under the lock, so that tasks accepted by a concurrent Add are counted before End returns
	in.mu.Unlock()
}

// Stop also stops passing tasks to the collector.
func (in *Intake) Stop(why string) {
	in.End(why)
	in.cfg.Log.Stop()
}

// Why returns the reason why tasks are no longer accepted, or "".
func (in *Intake) Why() string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.why
}

// Add adds tasks in order. The returned function blocks until the accepted tasks are durable. It
// returns one receipt for each task, in order. Add blocks while MaxWaiting accepted tasks have not
// started, and after HoldUnread(true).
func (in *Intake) Add(batch ...*collector.Task) func() []Receipt {
	out := make([]Receipt, len(batch))
	var good []*collector.Task
	var at []int // indexes into batch
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
	in.mu.Lock() // held until the tasks are recorded, because a task can start at once
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

// HoldUnread makes Add block while on is true, because too many events are unread.
func (in *Intake) HoldUnread(on bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.unread = on
	in.change.Broadcast()
}

// Begun records that a sample of the group has started, or that none will start. It reports whether
// the group was waiting.
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

// room blocks until a task can be accepted. It returns an error if no more tasks are accepted.
func (in *Intake) room() error {
	in.mu.Lock()
	for (len(in.waiting) >= MaxWaiting || in.unread) && in.why == "" {
		in.change.Wait()
	}
	in.mu.Unlock()
	return in.closed()
}

func (in *Intake) closed() error {
	if why := in.Why(); why != "" {
		return &ClosedError{why}
	}
	return nil
}

// A ClosedError rejects a task that arrives after End.
type ClosedError struct{ why string }

func (e *ClosedError) Error() string { return "no more tasks are accepted: " + e.why }

func (in *Intake) check(t *collector.Task) error {
	in.checking.Lock()
	defer in.checking.Unlock()
	err := in.cfg.Check(t)
	if bad, ok := errors.AsType[*tasks.BadError](err); ok {
		return bad.Err // the caller adds the place
	}
	return err
}

// Earlier yields the tasks that the run had when this process started.
func (in *Intake) Earlier() iter.Seq2[collector.Task, error] {
	return in.cfg.Log.Known()
}

// More yields the tasks accepted since this process started, and blocks for more. After End, it
// ends once all accepted tasks were yielded. After Stop, it ends at once. It is used as
// collector.Config.More.
func (in *Intake) More(ctx context.Context) iter.Seq2[*collector.Task, error] {
	return func(yield func(*collector.Task, error) bool) {
		defer context.AfterFunc(ctx, in.cfg.Log.Stop)()
		for t, err := range in.cfg.Log.Follow() {
			if !yield(&t, err) {
				return
			}
		}
	}
}
