package fleet

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/frame"
)

// A search finds the next partition to claim.
type search struct {
	first   int               // partition at which the search begins
	ends    []end             // by partition
	watches map[string]*watch // by worker
	looked  time.Time         // start of the last survey
	news    bool              // partitions have not been considered for a takeover since the last survey
}

// An end is what the search knows about the last claim of a partition. It can be old.
type end struct {
	taken  bool // a worker has claimed the partition
	epoch  int64
	worker string // "" if it is unknown
	left   bool   // the worker has left the partition
}

func newSearch(f *Fleet) search {
	n := len(f.Partitions)
	return search{first: rand.IntN(n), ends: make([]end, n), watches: map[string]*watch{}}
}

// recount is the pause after which a worker compares its open samples with Config.Slots again.
const recount = time.Second

// next waits until the collector has room and a partition can be claimed, and claims it. It returns nil if
// all partitions are sealed or damaged.
func (w *Worker) next(ctx context.Context) (*claimed, error) {
	for {
		if w.hasRoom() {
			if err := w.awaitBeat(ctx); err != nil {
				return nil, err
			}
			c, done, err := w.find()
			if c != nil {
				return c, w.start(c)
			}
			if err != nil || done {
				return nil, err
			}
		}
		select {
		case <-w.wake:
		case <-w.clock.After(recount):
		case <-w.failed.Done():
			return nil, context.Cause(w.failed)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (w *Worker) hasRoom() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	open := 0
	for _, c := range w.claimed {
		open += c.open
	}
	return open < w.cfg.Slots()
}

// find claims a partition. It returns nil if no partition can be claimed at present, and done if all
// partitions are sealed or damaged.
func (w *Worker) find() (c *claimed, done bool, err error) {
	left := w.unsealed()
	for _, p := range left {
		c, err = w.claimNew(p)
		if err = w.unlessDamaged(p, err); c != nil || err != nil {
			return c, false, err
		}
	}
	if err := w.survey(); err != nil {
		return nil, false, err
	}
	for _, p := range left {
		if !w.news {
			break
		}
		c, err = w.takeOver(p)
		if err = w.unlessDamaged(p, err); c != nil || err != nil {
			return c, false, err
		}
	}
	w.news = false
	return nil, len(left) == 0, nil
}

// unlessDamaged returns err, unless it reports damage of a partition's objects. The worker then skips the
// partition and keeps its samples in the spool, because a person can restore the objects.
func (w *Worker) unlessDamaged(p int, err error) error {
	_, inSpool := errors.AsType[*frame.CorruptError](err)
	if inSpool || !errors.Is(err, sink.ErrCorrupt) && exit.Code(err) != exit.Verify {
		return err
	}
	w.mu.Lock()
	w.damaged[p] = true
	w.mu.Unlock()
	w.cfg.Damaged(InPartition(p, err))
	return nil
}

// survey reads heartbeats at most every 10 s, so that a worker does not have to read the log of each
// partition. It reads the heartbeats of the workers that have partitions. If it does not know who has a
// partition, it also reads the heartbeats of all other living workers.
func (w *Worker) survey() error {
	now := w.clock.Now()
	if now.Sub(w.looked) < beatEvery {
		return nil
	}
	w.looked, w.news = now, true
	names := map[string]bool{}
	for _, p := range w.unsealed() {
		if !w.skip(p) {
			names[w.ends[p].worker] = true
		}
	}
	if names[""] || len(w.watches) == 0 {
		for info, err := range w.objects.List(workersDir, "") {
			if err != nil {
				return err
			}
			if worker := workerOf(info); w.watches[worker] == nil || !w.watches[worker].dead {
				names[worker] = true
			}
		}
	}
	for worker := range names {
		if worker != "" && worker != w.name {
			if err := w.look(worker); err != nil {
				return err
			}
		}
	}
	return nil
}

// unsealed returns the partitions that are not known to be sealed or damaged, beginning with w.first.
func (w *Worker) unsealed() (list []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.ends {
		if p := (w.first + i) % len(w.ends); !w.sealed[p] && !w.damaged[p] {
			list = append(list, p)
		}
	}
	return list
}

// skip reports whether this worker has a partition, or the partition is known to be sealed or damaged.
func (w *Worker) skip(p int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.claimed[p] != nil || w.sealed[p] || w.damaged[p]
}

// claimNew claims a partition that no worker has claimed.
func (w *Worker) claimNew(p int) (*claimed, error) {
	if w.ends[p].taken || w.skip(p) {
		return nil, nil
	}
	c, err := w.claim(p, 1)
	if c == nil && err == nil { // another worker was faster, also for others
		err = w.survey()
	}
	return c, err
}

// takeOver claims a partition whose worker has left it or is dead.
func (w *Worker) takeOver(p int) (*claimed, error) {
	at := &w.ends[p]
	if w.skip(p) {
		return nil, nil
	}
	if at.worker == "" {
		if err := w.readEnd(p); err != nil || w.skip(p) {
			return nil, err
		}
	}
	if at.epoch > 0 && !w.isOurs(at.worker) && !at.left {
		if v := w.watches[at.worker]; v == nil || !v.dead {
			return nil, nil
		}
	}
	c, err := w.claim(p, at.epoch+1)
	if c == nil && err == nil { // the log has a later claim or has ended
		err = w.readEnd(p)
	}
	return c, err
}

// readEnd reads the end of a partition's log.
func (w *Worker) readEnd(p int) error {
	end, err := sink.ReadEnd(Dataset(w.objects, p), sink.End{})
	if err == nil {
		w.learn(p, end.Epoch, end.Worker, "", end.Sealed)
	}
	return err
}

// learn records a claim of a partition, unless a later claim is known.
func (w *Worker) learn(p int, epoch int64, worker, state string, sealed bool) {
	at := &w.ends[p]
	if at.taken = true; epoch > at.epoch || epoch == at.epoch && worker != "" {
		at.left = state == stateLeft || at.left && epoch == at.epoch
		at.epoch, at.worker = epoch, worker
	}
	if sealed {
		w.mu.Lock()
		w.sealed[p] = true
		w.mu.Unlock()
	}
}

// isOurs reports whether a worker is this process or an earlier process with this spool, which is dead.
func (w *Worker) isOurs(worker string) bool { return strings.HasPrefix(worker, w.cfg.RunID+"-") }
