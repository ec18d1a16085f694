package fleet

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
)

// A claimed is a partition that this worker has claimed. Its mutable fields are guarded by Worker.mu.
type claimed struct {
	partition int
	epoch     int64
	tasks     []*collector.Task
	ledger    *sink.Ledger // the samples that were in the dataset before the claim
	dataset   *sink.Dataset
	cancel    context.CancelCauseFunc // ends the writing; set by write

	open  int  // number of samples that the sink lacks and that have not moved
	lost  bool // another worker has claimed the partition
	ended bool // write has returned

	moved atomic.Int64 // number of accepted samples that another worker must run again
}

// claim claims a partition with an epoch, and commits the samples in the spool. It returns nil if another
// worker was faster. The samples in the spool are then dropped.
func (w *Worker) claim(p int, epoch int64) (*claimed, error) {
	dir, dataset := w.folder(p), Dataset(w.objects, p)
	cfg := w.cfg.Sink
	if err := cfg.FS.MkdirAll(dir); err != nil {
		return nil, err
	}
	cfg.RunID, cfg.Store, cfg.Epoch, cfg.Worker = w.cfg.Fleet.ID, dataset, epoch, w.name
	d, err := sink.Create(dir, cfg)
	if isLost(err) {
		return nil, w.drop(p)
	}
	if err != nil {
		return nil, err
	}
	c := &claimed{partition: p, epoch: epoch, dataset: d, cancel: func(error) {}}
	if c.tasks, err = w.cfg.Fleet.Tasks(w.objects, p); err != nil {
		return nil, err
	}
	if epoch > 1 {
		if c.ledger, err = sink.ReadLedger(dataset, dir); err != nil {
			return nil, err
		}
	}
	for _, t := range c.tasks {
		group := collector.GroupID(t)
		for i := range t.Samples {
			if _, _, has := c.ledger.Find(group + "-" + strconv.Itoa(i)); !has {
				c.open++
			}
		}
	}
	w.mu.Lock()
	w.claimed[p] = c
	w.mu.Unlock()
	w.log.Info("claimed", "partition", p, "epoch", epoch, "samples", c.open, "recovered", d.Recovered().Replayed)
	return c, nil
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
			if err != nil {
				return err
			}
			n++
		}
	}
	if n > 0 {
		w.log.Warn("dropped", "partition", p, "samples", n)
	}
	return os.RemoveAll(dir)
}

// write writes the samples of a partition until the sink has all of them, the partition is lost or ctx is
// done. It then seals the partition, if no sample is left.
func (w *Worker) write(ctx context.Context, c *claimed) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w.mu.Lock()
	c.cancel = cancel
	if c.lost {
		cancel(moved(c.partition))
	}
	if c.open == 0 {
		_ = c.dataset.Close(w.stop) // does not wait
	}
	w.mu.Unlock()
	err := c.dataset.Run(ctx)
	w.mu.Lock()
	whole := c.open == 0 && !c.lost
	w.mu.Unlock()
	if err == nil && whole {
		err = c.dataset.Seal()
	}
	stats := c.dataset.Stats()
	if err == nil && stats.Pending == 0 || isLost(err) {
		if rerr := os.RemoveAll(w.folder(c.partition)); rerr != nil {
			err = errors.Join(err, rerr)
		}
	}
	switch {
	case isLost(err):
		w.log.Warn("lost", "partition", c.partition, "epoch", c.epoch, "samples", c.moved.Load())
	case err != nil:
		w.fail(err)
	default:
		w.log.Info("left", "partition", c.partition, "epoch", c.epoch, "sealed", whole)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c.ended = true
	addStats(&w.stats, stats)
	switch {
	case isLost(err):
		c.lost = true
		w.forget(c)
	case err == nil:
		w.pulse.left[c.partition] = c.epoch
		w.sealed[c.partition] = whole
		delete(w.claimed, c.partition)
	}
	w.signal()
}

// endSample records that the sink has a sample of a partition, or that the sample has moved. c is nil if
// the worker no longer knows the partition. The caller must have locked w.mu.
func (w *Worker) endSample(c *claimed) {
	if c == nil {
		return
	}
	c.open--
	if c.open == 0 && !c.lost {
		_ = c.dataset.Close(w.stop) // does not wait; write seals the partition
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

// checkClaims looks for claims of other workers in the logs of this worker's partitions.
func (w *Worker) checkClaims() error {
	w.mu.Lock()
	var list []*claimed
	for _, c := range w.claimed {
		if !c.lost {
			list = append(list, c)
		}
	}
	w.mu.Unlock()
	for _, c := range list {
		end, err := readEnd(Dataset(w.objects, c.partition), logEnd{epoch: c.epoch, worker: w.name})
		if err != nil {
			return err
		}
		if end.epoch > c.epoch {
			w.mu.Lock()
			c.lost = true
			c.cancel(moved(c.partition))
			w.mu.Unlock()
		}
	}
	return nil
}
