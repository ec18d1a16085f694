package runfolder

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/plainjson"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tame"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/collector"
)

// This file checks and keeps the tasks of a run, and lets them grow. A run that is continued
// may be given its tasks in another order, more tasks, and more samples of each. No task may
// be missing or changed, because its samples are in the dataset. A run that commits whole
// groups takes no more samples of a task either: its group would have two sizes, and nobody
// could say when it is whole.

// A TaskSet is the checked tasks of a run. They are spooled to a file, so that standard input
// and huge files need no memory.
type TaskSet struct {
	// path is the file. It is empty if the tasks were only checked. own tells that it is the
	// run's unchanged snapshot and not a spool.
	path   string
	own    bool
	digest string // SHA-256 of the file in hex; empty without a file
	// Tasks and Samples count what there is without the limit. Bad counts the lines that were
	// left out.
	Tasks, Samples, Bad int
	// raised tells that tasks of the run have more samples than before.
	raised bool

	// grows tells that the run takes more tasks while it goes on. The file then has a length
	// of bytes, and marks has what must not change in its tasks. See tasklog.go.
	grows bool
	bytes int64
	marks map[taskHash]taskMark
}

// Close removes the spool.
func (s *TaskSet) Close() {
	if s != nil && s.path != "" && !s.own {
		_ = os.Remove(s.path) // the next process tries again
	}
}

// Has reports whether a run that takes tasks as they come had the task with the id when this
// process began.
func (s *TaskSet) Has(id string) bool {
	_, has := s.marks[hashOf(id)]
	return has
}

// A taskHash stands for a task's id. It is the beginning of the id's SHA-256.
type taskHash [16]byte

func hashOf(id string) taskHash {
	sum := sha256.Sum256([]byte(id))
	return taskHash(sum[:16])
}

// A taskMark is what must not change in a task.
type taskMark struct {
	content [16]byte // digest of everything but the number of samples
	samples int32    // 0: the run's default
}

