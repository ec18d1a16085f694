package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink/failpoint"
	"github.com/rollout-rl/rollout/sink/frame"
)

// Config says how a journal is kept. The zero value of a field means its default.
type Config struct {
	// SyncEvery is the least time between two syncs. Default 20ms.
	SyncEvery time.Duration
	// CompactAt is the size in bytes from which Open puts the segments of earlier
	// processes together, where they are much larger than what they come to. The
	// times of what ended are lost then. Default 256 MiB.
	CompactAt int64
	// Salvage takes what is whole of a damaged journal, and puts it together without
	// the damage. Default: Open fails.
	Salvage bool
	// Mode is that of the files, before the umask; who may read them may enter the
	// folder. Default 0666.
	Mode fs.FileMode
}

func (c Config) withDefaults() Config {
	if c.SyncEvery <= 0 {
		c.SyncEvery = 20 * time.Millisecond
	}
	if c.Mode == 0 {
		c.Mode = 0o666
	}
	if c.CompactAt <= 0 {
		c.CompactAt = 256 << 20
	}
	return c
}

// A Journal is open for one process; nobody else may have it open for writing. Its
// methods may be called from many goroutines.
type Journal struct {
	cfg   Config
	left  *state
	found Found
	file  *os.File

	mu     sync.Mutex
	w      *frame.Writer
	err    error // of a write or a sync
	closed bool

	dirty chan struct{} // something is to be synced; closed by Close
	done  chan struct{} // the goroutine that syncs has returned
}

var _ collector.Journal = (*Journal)(nil)

// Found is what Open found.
type Found struct {
	// Process is the number of this process.
	Process int
	// Entries, Bytes and Samples count what was there; Open the attempts without end.
	Entries, Samples, Open int
	Bytes                  int64
	// Torn says what was dropped because it was never durable, Damaged what was
	// dropped because it is damaged (Config.Salvage); each names file and offset.
	Torn, Damaged []error
	// Compacted says that the segments were put together.
	Compacted bool
}

// Open reads the journal in dir, makes the folder where it is not there, and begins a
// segment for this process. Damage to what was durable is an error that holds a
// *frame.CorruptError and names file and offset, a file of a newer version one that
// wraps frame.ErrNewer; nothing is changed then. Close must be called.
func Open(dir string, cfg Config) (_ *Journal, err error) {
	cfg = cfg.withDefaults()
	if err := os.MkdirAll(dir, cfg.Mode|cfg.Mode&0o444>>2); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	old, err := segments(dir)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	j := &Journal{cfg: cfg, left: newState(), dirty: make(chan struct{}, 1), done: make(chan struct{})}
	if err := j.replay(old); err != nil {
		return nil, err
	}
	if err := errors.Join(removeTemporary(dir), j.compact(dir, old)); err != nil {
		return nil, fmt.Errorf("journal: compact: %w", err)
	}
	j.found.Process = 1
	if n := len(old); n > 0 {
		j.found.Process = old[n-1].process + 1
	}
	if j.file, j.w, err = create(segmentAt(dir, j.found.Process), cfg.Mode); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	if err := syncDir(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("journal: %w", err), j.file.Close())
	}
	go j.syncs()
	return j, nil
}

// create begins a file of frames.
func create(s segment, mode fs.FileMode) (*os.File, *frame.Writer, error) {
	f, err := os.OpenFile(s.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, nil, err
	}
	w, err := frame.NewWriter(f, header(s.process))
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, w, nil
}

// replay takes what earlier processes wrote.
func (j *Journal) replay(old []segment) error {
	for _, seg := range old {
		err := seg.read(func(e *Entry, k id, damage error) error {
			if _, torn := errors.AsType[*frame.TornError](damage); torn {
				j.found.Torn = append(j.found.Torn, damage)
				return nil
			}
			if damage != nil {
				j.found.Damaged = append(j.found.Damaged, damage)
				if !j.cfg.Salvage {
					return damage
				}
				return nil
			}
			j.found.Entries++
			j.left.add(e, k)
			return nil
		})
		if err != nil {
			return err
		}
		info, err := os.Stat(seg.path)
		if err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		j.found.Bytes += info.Size()
	}
	j.found.Samples, j.found.Open = len(j.left.samples), len(j.left.open)
	return nil
}

