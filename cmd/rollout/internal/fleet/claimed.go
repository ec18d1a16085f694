package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/frame"
)

// A claimed is a partition that this worker has claimed. Its mutable fields are guarded by Worker.mu.
type claimed struct {
	partition int
	epoch     int64
	tasks     []*collector.Task
	ledger    *sink.Ledger // the samples that were in the dataset before the claim
	dataset   *sink.Dataset
	writing   context.Context //nolint:containedctx // of write
	cancel    context.CancelCauseFunc

	open  int  // number of samples that the sink lacks and that have not moved
	lost  bool // another worker has claimed the partition
	ended bool // write has returned

	moved atomic.Int64 // number of accepted samples that another worker must run again
}

// claim claims a partition with an epoch, and commits the samples in the spool. It returns nil if another
// worker was faster. The samples in the spool are then dropped.
func (w *Worker) claim(p int, epoch int64) (_ *claimed, err error) {
	w.ends[p] = end{taken: true} // what was known before the claim is old now
	dir, cfg := w.folder(p), w.cfg.Sink
	if err := cfg.FS.MkdirAll(dir); err != nil {
		return nil, err
	}
	cfg.RunID, cfg.Store, cfg.Epoch, cfg.Worker = w.cfg.Fleet.ID, Dataset(w.objects, p), epoch, w.name
	c := &claimed{partition: p, epoch: epoch}
	c.tasks, err = w.cfg.Fleet.Tasks(w.objects, p) // damage must show before the claim
	if err == nil {
		c.dataset, err = sink.Create(dir, cfg)
	}
	if isLost(err) {
		return nil, w.drop(p)
	}
	if err == nil {
		c.ledger, err = c.dataset.Ledger()
	}
	if _, damaged := errors.AsType[*frame.CorruptError](err); damaged {
		return nil, exit.Refuse(exit.Verify, fmt.Errorf("%s: %w", dir, err), "pass another folder with --spool; the samples in this one are collected again")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", PartitionName(p), err)
	}
	for _, t := range c.tasks {
		group := collector.GroupID(t)
		for i := range t.Samples {
			if _, _, has := c.ledger.Find(group + "-" + strconv.Itoa(i)); !has {
				c.open++
			}
		}
	}
	c.writing, c.cancel = context.WithCancelCause(w.killed)
	w.mu.Lock()
	w.claimed[p], w.pulse.Claims[p] = c, Claim{Epoch: epoch}
	w.mu.Unlock()
	w.log.Info("claimed", "partition", p, "epoch", epoch, "samples", c.open, "recovered", c.dataset.Recovered().Replayed)
	return c, nil
}

// reclaim claims the partitions of the process that used the spool before. It drops those that another
// worker has claimed.
func (w *Worker) reclaim() error {
	folders, err := os.ReadDir(filepath.Join(w.cfg.Dir, partitionsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return exit.With(exit.Storage, err)
	}
	for _, f := range folders {
		p, err := strconv.Atoi(f.Name())
		if err != nil || p < 0 || p >= len(w.ends) || filepath.Base(PartitionName(p)) != f.Name() {
			return exit.Hint(exit.With(exit.Folder, fmt.Errorf("%s is not a partition of the fleet", filepath.Join(w.cfg.Dir, partitionsDir, f.Name()))), "remove it")
		}
		end, err := sink.ReadEnd(Dataset(w.objects, p), sink.End{})
		var c *claimed
		switch {
		case err != nil:
		case end.Sealed || !w.isOurs(end.Worker):
			err = w.drop(p)
		default:
			c, err = w.claim(p, end.Epoch+1)
		}
		if err = w.unlessDamaged(p, err); err != nil {
			return err
		}
		if c != nil {
			w.known = append(w.known, c)
		}
	}
	return nil
}

// drop removes a partition from the spool, with the samples that are in no commit.
func (w *Worker) drop(p int) error {
	dir, n := w.folder(p), 0
	if segments, err := os.ReadDir(filepath.Join(dir, "wal")); err == nil && len(segments) > 0 {
		log, err := sink.ReadLogIn(Dataset(w.objects, p), dir, nil)
		if err != nil {
			return err
		}
		for _, err := range log.Waiting() {
			if err == nil { // damage does not matter, because another worker collects the samples
				n++
			}
		}
	}
	if n > 0 {
		w.log.Warn("dropped", "partition", p, "samples", n)
	}
	return os.RemoveAll(dir)
}

// start starts the writing of a partition.
func (w *Worker) start(c *claimed) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return cmp.Or(context.Cause(w.failed), sink.ErrClosed)
	}
	w.writers.Go(func() { w.write(c) })
	return nil
}

// write writes the samples of a partition until the sink has all of them, or the partition is lost, or the
// worker ends. It then seals the partition, if no sample is left.
func (w *Worker) write(c *claimed) {
	defer c.cancel(nil)
	w.settle(c, 0)
	err := c.dataset.Run(c.writing)
	w.mu.Lock()
	state := stateLeft
	if c.open == 0 && !c.lost {
		state = StateSealed
	}
	w.mu.Unlock()
	if err == nil && state == StateSealed {
		err = c.dataset.Seal()
	}
	stats := c.dataset.Stats()
	if err == nil && stats.Pending == 0 || isLost(err) {
		if rerr := os.RemoveAll(w.folder(c.partition)); rerr != nil {
			err = errors.Join(err, rerr)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.signal()
	c.ended = true
	w.stats.Add(stats)
	switch {
	case isLost(err):
		w.log.Warn("lost", "partition", c.partition, "epoch", c.epoch, "samples", c.moved.Load())
		c.lost = true
		delete(w.pulse.Claims, c.partition)
		w.forget(c)
	case err != nil:
		w.fail(err)
	default:
		w.log.Info("left", "partition", c.partition, "epoch", c.epoch, "sealed", state == StateSealed)
		w.pulse.Claims[c.partition] = Claim{c.epoch, state}
		w.sealed[c.partition] = state == StateSealed
		delete(w.claimed, c.partition)
	}
}

// settle subtracts n from the number of open samples of a partition. If none is left, write then seals the
// partition. c is nil if the worker no longer knows the partition.
func (w *Worker) settle(c *claimed, n int) {
	if c == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c.open -= n
	if c.open == 0 && !c.lost {
		_ = c.dataset.Close(w.stop) // does not wait; write returns the error
	}
	w.forget(c)
	w.signal()
}

// forget forgets a lost partition when its last sample has ended, so that it can be claimed again. The
// caller must have locked w.mu.
func (w *Worker) forget(c *claimed) {
	if c.lost && c.open <= 0 && w.claimed[c.partition] == c {
		delete(w.claimed, c.partition)
	}
}
