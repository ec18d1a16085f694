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

// CheckFiles compares every committed file of the run in dir with its digest. It calls found
// for each file that differs.
func CheckFiles(ctx context.Context, dir string, found func(error)) error {
	log, err := sink.ReadLogEach(dir, func(*sink.Commit) {}) // its samples are not needed
	if err != nil {
		return OpenError(dir, err)
	}
	return log.CheckDigests(ctx, nil, found)
}

// CheckSlowly does what [CheckFiles] does, slowly enough for a run that is collecting, until
// ctx is done. It also calls found if the commit log cannot be read. It returns how many
// bytes it has read.
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

// A Damage collects what is wrong with the files that earlier processes committed. The sink
// reads back what this process commits, so that is not checked again.
type Damage struct {
	mu    sync.Mutex
	found []error
}

// Add notes one damaged file and returns how many there are now.
func (d *Damage) Add(err error) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found = append(d.found, err)
	return len(d.found)
}

// Found returns all that was noted so far.
func (d *Damage) Found() []error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.found
}
