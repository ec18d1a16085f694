package runfolder

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/collector/wait"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/frame"
)

// HasRows reports whether a run has any rows. It includes rows in the write-ahead log, because the
// next process writes them to a shard.
func HasRows(dir string) (bool, error) {
	has, err := sink.HasRows(dir)
	if err != nil {
		return false, ReadError(dir, err)
	}
	return has, nil
}

// Waiting returns the number of samples in a run's write-ahead log. It skips unreadable records,
// because the number is only displayed.
func Waiting(dir string) (n int) {
	log, err := sink.ReadLog(dir)
	if err != nil {
		return 0
	}
	for _, err := range log.Waiting() {
		if err == nil {
			n++
		}
	}
	return n
}

func damageHint(dir string, damage error) string {
	if Repairable(damage) {
		return RepairHint(dir)
	}
	if corrupt, ok := errors.AsType[*sink.CorruptError](damage); ok && strings.HasPrefix(corrupt.Path, sink.ScoresPath("")) {
		return "the rows are not affected: run rollout rescore " + format.Shell(dir) + " again, or select other rewards with --scores"
	}
	return "to list the damage, run rollout verify " + format.Shell(dir) + "; a commit or a shard cannot be repaired, so restore a copy or start a new run with --out"
}

// DamageError returns the error for a run with damaged files. The error includes the first of the
// given errors and the number of damaged places.
func DamageError(dir string, damage []error) error {
	err := fmt.Errorf("%s: %w", dir, damage[0])
	if n := len(damage); n > 1 {
		err = fmt.Errorf("%w; %d places are damaged in total", err, n)
	}
	return exit.Hint(exit.With(exit.Verify, err), damageHint(dir, damage[0]))
}

// ReadError adds the exit code, and the hint for damage, to an error from reading or opening a run's files.
func ReadError(dir string, err error) error {
	if _, damaged := errors.AsType[*frame.CorruptError](err); damaged || errors.Is(err, sink.ErrCorrupt) {
		return DamageError(dir, []error{err})
	}
	err = fmt.Errorf("%s: %w", dir, err)
	if errors.Is(err, sink.ErrNewer) || errors.Is(err, frame.ErrNewer) {
		return exit.With(exit.Folder, err)
	}
	return exit.With(exit.Storage, err)
}

// Repairable reports whether verify --repair can repair the cause of a problem.
func Repairable(problem error) bool {
	_, ok := errors.AsType[*frame.CorruptError](problem)
	return ok || errors.Is(problem, sink.ErrLostCommit)
}

// RepairHint returns the hint for a damaged write-ahead log or journal.
func RepairHint(dir string) string {
	return "rollout verify --repair " + format.Shell(dir) + " keeps all undamaged records and moves the damaged file aside; --dry-run shows what it would do"
}

// CheckFiles compares every committed file of the run in dir with its recorded digest. It calls
// found for each file that differs. It reads at most rate bytes per second; 0 means no limit. It
// returns the number of bytes read. It fails if the commit log cannot be read or if ctx is done.
func CheckFiles(ctx context.Context, dir string, rate float64, found func(error)) (read int, err error) {
	log, err := sink.ReadLogIn(nil, dir, func(*sink.Commit) {}) // the commits are not needed
	if err != nil {
		return 0, err
	}
	began := time.Now()
	err = log.CheckDigests(ctx, func(n int) {
		read += n
		if rate == 0 {
			return
		}
		ahead := time.Duration(float64(read)/rate*float64(time.Second)) - time.Since(began)
		if ahead >= 10*time.Millisecond {
			wait.For(ctx, ahead)
		}
	}, found)
	return read, err
}

// A Damage collects errors about files that earlier processes committed. The sink itself verifies
// the commits of this process.
type Damage struct {
	mu    sync.Mutex
	found []error
}

// Add records one damaged file. It returns the number of damaged files recorded so far.
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