// Left is what earlier processes left of a sample, as it was when the journal was
// opened. Whether the dataset has the sample, it does not say.
func (j *Journal) Left(key string) collector.Left {
	k, err := idOf(key)
	if err != nil {
		return collector.Left{}
	}
	return j.left.left(k)
}

// Found says what Open found.
func (j *Journal) Found() Found { return j.found }

// Begin notes that the attempt is about to be made at the endpoint.
func (j *Journal) Begin(a collector.Attempt, endpoint string) error {
	return j.note(a.Key, &Entry{Op: OpBegin, Attempt: a.N, Kind: a.Kind, Endpoint: endpoint}, failpoint.JournalBegin)
}

// Agent notes which agent the attempt made.
func (j *Journal) Agent(key string, attempt int, agentID string) error {
	return j.note(key, &Entry{Op: OpAgent, Attempt: attempt, ID: agentID}, failpoint.JournalAgent)
}

// ServerRun notes a run of the server that the attempt started.
func (j *Journal) ServerRun(key string, attempt int, runID string) error {
	return j.note(key, &Entry{Op: OpRun, Attempt: attempt, ID: runID}, failpoint.JournalRun)
}

// End notes how the attempt ended.
func (j *Journal) End(key string, attempt int, class collector.Class, charged bool) error {
	return j.note(key, &Entry{Op: OpEnd, Attempt: attempt, Class: class.String(), Charged: charged}, failpoint.JournalEnd)
}

// note writes an entry. An error of an earlier sync is this one's as well: nothing
// that is noted from then on would last.
func (j *Journal) note(key string, e *Entry, at failpoint.Name) error {
	k, err := idOf(key)
	if err != nil {
		return fmt.Errorf("journal: %v of attempt %d: %w", e.Op, e.Attempt, err)
	}
	e.Time = time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return fmt.Errorf("journal: %v of attempt %d: %w", e.Op, e.Attempt, os.ErrClosed)
	}
	if j.err == nil {
		j.err = j.w.End(e.append(j.w.Begin(), k))
	}
	if j.err != nil {
		return fmt.Errorf("journal: %s: %w", j.file.Name(), j.err)
	}
	failpoint.Hit(at)
	select {
	case j.dirty <- struct{}{}:
	default: // it knows
	}
	return nil
}

// syncs makes what was written durable, no more often than every SyncEvery, until
// Close.
func (j *Journal) syncs() {
	defer close(j.done)
	for range j.dirty {
		start := time.Now()
		j.sync()
		time.Sleep(j.cfg.SyncEvery - time.Since(start))
	}
}

func (j *Journal) sync() {
	j.mu.Lock()
	size := j.w.Size()
	j.mu.Unlock()
	err := j.file.Sync() // while others write
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil {
		j.err = errors.Join(j.err, err)
		return
	}
	// From now on a reader knows that all of this was durable: damage to it is loud.
	if err := j.w.SyncedTo(size); err != nil {
		j.err = errors.Join(j.err, err)
	}
}

// Close syncs what was noted and closes the file. A journal into which nothing was
// noted leaves none. What is noted after it is refused.
func (j *Journal) Close() error {
	j.mu.Lock()
	again := j.closed
	j.closed = true
	j.mu.Unlock()
	if again {
		return nil
	}
	close(j.dirty) // under closed nobody sends any more
	<-j.done
	j.sync()
	err := errors.Join(j.err, j.file.Close())
	if err == nil && j.w.Size() == frame.HeaderSize {
		err = os.Remove(j.file.Name())
	}
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// syncDir makes the names in a folder durable.
func syncDir(dir string) error {
	d, err := os.Open(filepath.Clean(dir))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
