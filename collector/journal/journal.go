package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink/durable"
	"github.com/rollout-rl/rollout/sink/failpoint"
	"github.com/rollout-rl/rollout/sink/frame"
)

// Config says how a journal is kept. The zero value of a field means its default.
type Config struct {
	// SyncEvery is the least time between two syncs. Default 20ms.
	SyncEvery time.Duration
	// CompactAt is the size in bytes from which Open puts the segments of earlier
	// processes together, if that makes them much smaller. The times of attempts that
	// ended are lost by it. Default 256 MiB.
	CompactAt int64
	// Salvage takes the whole entries of a damaged journal, and puts the segments
	// together without the damage. Default: Open fails.
	Salvage bool
	// Mode is the mode of the files, before the umask. Whoever may read the files may
	// enter the folder. Default 0666.
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
	left  *state // what earlier processes wrote
	found Found
	w     *writer // what this process writes
}

var _ collector.Journal = (*Journal)(nil)

// Found tells what Open found.
type Found struct {
	// Process is the number of this process.
	Process int
	// Entries, Bytes and Samples count what was there; Open counts attempts without end.
	Entries, Samples, Open int
	Bytes                  int64
	// Torn has what was dropped because it was never durable. Damaged has what was
	// dropped because it is damaged (Config.Salvage). Each error names file and offset.
	Torn, Damaged []error
	// Compacted reports whether the segments were put together.
	Compacted bool
}

// Open reads the journal in dir, makes the folder if it is missing, and begins a segment
// for this process. The names of both are durable when Open returns. It starts no
// goroutine; the first entry does, and Close, which must be called, waits for it.
//
// Damage to what was durable is an error that holds a *frame.CorruptError and names file
// and offset. A file of a newer version is an error that wraps frame.ErrNewer. After either
// nothing on disk has changed.
func Open(dir string, cfg Config) (*Journal, error) { return open(dir, cfg, durable.SyncDir) }

// open is Open. syncDir makes the names in a folder durable.
func open(dir string, cfg Config, syncDir func(string) error) (_ *Journal, err error) {
	cfg = cfg.withDefaults()
	if err := os.MkdirAll(dir, cfg.Mode|cfg.Mode&0o444>>2); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	old, err := segments(dir)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	j := &Journal{cfg: cfg, left: newState()}
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
	if j.w, err = create(segmentAt(dir, j.found.Process), cfg.Mode, cfg.SyncEvery); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	// The process that made dir may have ended before it synced the name: sync it each time.
	if err := errors.Join(syncDir(dir), syncDir(filepath.Dir(dir))); err != nil {
		return nil, errors.Join(fmt.Errorf("journal: %w", err), j.w.file.Close())
	}
	return j, nil
}

// replay reads what earlier processes wrote.
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

// Left returns what the journal knows of a sample, as it was when the journal was opened.
// It does not know whether the dataset has the sample: see Resume.
func (j *Journal) Left(key string) collector.Left {
	k, err := idOf(key)
	if err != nil {
		return collector.Left{}
	}
	return j.left.left(k)
}

// Found returns what Open found.
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

// note writes an entry.
func (j *Journal) note(key string, e *Entry, at failpoint.Name) error {
	k, err := idOf(key)
	if err != nil {
		return fmt.Errorf("journal: %v of attempt %d: %w", e.Op, e.Attempt, err)
	}
	e.Time = time.Now()
	if err := j.w.append(e, k, at); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// Close syncs what was noted and closes the file. A journal into which nothing was
// noted leaves no file. What is noted after Close is refused.
func (j *Journal) Close() error {
	if err := j.w.close(); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}
