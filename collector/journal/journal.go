package journal

import (
	"cmp"
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

// Config configures a journal. If a field is zero, its default applies.
type Config struct {
	// SyncEvery is the minimum time between the starts of two syncs. Default 20ms.
	SyncEvery time.Duration
	// CompactAt is a size in bytes. Open compacts earlier segments if their total size reaches
	// CompactAt and the result is much smaller. A compaction discards the times of all earlier
	// entries. Default 256 MiB.
	CompactAt int64
	// Salvage makes Open keep the intact entries of a damaged journal and drop the rest. By
	// default, Open fails if the journal is damaged.
	Salvage bool
	// Mode contains the permission bits of the files before the umask is applied. Default 0666. In
	// the mode of the folder, execute permission is added to each read permission.
	Mode fs.FileMode
}

func (c Config) withDefaults() Config {
	if c.SyncEvery <= 0 {
		c.SyncEvery = 20 * time.Millisecond
	}
	c.Mode = cmp.Or(c.Mode, 0o666)
	if c.CompactAt <= 0 {
		c.CompactAt = 256 << 20
	}
	return c
}

// A Journal is the open journal of a run. It is safe for concurrent use. The caller must ensure
// that no other process writes to the same journal.
type Journal struct {
	cfg   Config
	left  *state // the state according to the entries of earlier processes
	found Found
	w     *writer // writes the entries of this process
}

var _ collector.Journal = (*Journal)(nil)

// Found describes the journal that Open found.
type Found struct {
	// Process is the number of this process.
	Process int
	// Entries, Samples and Bytes are the numbers of entries, samples and bytes that Open read. The
	// field Open is the number of attempts without a recorded end.
	Entries, Samples, Open int
	Bytes                  int64
	// Torn contains an error for each piece of dropped data that was never durable. Damaged
	// contains an error for each piece of damaged data that was dropped because of Config.Salvage.
	// Each error names the file and the offset.
	Torn, Damaged []error
	// Compacted is true if Open compacted the segments.
	Compacted bool
}

// Open reads the journal in dir. It creates the folder if it is missing, and creates a segment for
// this process. When Open returns, the names of the folder and the segment are durable. Open does
// not start a goroutine, but the first recorded entry starts a background sync. The caller must
// call Close, which waits for the sync.
//
// If durable data is damaged, the error wraps a *frame.CorruptError and names the file and the
// offset. If a file has a newer format version, the error wraps frame.ErrNewer. In both cases, Open
// does not change the journal.
func Open(dir string, cfg Config) (*Journal, error) { return open(dir, cfg, durable.SyncDir) }

// open implements Open. The function syncDir makes the names in a folder durable. Tests replace
// this function.
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
	// Sync the parent folder even if dir already existed, because the process that created dir
	// might have died before this sync.
	if err := errors.Join(syncDir(dir), syncDir(filepath.Dir(dir))); err != nil {
		return nil, errors.Join(fmt.Errorf("journal: %w", err), j.w.file.Close())
	}
	return j, nil
}

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

// Left returns the state of a sample at the time of Open, according to the journal alone. See
// Resume.
func (j *Journal) Left(key string) collector.SampleState {
	k, err := idOf(key)
	if err != nil {
		return collector.SampleState{}
	}
	return j.left.left(k)
}

// Found returns a description of the journal at the time of Open.
func (j *Journal) Found() Found { return j.found }

// Begin records that the attempt is about to start at the endpoint.
func (j *Journal) Begin(a collector.Attempt, endpoint string) error {
	return j.note(a.Key, &Entry{Op: OpBegin, Attempt: a.N, Kind: a.Kind, Endpoint: endpoint}, failpoint.JournalBegin)
}

// Agent records the agent that the attempt created.
func (j *Journal) Agent(key string, attempt int, agentID string) error {
	return j.note(key, &Entry{Op: OpAgent, Attempt: attempt, ID: agentID}, failpoint.JournalAgent)
}

// ServerRun records a server run that the attempt started.
func (j *Journal) ServerRun(key string, attempt int, runID string) error {
	return j.note(key, &Entry{Op: OpRun, Attempt: attempt, ID: runID}, failpoint.JournalRun)
}

// End records how the attempt ended.
func (j *Journal) End(key string, attempt int, class collector.Class, charged bool) error {
	return j.note(key, &Entry{Op: OpEnd, Attempt: attempt, Class: class.String(), Charged: charged}, failpoint.JournalEnd)
}

func (j *Journal) note(key string, e *Entry, at failpoint.Name) error {
	k, err := idOf(key)
	if err != nil {
		return fmt.Errorf("journal: %v entry of attempt %d: %w", e.Op, e.Attempt, err)
	}
	e.Time = time.Now()
	if err := j.w.append(e, k, at); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// Close syncs and closes the file. If the file has no entries, Close deletes the file. After Close,
// all methods that record an entry fail.
func (j *Journal) Close() error {
	if err := j.w.close(); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}