func markOf(t *collector.Task) taskMark {
	h := sha256.New()
	var n [8]byte
	field := func(b []byte) {
		binary.LittleEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	field([]byte(collector.GroupID(t)))
	if t.Answer != nil {
		field([]byte(*t.Answer))
	}
	h.Write([]byte{0xff})
	field(t.Metadata) // compact JSON since it was read
	return taskMark{content: [16]byte(h.Sum(nil)), samples: int32(t.Samples)}
}

// maxComplaints is how many bad tasks are named. The others are counted.
const maxComplaints = 20

// A TaskCheck checks tasks and spools them.
type TaskCheck struct {
	samples int // of a task without a number of its own
	// limit ends the reading once so many samples are planned. 0: it never does.
	limit   int
	skipBad bool
	skipped func(error) // called for each task that skipBad leaves out
	// Dir is the folder of the spool, and Mode the mode of its file. Empty: no spool.
	Dir  string
	Mode fs.FileMode
	// marks collects the mark of each task, unless it is nil.
	marks map[taskHash]taskMark
}

// Run reads all tasks, checks them and spools them. It returns an error with a line for each
// bad task, or leaves them out if skipBad is set.
func (c *TaskCheck) Run(source iter.Seq2[collector.Task, error]) (*TaskSet, error) {
	spool, err := newSpool(c.Dir, c.Mode)
	if err != nil {
		return nil, err
	}
	defer spool.discard()
	set := &spool.set
	first := map[taskHash]uint32{} // lines, by id
	var bad exit.Complaints
	for t, err := range source {
		if err == nil {
			id := hashOf(t.ID)
			if line, ok := first[id]; ok {
				err = &tasks.BadError{Place: fmt.Sprintf("%s:%d", t.Source, t.Line), Err: fmt.Errorf("id %q was used before, at %s:%d", t.ID, t.Source, line)}
			} else {
				first[id] = uint32(t.Line)
				if c.marks != nil {
					c.marks[id] = markOf(&t)
				}
			}
		}
		if err != nil {
			if _, ok := errors.AsType[*tasks.BadError](err); !ok {
				return nil, err
			}
			set.Bad++
			if c.skipBad {
				c.skipped(err)
			} else if set.Bad <= maxComplaints {
				bad = append(bad, err)
			}
			continue
		}
		if err := spool.add(&t, c.samples); err != nil {
			return nil, err
		}
		if c.limit > 0 && set.Samples >= c.limit {
			break
		}
	}
	if set.Bad > maxComplaints && !c.skipBad {
		bad = append(bad, fmt.Errorf("and %d more bad tasks", set.Bad-maxComplaints))
	}
	switch {
	case len(bad) > 0:
		return nil, exit.Refuse(exit.Usage, bad, "fix the tasks, or leave the bad ones out with --skip-bad-tasks")
	case set.Tasks == 0:
		return nil, exit.Refuse(exit.Usage, errors.New("tasks.file holds no task"), "give a file with at least one task a line, as {\"id\": \"t1\", \"prompt\": \"…\"}")
	}
	return spool.finish()
}

// A growth merges the snapshot of a run with the tasks given now.
type growth struct {
	old   string   // the snapshot
	given *TaskSet // checked
	// marks has the marks of given. grow removes those of tasks in the snapshot.
	marks           map[taskHash]taskMark
	had, now        int  // samples of a task without a number of its own, before and now
	groups          bool // no task may have more samples than before
	raised          bool // one has
	spool           *spool
	removed, change []string
	fewer, more     []string
}

// grow returns the merged tasks: those of the snapshot in their order, then the new ones. bad
// names the tasks that are missing or changed, or that have fewer samples.
func (g *growth) grow() (_ *TaskSet, bad exit.Complaints, err error) {
	defer g.spool.discard()
	for t, err := range tasks.Read(g.old, nil) {
		if err != nil {
			return nil, nil, exit.With(exit.Folder, err)
		}
		id := hashOf(t.ID)
		n, ok := g.marks[id]
		if !ok {
			g.removed = append(g.removed, t.ID)
			continue
		}
		delete(g.marks, id)
		switch had, now := samplesOf(t.Samples, g.had), samplesOf(int(n.samples), g.now); {
		case n.content != markOf(&t).content:
			g.change = append(g.change, t.ID)
		case now < had:
			g.fewer = append(g.fewer, t.ID)
		case now > had && g.groups:
			g.more = append(g.more, t.ID)
		case now > had:
			g.raised = true
		}
		t.Samples = int(n.samples)
		if err := g.spool.add(&t, g.now); err != nil {
			return nil, nil, err
		}
	}
	if bad := g.complaints(); bad != nil {
		return nil, bad, nil
	}
	if g.given.path == "" {
		for _, n := range g.marks {
			g.spool.count(int(n.samples), g.now)
		}
	} else if len(g.marks) > 0 {
		for t, err := range tasks.Read(g.given.path, nil) {
			if err != nil {
				return nil, nil, err
			}
			if _, isNew := g.marks[hashOf(t.ID)]; !isNew {
				continue
			}
			if err := g.spool.add(&t, g.now); err != nil {
				return nil, nil, err
			}
		}
	}
	set, err := g.spool.finish()
	if err != nil {
		return nil, nil, err
	}
	set.Bad, set.raised = g.given.Bad, g.raised
	return set, nil, nil
}

func (g *growth) complaints() (bad exit.Complaints) {
	for _, c := range []struct {
		ids  []string
		what string
	}{
		{g.removed, "are not among those that you gave"},
		{g.change, "have other messages, agent, answer or metadata than those that you gave"},
		{g.fewer, "have more samples in the run than in the tasks you gave"},
		{g.more, "have fewer samples in the run than in the tasks you gave, and " + keepsGroups},
	} {
		if len(c.ids) > 0 {
			bad = append(bad, fmt.Errorf("tasks: %d of the run's %s: %s", len(c.ids), c.what, firstFew(c.ids)))
		}
	}
	return bad
}

func samplesOf(own, run int) int {
	if own > 0 {
		return own
	}
	return run
}

// firstFew returns the first few ids as a text.
func firstFew(ids []string) string {
	const few = 5
	var shown []string
	for _, id := range ids[:min(few, len(ids))] {
		shown = append(shown, tame.Text(id, 40))
	}
	if len(ids) > few {
		shown = append(shown, "…")
	}
	return strings.Join(shown, ", ")
}

// A spool writes checked tasks to a file, or only counts them.
type spool struct {
	file *os.File // nil: there is none
	w    *bufio.Writer
	enc  *json.Encoder
	sum  hash.Hash
	set  TaskSet
	done bool
}

// newSpool makes a spool in the run's folder dir. If the process is killed, the next process
// removes the file. Without dir the spool has no file.
func newSpool(dir string, mode fs.FileMode) (*spool, error) {
	if dir == "" {
		return new(spool), nil
	}
	f, err := createTemporary(dir, TasksFile+"-", mode)
	if err != nil {
		return nil, exit.With(exit.Storage, err)
	}
	s := &spool{file: f, sum: sha256.New(), set: TaskSet{path: f.Name()}}
	s.w = bufio.NewWriterSize(io.MultiWriter(f, s.sum), 64<<10)
	s.enc = plainjson.NewEncoder(s.w)
	return s, nil
}

// count counts a task with own samples, or else with the default number.
func (s *spool) count(own, samples int) {
	s.set.Tasks++
	s.set.Samples += samplesOf(own, samples)
}

// add counts and writes one task. samples is the default number.
func (s *spool) add(t *collector.Task, samples int) error {
	s.count(t.Samples, samples)
	if s.file == nil {
		return nil
	}
	return exit.With(exit.Storage, s.enc.Encode(tasks.LineOf(t, time.Now())))
}

// finish makes the file durable and returns the tasks that were added.
func (s *spool) finish() (*TaskSet, error) {
	if s.file != nil {
		if err := errors.Join(s.w.Flush(), s.file.Sync(), s.file.Close()); err != nil {
			return nil, exit.With(exit.Storage, err)
		}
		s.set.digest = hex.EncodeToString(s.sum.Sum(nil))
	}
	s.done = true
	return &s.set, nil
}

// discard removes the file, unless finish returned it.
func (s *spool) discard() {
	if !s.done && s.file != nil {
		_ = s.file.Close() // it is removed next
		s.set.Close()
	}
}

// digestFile returns the SHA-256 of a file in hex.
func digestFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // read only
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// restoreTasks is what a user can do whose run has lost its tasks.
const restoreTasks = "restore the run's own " + TasksFile + "; give other tasks with --tasks"

// CheckSnapshot compares the tasks of the run in dir with the digests in run.json, and returns
// their digest.
func CheckSnapshot(dir string, info *Info) (digest string, err error) {
	path := filepath.Join(dir, TasksFile)
	if info.Tasks.Stream {
		digest, err = checkPrefix(path, &info.Tasks)
	} else {
		digest, err = digestFile(path)
	}
	switch {
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EIO):
		return "", exit.With(exit.Storage, fmt.Errorf("%s: the run's tasks: %w", dir, err))
	case err != nil:
		err = fmt.Errorf("%s: the run's tasks: %w", dir, err)
	case digest == info.Tasks.GrewFrom: // a process was killed before it replaced the file
	case digest != info.Tasks.SHA256:
		err = fmt.Errorf("%s: %s is not the file that the run wrote: its digest differs", dir, TasksFile)
	}
	if err != nil {
		return "", exit.Hint(exit.With(exit.Verify, err), restoreTasks)
	}
	return digest, nil
}

// First returns the first task.
func (s *TaskSet) First() (*collector.Task, error) {
	for t, err := range tasks.Read(s.path, nil) {
		return &t, err
	}
	return nil, errors.New("the copy of the tasks is empty")
}
