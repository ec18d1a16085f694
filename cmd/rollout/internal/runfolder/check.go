package runfolder

import (
	"context"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/sink"
)

// checkRate is the read rate for digests during a run, in bytes per second. It takes 5 to 10% of
// one core and little disk bandwidth.
const checkRate = 64 << 20

// CheckFiles compares every committed file of the run in dir with its digest. It calls found
// for each file that differs.
func CheckFiles(ctx context.Context, dir string, found func(error)) error {
	log, err := sink.ReadLogEach(dir, func(*sink.Commit) {}) // the commits are not needed
	if err != nil {
		return OpenError(dir, err)
	}
	return log.CheckDigests(ctx, nil, found)
}

// CheckSlowly is [CheckFiles] at checkRate, until ctx is done. It also calls found if the commit
// log cannot be read. It returns the number of bytes read.
func CheckSlowly(ctx context.Context, dir string, found func(error)) (read int, err error) {
	log, err := sink.ReadLogEach(dir, func(*sink.Commit) {}) // the commits are not needed
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

// A Damage collects errors in files that earlier processes committed. The sink verifies the commits
// of this process itself.
type Damage struct {
	mu    sync.Mutex
	found []error
}

// Add records one damaged file and returns the number recorded so far.
func (d *Damage) Add(err error) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found = append(d.found, err)
	return len(d.found)
}

// Found returns the errors recorded so far.
func (d *Damage) Found() []error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.found
}
