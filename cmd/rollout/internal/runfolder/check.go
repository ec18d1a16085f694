package runfolder

import (
	"context"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/sink"
)

// checkRate is how many bytes per second are read for digests beside a run at work: some
// 5 to 10 % of one core, and little of a disk.
const checkRate = 64 << 20

// CheckFiles compares every committed file of the run in dir with its digest. found is told
// of each that differs.
func CheckFiles(ctx context.Context, dir string, found func(error)) error {
	log, err := sink.ReadLogEach(dir, func(*sink.Commit) {}) // of its samples nothing is asked
	if err != nil {
		return OpenError(dir, err)
	}
	return log.CheckDigests(ctx, nil, found)
}

// CheckSlowly is CheckFiles beside a run at work, until ctx is done. A commit log that
// cannot be read is told to found as well. It returns how many bytes it has read.
func CheckSlowly(ctx context.Context, dir string, found func(error)) (read int, err error) {
	log, err := sink.ReadLogEach(dir, func(*sink.Commit) {}) // as above
	if err != nil {
		found(err)
		return 0, err
	}
	began := time.Now()
	pace := func(n int) {
		read += n
		ahead := time.Duration(float64(read)/checkRate*float64(time.Second)) - time.Since(began)
		if ahead < 10*time.Millisecond {
			return
		}
		select {
		case <-time.After(ahead):
		case <-ctx.Done():
		}
	}
	err = log.CheckDigests(ctx, pace, found)
	return read, err
}

// Damage is what was found wrong with the files that earlier processes committed. What this
// process commits was read back already.
type Damage struct {
	mu    sync.Mutex
	found []error
}

// Add notes a damage, and returns how many there are now.
func (d *Damage) Add(err error) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found = append(d.found, err)
	return len(d.found)
}

// Found returns what was found so far.
func (d *Damage) Found() []error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.found
}
