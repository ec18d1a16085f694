package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/store"
)

// Name is the object that makes a store a fleet, and fleetVersion is the version of its format.
const (
	Name         = runfolder.FleetFile
	fleetVersion = 1
)

// Bounds of the number of partitions.
const (
	// MaxPartitions keeps the names of partitions at 4 digits.
	MaxPartitions = 10_000
	// defaultPartitions is enough for about 32 workers. A worker cannot give away the rest of a partition,
	// so a fleet needs several partitions per worker to end at the same time everywhere. With 8 workers,
	// one of which is half as fast, a fleet of 256 partitions takes 1.02 times as long as one shared queue
	// on average, and a fleet of 64 partitions 1.04 times.
	defaultPartitions = 256
)

// DefaultPartitions returns the number of partitions for a number of tasks: 256, but at most one per task.
func DefaultPartitions(tasks int) int { return max(1, min(tasks, defaultPartitions)) }

// A Fleet is the content of fleet.json, which ends with a checksum as run.json does. It never changes, and it
// contains no secrets.
type Fleet struct {
	Version int `json:"version"` // of the format
	// ID is the run id in all logs of the fleet.
	ID        string    `json:"id"`
	CreatedAt time.Time `json:"created_at"`
	Program   string    `json:"program"` // version of the program that planned the fleet
	// SchemaVersion is the version of the rows. All workers must write the same version.
	SchemaVersion int `json:"schema_version"`
	// TasksSHA256 is the digest of all tasks, in lowercase hex. Partitions describes the tasks of each partition.
	TasksSHA256 string      `json:"tasks_sha256"`
	Partitions  []Partition `json:"partitions"`
	// Identity and Model describe the settings that rows depend on. All workers must have the same.
	Identity runfolder.Identity `json:"identity"`
	Model    *runfolder.Model   `json:"model,omitempty"`
	// Config contains the settings with which the fleet was planned. They are the defaults of workers.
	Config config.Values `json:"config"`
}

// A Partition describes the tasks of a partition. Bytes and SHA256 describe the object with
// the tasks. A partition without tasks has no such object.
type Partition struct {
	Tasks   int    `json:"tasks"`
	Samples int    `json:"samples"`
	Bytes   int64  `json:"bytes,omitempty"`
	SHA256  string `json:"sha256,omitempty"`
}

// Samples returns the number of planned samples.
func (f *Fleet) Samples() (n int) {
	for _, p := range f.Partitions {
		n += p.Samples
	}
	return n
}

// A noFleetError is the error of Read for a store without fleet.json.
type noFleetError struct{ store, run string }

func (e *noFleetError) Error() string {
	if e.run != "" {
		return e.store + " contains the run of rollout collect, and not a fleet (it has " + e.run + ")"
	}
	return e.store + " contains no fleet (it has no " + Name + ")"
}
func (e *noFleetError) Unwrap() error { return fs.ErrNotExist }

// Read reads the fleet in a store. The error has an exit code. It is a Folder error if there is no fleet
// (it then wraps fs.ErrNotExist), or if another version of the program must be used.
func Read(objects store.Store) (*Fleet, error) {
	body, err := objects.Get(Name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := objects.Get(runfolder.RunFile); err == nil {
			return nil, exit.Hint(exit.With(exit.Folder, &noFleetError{objects.String(), runfolder.RunFile}), "plan a fleet under another prefix with rollout plan; a copied run can only be read")
		}
		return nil, exit.Hint(exit.With(exit.Folder, &noFleetError{objects.String(), ""}),
			"plan it with: rollout plan --tasks FILE -c FILE --out STORE")
	case err != nil:
		return nil, exit.With(exit.Storage, err)
	}
	f, err := decode(body)
	if err != nil {
		return nil, exit.Hint(exit.With(exit.Verify, fmt.Errorf("%s/%s is damaged: %w", objects, Name, err)), "this file cannot be repaired, so restore a copy")
	}
	switch upgrade := "use the version of rollout that planned it: " + f.Program; {
	case f.Version != fleetVersion:
		return nil, exit.Hint(exit.With(exit.Folder, fmt.Errorf("%s/%s has version %d, but this program supports only version %d", objects, Name, f.Version, fleetVersion)), upgrade)
	case f.SchemaVersion != sink.SchemaVersion:
		return nil, exit.Hint(exit.With(exit.Folder, fmt.Errorf("%s has rows of schema version %d, but this program writes version %d", objects, f.SchemaVersion, sink.SchemaVersion)), upgrade)
	}
	return f, nil
}

// CheckNew returns an error with an exit code if a store cannot get a fleet, because it contains a fleet
// or a run.
func CheckNew(objects store.Store) error {
	_, err := objects.Get(Name)
	if err == nil {
		return planned(objects)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return exit.With(exit.Storage, err)
	}
	for _, name := range []string{runfolder.RunFile, "_commits/"} {
		for _, err := range objects.List(name, "") {
			if err != nil {
				return exit.With(exit.Storage, err)
			}
			return exit.Hint(exit.With(exit.Folder, fmt.Errorf("%s contains a run", objects)), "pass another prefix with --out")
		}
	}
	return nil
}

// A plannedError is the error of Plan for a store that already contains a fleet. It wraps fs.ErrExist.
type plannedError struct{ store string }

func (e *plannedError) Error() string { return e.store + " already contains a fleet" }
func (e *plannedError) Unwrap() error { return fs.ErrExist }

func planned(objects store.Store) error {
	return exit.Hint(exit.With(exit.Folder, &plannedError{objects.String()}), "start workers with rollout work, or pass another prefix with --out")
}

// write makes the store a fleet. If another process was faster, write returns the error of CheckNew.
func (f *Fleet) write(objects store.Store) error {
	body, err := runfolder.EncodeSummed(f)
	if err == nil {
		err = objects.PutNew(Name, body)
	}
	if errors.Is(err, fs.ErrExist) {
		return planned(objects)
	}
	return exit.With(exit.Storage, err)
}

// decode decodes fleet.json and checks its digest. It does not check the version.
func decode(body []byte) (*Fleet, error) {
	if err := runfolder.CheckSum(body); err != nil {
		return nil, err
	}
	var f Fleet
	if err := json.Unmarshal(body, &f); err != nil {
		return nil, err
	}
	if n := len(f.Partitions); f.Version == fleetVersion && (n < 1 || n > MaxPartitions) {
		return nil, fmt.Errorf("%d partitions: must be between 1 and %d", n, MaxPartitions)
	}
	return &f, nil
}
