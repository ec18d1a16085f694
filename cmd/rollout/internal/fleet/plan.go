package fleet

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/store"
)

// PartitionOf returns the partition of a task in a fleet of n partitions: the first 8 bytes of the SHA-256
// of "rollout partition 1", a zero byte and the task's id, as a big-endian integer, modulo n.
func PartitionOf(task string, n int) int {
	sum := sha256.Sum256([]byte("rollout partition 1\x00" + task))
	return int(binary.BigEndian.Uint64(sum[:8]) % uint64(n))
}

// Plan splits the tasks into n partitions and writes the fleet. It sets the format, the schema and the
// partitions of f. Every task must have its number of samples. Plan leaves temporary files in the
// folder dir. If Plan fails or is killed, the store contains no fleet.
func Plan(objects store.Store, f *Fleet, n int, list iter.Seq2[*collector.Task, error], dir string) error {
	if n < 1 || n > MaxPartitions {
		return exit.Usagef("--partitions %d: must be between 1 and %d", n, MaxPartitions)
	}
	if err := CheckNew(objects); err != nil {
		return err
	}
	f.Version, f.SchemaVersion, f.Partitions = fleetVersion, sink.SchemaVersion, make([]Partition, n)
	s := &splitter{dir: dir, of: f.Partitions, lines: make([]bytes.Buffer, n)}
	for t, err := range list {
		if err == nil {
			err = s.add(t)
		}
		if err != nil {
			return err
		}
	}
	err := s.spill()
	for p := range f.Partitions {
		if err == nil && f.Partitions[p].Tasks > 0 {
			err = s.put(objects, f.tasksName(p), p)
		}
	}
	if err != nil {
		return exit.With(exit.Storage, err)
	}
	return f.write(objects)
}

func (f *Fleet) tasksName(p int) string { return fmt.Sprintf(tasksDir+"%s/%04d.jsonl.zst", f.ID, p) }

// PartitionName returns the prefix of a partition in the store, and its folder in the spool.
func PartitionName(p int) string { return fmt.Sprintf(partitionsDir+"/%04d", p) }

const (
	tasksDir      = "tasks/"
	partitionsDir = "partitions"
)

// InPartition adds the name of a partition to an error that reports damage of its dataset.
func InPartition(p int, err error) error {
	if corrupt, ok := errors.AsType[*sink.CorruptError](err); ok {
		own := *corrupt
		own.Path = PartitionName(p) + "/" + own.Path
		return &own
	}
	return err
}

// Dataset returns the store of a partition's dataset, which is a part of the fleet's store.
func Dataset(objects store.Store, p int) store.Store { return objects.Sub(PartitionName(p)) }

// A splitter collects the lines of each partition, in memory and then in one temporary file per partition.
type splitter struct {
	dir   string
	of    []Partition
	lines []bytes.Buffer // that are not yet in the files
	size  int            // of lines
}

// spillBytes is the size of the lines at which they are moved to the files.
const spillBytes = 64 << 20

func (s *splitter) add(t *collector.Task) error {
	p := PartitionOf(t.ID, len(s.of))
	s.of[p].Tasks++
	s.of[p].Samples += t.Samples
	b := &s.lines[p]
	s.size -= b.Len()
	err := format.NewJSONEncoder(b).Encode(tasks.LineOf(t, time.Now()))
	if s.size += b.Len(); err == nil && s.size > spillBytes {
		err = s.spill()
	}
	return exit.With(exit.Storage, err)
}

func (s *splitter) path(p int) string { return filepath.Join(s.dir, fmt.Sprintf("%04d", p)) }

func (s *splitter) spill() error {
	for p := range s.lines {
		f, err := os.OpenFile(s.path(p), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		_, err = s.lines[p].WriteTo(f)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	s.size = 0
	return nil
}

// put writes the tasks of a partition to the store.
func (s *splitter) put(objects store.Store, name string, p int) error {
	lines, err := os.ReadFile(s.path(p))
	if err != nil {
		return err
	}
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	body := z.EncodeAll(lines, nil)
	if len(body) > store.MaxPut {
		return exit.Hint(exit.Usagef("the tasks of a partition take %s, but must take at most %s", format.Size(int64(len(body))), format.Size(store.MaxPut)), "use more --partitions")
	}
	s.of[p].Bytes, s.of[p].SHA256 = int64(len(body)), digest(body)
	return objects.PutNew(name, body)
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Tasks reads the tasks of a partition, each with its number of samples. An error has an exit code. It is
// a Verify error if the object is missing or has changed since the plan.
func (f *Fleet) Tasks(objects store.Store, p int) ([]*collector.Task, error) {
	want := f.Partitions[p]
	if want.Tasks == 0 {
		return nil, nil
	}
	name := f.tasksName(p)
	body, err := objects.Get(name)
	var list []*collector.Task
	switch {
	case err == nil:
		list, err = readTasks(body, want, name)
	case errors.Is(err, fs.ErrNotExist):
		err = errors.New("the object is missing")
	default:
		return nil, exit.With(exit.Storage, err)
	}
	if err != nil {
		return nil, exit.Hint(exit.With(exit.Verify, fmt.Errorf("%s: %w", name, err)), "restore the object that rollout plan wrote")
	}
	return list, nil
}

func readTasks(body []byte, want Partition, name string) ([]*collector.Task, error) {
	if int64(len(body)) != want.Bytes || digest(body) != want.SHA256 {
		return nil, errors.New("these are not the tasks that rollout plan wrote (their digest differs)")
	}
	z, err := zstd.NewReader(bytes.NewReader(body), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	var list []*collector.Task
	samples := 0
	for t, err := range tasks.ReadLines(z, name) {
		if err != nil {
			return nil, err
		}
		samples += t.Samples
		list = append(list, &t)
	}
	if len(list) != want.Tasks || samples != want.Samples {
		return nil, fmt.Errorf("%d tasks and %d samples, want %d and %d", len(list), samples, want.Tasks, want.Samples)
	}
	return list, nil
}
