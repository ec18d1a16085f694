package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/store"
	"github.com/rollout-rl/rollout/tokenize"
)

// A Config configures a Worker.
type Config struct {
	Store store.Store
	Fleet *Fleet
	// RunID is the run id of the collector. It belongs to the spool: all processes that use the spool have
	// the same, and no other process has it.
	RunID string
	// Dir is the spool, a folder on a local disk. The caller has locked it.
	Dir string
	// Sink configures the datasets. The worker sets the run id, the store, the epoch and the worker.
	Sink sink.Config
	// Slots returns the number of samples that the collector can work on at present. It is called from
	// one goroutine at a time.
	Slots func() int
	// Logger receives a line for each partition that is claimed, sealed, left or lost. Default: none.
	Logger *slog.Logger
	// Damaged is called for each partition that the worker skips because its objects in the store are
	// damaged. It must not block. Default: none.
	Damaged func(error)
	// Waits is called with true when the worker waits for the store, so that it starts no attempts and claims
	// nothing, and with false when it continues. It must not block. Default: none.
	Waits func(bool)
	// Clock is the monotonic clock of the leases. Default: the clock of the machine.
	Clock Clock
}

// A Worker is one process of a fleet, as the task source and the sink of a collector:
//
//	w, err := fleet.Open(cfg)
//	…
//	g.Go(func() error { return w.Run(ctx) })
//	cfg.Sink, cfg.Admit, cfg.More = w, w.Admit, w.Tasks
//	cfg.Left = journal.Resume(w)
//	… c.Run(ctx, w.Known()) …
//	err = w.Close(ctx)
type Worker struct {
	cfg     Config
	objects store.Store
	clock   Clock
	log     *slog.Logger
	name    string // in claims and heartbeats: the run id and a random text

	// These fields belong to Open, and then to the goroutine of Tasks.
	search
	known []*claimed // partitions that the spool had

	killed  context.Context         //nolint:containedctx // done when Run's context is done
	kill    context.CancelCauseFunc // ends killed
	failed  context.Context         //nolint:containedctx // done when the worker has failed or was killed
	fail    context.CancelCauseFunc // ends failed; only the first call counts
	stop    context.Context         //nolint:containedctx // is done, for Close of a dataset that must not wait
	wake    chan struct{}           // signals Tasks that a sample or a partition has ended
	closing chan struct{}           // closed by Close
	ended   chan struct{}           // closed when Run has returned
	closed  sync.Once               // for closing
	writers sync.WaitGroup          // counts the datasets that are being written

	mu      sync.Mutex
	stopped bool // no dataset starts any more
	waits   bool // the last argument of Config.Waits
	pulse   pulse
	claimed map[int]*claimed // by partition; a lost one stays until its samples have ended
	sealed  map[int]bool     // partitions that are known to be sealed
	damaged map[int]bool     // partitions that the worker skips
	stats   sink.Stats       // of datasets that are closed
}

