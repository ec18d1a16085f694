package fleet

import (
	"cmp"
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/sink"
)

// A search finds the next partition to claim.
type search struct {
	first   int               // partition at which the search begins
	ends    []end             // by partition
	watches map[string]*watch // by worker
	looked  time.Time         // start of the last round over the heartbeats of other workers
}

// An end is what the search knows about a partition.
type end struct {
	logEnd
	taken bool // a worker has claimed the partition
	read  bool // the logEnd has been read
}

func newSearch(f *Fleet) search {
	n := len(f.Partitions)
	return search{first: rand.IntN(n), ends: make([]end, n), watches: map[string]*watch{}}
}

// recount is the pause after which a worker compares its open samples with Config.Slots again.
const recount = time.Second

// next waits until the collector has room and a partition can be claimed, and claims it. It returns nil if
// all partitions are sealed.
func (w *Worker) next(ctx context.Context) (*claimed, error) {
	for {
		if w.hasRoom() {
			if err := w.awaitBeat(ctx); err != nil {
				return nil, err
			}
			c, done, err := w.find()
			if err != nil || done {
				return nil, err
			}
			if c != nil {
				select {
				case w.adopt <- c:
					return c, nil
				case <-w.ended:
					return nil, cmp.Or(context.Cause(w.failed), sink.ErrClosed)
				}
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
// partitions are sealed.
func (w *Worker) find() (c *claimed, done bool, err error) {
	left := w.unsealed()
	if len(left) == 0 {
		return nil, true, nil
	}
	for _, p := range left {
		if c, err = w.claimNew(p); c != nil || err != nil {
			return c, false, err
		}
	}
	if now := w.clock.Now(); now.Sub(w.looked) >= beatEvery {
		watches := map[string]*watch{}
		for _, p := range left {
			if c, err = w.takeOver(p, watches); c != nil || err != nil {
				return c, false, err // the next call looks for more
			}
		}
		w.looked = now
	}
	return nil, false, nil
}

// unsealed returns the partitions that are not known to be sealed, beginning with w.first.
func (w *Worker) unsealed() (list []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.ends {
		if p := (w.first + i) % len(w.ends); !w.sealed[p] {
			list = append(list, p)
		}
	}
	return list
}

func (w *Worker) has(p int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.claimed[p] != nil
}

// claimNew claims a partition that no worker has claimed.
func (w *Worker) claimNew(p int) (*claimed, error) {
	at := &w.ends[p]
	if at.taken || w.has(p) {
		return nil, nil
	}
	at.taken = true
	for _, err := range Dataset(w.objects, p).List("_commits/", "") {
		return nil, err // it has a log
	}
	return w.claim(p, 1)
}

// takeOver claims a partition whose worker has left it or is dead. The map contains the heartbeats that were
// read in this round.
func (w *Worker) takeOver(p int, round map[string]*watch) (*claimed, error) {
	at := &w.ends[p]
	if w.has(p) {
		at.read = false // its log has grown since
		return nil, nil
	}
	if !at.read {
		if err := w.readEnd(p); err != nil || at.sealed {
			return nil, err
		}
	}
	if at.epoch > 0 && !w.isOurs(at.worker) {
		v := round[at.worker]
		if v == nil {
			var err error
			if v, err = w.look(at.worker); err != nil {
				return nil, err
			}
			round[at.worker] = v
		}
		if v.left[p] < at.epoch && !v.dead {
			return nil, nil
		}
		before := at.epoch
		if err := w.readEnd(p); err != nil || at.sealed || at.epoch != before {
			return nil, err
		}
	}
	at.read = false // its log grows now
	return w.claim(p, at.epoch+1)
}

// readEnd reads the end of a partition's log.
func (w *Worker) readEnd(p int) (err error) {
	at := &w.ends[p]
	if at.logEnd, err = readEnd(Dataset(w.objects, p), at.logEnd); err != nil {
		return err
	}
	at.read = true
	if at.sealed {
		w.mu.Lock()
		w.sealed[p] = true
		w.mu.Unlock()
	}
	return nil
}

// isOurs reports whether a worker is this process or an earlier process with this spool, which is dead.
func (w *Worker) isOurs(worker string) bool { return strings.HasPrefix(worker, w.spool+"-") }
