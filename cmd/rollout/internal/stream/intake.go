// Package stream allows a run to accept tasks while it runs, and reports the outcomes of the tasks'
// groups.
//
//	intake.go    accepts tasks from readers and the socket: validates, stores and passes them on
//	lines.go     reads lines, any of which can be invalid
//	tracker.go   turns commits into whole groups: events, acknowledgements, counts for the pacer
//	recall.go    restores the figures of groups that are reported again
//	judge.go     decides which groups are marked with keep=false
//
// Accepted tasks are stored only in the run's tasks.jsonl. The collector reads them from this file.
// So even with an endless producer, the process needs only 40 bytes of memory per task, to
// recognize repeated tasks.
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

// MaxWaiting is the approximate maximum number of tasks that are accepted but have not started.
// Further tasks wait in their pipe or connection.
const MaxWaiting = 4096

// Config configures an Intake.
type Config struct {
	Log *runfolder.TaskLog
	// Samples is the number of samples of a task that does not set its own number.
	Samples int
	// Check validates a task against the run's settings. It is called by one goroutine at a time.
	Check func(*collector.Task) error
	// Accepted is called with the number of samples of each new task. It is called by one goroutine
	// at a time.
	Accepted func(samples int)
}

// A Receipt is the result of adding one task.
type Receipt struct {
	Group   string // collector.GroupID of the task
	Samples int
	Again   bool  // the same task was accepted before
	Err     error // why the task was rejected; nil if it was accepted
}

// An Intake accepts tasks during a run. It is safe for concurrent use.
type Intake struct {
	cfg Config

	mu      sync.Mutex
	change  *sync.Cond
	waiting map[string]struct{} // groups that this process has accepted and that have not started
	why     string              // reason passed to the first End; empty while tasks are accepted
	unread  bool                // set by HoldUnread

	checking sync.Mutex
}

// New returns an Intake.
func New(cfg Config) *Intake {
	in := &Intake{cfg: cfg, waiting: map[string]struct{}{}}
	in.change = sync.NewCond(&in.mu)
	return in
}

// End stops accepting tasks. The collector still receives the tasks that have been accepted. Only
// the first call sets the reason.
func (in *Intake) End(why string) {
	in.mu.Lock()
	if in.why == "" {
		in.why = why
	}
	in.change.Broadcast()
	in.cfg.Log.End() // under the lock, so that tasks accepted by a concurrent Add are counted before End returns
	in.mu.Unlock()
}

// Stop stops accepting tasks and passing tasks to the collector.
func (in *Intake) Stop(why string) {
	in.End(why)
	in.cfg.Log.Stop()
}

// Why returns the reason why tasks are no longer accepted. It returns "" while tasks are accepted.
func (in *Intake) Why() string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.why
}

// Add adds tasks in order. The returned function blocks until the accepted tasks are durable. It
// returns one receipt per task, in order. Add blocks while MaxWaiting accepted tasks have not
// started, and between HoldUnread(true) and HoldUnread(false).
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
	in.mu.Lock() // held until in.waiting contains the tasks, because a task can start at once
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

// HoldUnread makes Add block while too many events are unread. The argument true starts the block,
// and false ends it.
func (in *Intake) HoldUnread(on bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.unread = on
	in.change.Broadcast()
}

// Begun records that a sample of the group has started, or that none will be started. It reports
// whether the group was waiting.
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

// room blocks until a task can be accepted. It returns an error if tasks are no longer accepted.
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

// A ClosedError is the error for a task that arrives after End.
type ClosedError struct{ why string }

func (e *ClosedError) Error() string { return "no more tasks are accepted (reason: " + e.why + ")" }

func (in *Intake) check(t *collector.Task) error {
	in.checking.Lock()
	defer in.checking.Unlock()
	err := in.cfg.Check(t)
	if bad, ok := errors.AsType[*tasks.BadError](err); ok {
		return bad.Err // the caller adds the location of the task
	}
	return err
}

// Earlier yields the tasks that the run had when this process started.
func (in *Intake) Earlier() iter.Seq2[collector.Task, error] {
	return in.cfg.Log.Known()
}

// More yields the tasks accepted since this process started, and waits for more. After End, it ends
// once it has yielded all accepted tasks. After Stop, it ends at once. Use the method as
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