// Open opens a worker with its spool. It sends the first heartbeat, reads the heartbeats of the other
// workers, and claims the partitions of the process that used the spool before. If the store is away, Open
// waits.
func Open(cfg Config) (*Worker, error) {
	if cfg.Clock == nil {
		cfg.Clock = machineClock{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Damaged == nil {
		cfg.Damaged = func(error) {}
	}
	if cfg.Waits == nil {
		cfg.Waits = func(bool) {}
	}
	if cfg.Sink.FS == nil {
		cfg.Sink.FS = sink.OS()
	}
	host, _ := os.Hostname() // only for people
	w := &Worker{
		cfg: cfg, objects: cfg.Store, clock: cfg.Clock, log: cfg.Logger, name: cfg.RunID + "-" + rand.Text()[:10], search: newSearch(cfg.Fleet),
		wake: make(chan struct{}, 1), closing: make(chan struct{}), ended: make(chan struct{}),
		claimed: map[int]*claimed{}, sealed: map[int]bool{}, damaged: map[int]bool{},
		pulse: pulse{Heartbeat: Heartbeat{RunID: cfg.RunID, Host: host, PID: os.Getpid(), Claims: map[int]Claim{}}, beats: make(chan struct{})},
	}
	w.killed, w.kill = context.WithCancelCause(context.Background())
	w.failed, w.fail = context.WithCancelCause(w.killed)
	stop, end := context.WithCancel(context.Background())
	end()
	w.stop = stop
	for p, of := range cfg.Fleet.Partitions {
		if of.Tasks == 0 {
			w.sealed[p] = true
		}
	}
	for _, step := range []func() error{func() error { return w.sendBeat(w.clock.Now()) }, w.survey, w.reclaim} {
		if err := step(); err != nil {
			for _, c := range w.known { // their samples are committed
				w.pulse.Claims[c.partition] = Claim{c.epoch, stateLeft}
			}
			if len(w.known) > 0 {
				_ = w.sendBeat(w.clock.Now()) // without it, the others wait for a minute
			}
			return nil, err
		}
	}
	return w, nil
}

// Name returns the name of the worker in its claims and its heartbeat.
func (w *Worker) Name() string { return w.name }

// Run sends heartbeats and writes the samples. It returns when ctx is done, when the worker has failed, or
// when Close was called and all accepted samples have been committed. Then all of its goroutines have
// ended, and the done function of every accepted sample has been called. The last heartbeat hands the
// partitions that are not sealed to other workers. If the worker has failed, it keeps the one that failed
// for a minute, because a process with the same spool can still commit its samples.
func (w *Worker) Run(ctx context.Context) error {
	defer close(w.ended)
	defer context.AfterFunc(ctx, func() { w.kill(context.Cause(ctx)) })()
	beating, stop := context.WithCancel(w.killed)
	defer stop()
	var beats sync.WaitGroup
	beats.Go(func() {
		if err := w.beat(beating); err != nil {
			w.fail(fmt.Errorf("%w: %w", collector.ErrStorage, err))
		}
	})
	for _, c := range w.known {
		_ = w.start(c) // cannot fail yet
	}
	select {
	case <-w.closing:
	case <-w.failed.Done():
	}
	w.mu.Lock()
	w.stopped = true
	if w.killed.Err() == nil { // otherwise the datasets abandon their open shards
		for _, c := range w.claimed {
			_ = c.dataset.Close(w.stop) // does not wait; write returns the error
		}
	}
	w.mu.Unlock()
	w.writers.Wait()
	stop()
	beats.Wait()
	if w.failed.Err() == nil {
		return w.sendBeat(w.clock.Now())
	}
	if w.killed.Err() == nil {
		_ = w.sendBeat(w.clock.Now()) // without it, the others wait for a minute
	}
	return context.Cause(w.failed)
}

// Close makes Append refuse further samples, and makes Run commit the accepted samples and return. The
// caller must have ended Tasks. Close returns the cause if the worker has failed. If ctx is done before Run
// returns, Close returns the cause of ctx.
func (w *Worker) Close(ctx context.Context) error {
	w.closed.Do(func() { close(w.closing) })
	select {
	case <-w.ended:
		return context.Cause(w.failed) // nil if it has not failed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Known yields the tasks of the partitions that the spool had.
func (w *Worker) Known() iter.Seq2[*collector.Task, error] {
	return func(yield func(*collector.Task, error) bool) {
		for _, c := range w.known {
			for _, t := range c.tasks {
				if !yield(t, nil) {
					return
				}
			}
		}
	}
}

// Tasks yields the tasks of one partition after another. It claims a partition when the collector has fewer
// open samples than Config.Slots. It ends when ctx is done or all partitions are sealed or damaged. An error
// wraps collector.ErrStorage, and the worker has failed. Use the method as collector.Config.More, and call Run
// before.
func (w *Worker) Tasks(ctx context.Context) iter.Seq2[*collector.Task, error] {
	return func(yield func(*collector.Task, error) bool) {
		for {
			c, err := w.next(ctx)
			if ctx.Err() != nil || c == nil && err == nil {
				return
			}
			if err != nil {
				w.fail(err)
				yield(nil, fmt.Errorf("%w: %w", collector.ErrStorage, err))
				return
			}
			for _, t := range c.tasks {
				if !yield(t, nil) {
					return
				}
			}
		}
	}
}

// Len and Find implement journal.Dataset. They describe the partitions that this worker has taken over.
func (w *Worker) Len() int { return w.cfg.Fleet.Samples() }

// Find is like the method of sink.Ledger.
func (w *Worker) Find(key string) (attempt int, class string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.claimed {
		if attempt, class, ok = c.ledger.Find(key); ok {
			return attempt, class, ok
		}
	}
	return 0, "", false
}

// Unsealed returns the number of partitions that are not known to be sealed.
func (w *Worker) Unsealed() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range w.ends {
		if !w.sealed[p] {
			n++
		}
	}
	return n
}

// Append adds a sample to the dataset of its partition, like the method of sink.Dataset. If another worker
// has claimed the partition, the error or the argument of done wraps collector.ErrMoved.
func (w *Worker) Append(ctx context.Context, s *tokenize.Sample, done func(error)) error {
	p, c, lost := w.claimOf(s.TaskID)
	err := moved(p)
	if !lost {
		err = c.dataset.Append(ctx, s, func(err error) {
			if isLost(err) {
				err = moved(p)
				c.moved.Add(1)
			}
			done(err)
		})
	}
	if isLost(err) {
		err = moved(p)
	}
	_, refused := errors.AsType[*sink.SampleError](err)
	switch {
	case err == nil || errors.Is(err, collector.ErrMoved):
		w.settle(c, 1)
	case !refused && !errors.Is(err, sink.ErrClosed) && ctx.Err() == nil:
		w.fail(err) // the reason comes before its consequences in other partitions
	}
	return err
}

// claimOf returns the partition of a task and this worker's claim, and whether another worker has the
// partition. The claim is nil if this worker no longer knows the partition.
func (w *Worker) claimOf(task string) (p int, c *claimed, lost bool) {
	p = PartitionOf(task, len(w.cfg.Fleet.Partitions))
	w.mu.Lock()
	defer w.mu.Unlock()
	c = w.claimed[p]
	return p, c, c == nil || c.lost
}

func moved(p int) error { return fmt.Errorf("partition %04d: %w", p, collector.ErrMoved) }

// isLost reports whether a dataset has ended because another worker has claimed or sealed it.
func isLost(err error) bool {
	return errors.Is(err, sink.ErrFenced) || errors.Is(err, sink.ErrSealed) || errors.Is(err, collector.ErrMoved)
}

// Stats returns the sums over the datasets of this worker.
func (w *Worker) Stats() sink.Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.stats
	for _, c := range w.claimed {
		if !c.ended {
			s.Add(c.dataset.Stats())
		}
	}
	return s
}

// signal wakes Tasks.
func (w *Worker) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *Worker) folder(p int) string {
	return filepath.Join(w.cfg.Dir, filepath.FromSlash(PartitionName(p)))
}
