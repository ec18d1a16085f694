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
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector"
)

// This file validates and stores the tasks of a run, and adds tasks to a resumed run. A resumed run
// can reorder its tasks, add tasks and raise their numbers of samples. No task can be removed or
// changed, because its samples are in the dataset. A run that commits whole groups cannot raise the
// number of samples, because a group would then have two sizes.

// A TaskSet contains the validated tasks of a run. The tasks are spooled to a file, so that
// standard input and huge files need little memory.
type TaskSet struct {
	// path is the file, or empty if the tasks were only validated. own is true if the file is the
	// run's unchanged snapshot, not a spool.
	path   string
	own    bool
	digest string // SHA-256 of the file in hex; empty if there is no file
	// Tasks and Samples are counted before the limit is applied. Bad counts the skipped lines.
	Tasks, Samples, Bad int
	// raised is true if an existing task has more samples than before.
	raised bool

	// grows is true if the run accepts tasks while it runs. In this case, bytes is the length of
	// the file, and marks contains the mark of each task. See tasklog.go.
	grows bool
	bytes int64
	marks map[taskHash]taskMark
}

// Close removes the spool.
func (s *TaskSet) Close() {
	if s != nil && s.path != "" && !s.own {
		_ = os.Remove(s.path) // if this fails, the next process removes the file
	}
}

// Has reports whether a streaming run had the task when this process started.
func (s *TaskSet) Has(id string) bool {
	_, has := s.marks[hashOf(id)]
	return has
}

// A taskHash identifies a task. It consists of the first bytes of the SHA-256 of the task's id.
type taskHash [16]byte

func hashOf(id string) taskHash {
	sum := sha256.Sum256([]byte(id))
	return taskHash(sum[:16])
}

// A taskMark contains the properties of a task that must not change.
type taskMark struct {
	content [16]byte // digest of everything except the number of samples
	samples int32    // number of samples; 0: the run's default
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
	field(t.Metadata) // the parser has already compacted the JSON
	return taskMark{content: [16]byte(h.Sum(nil)), samples: int32(t.Samples)}
}

// maxComplaints is the maximum number of bad tasks that are reported one by one. Further bad tasks
// are only counted.
const maxComplaints = 20

// A TaskCheck validates tasks and spools them.
type TaskCheck struct {
	samples int // number of samples of a task that does not set its own
	// limit is the number of planned samples after which Run stops reading; 0 means no limit.
	limit   int
	skipBad bool
	skipped func(error) // called for each task that skipBad skips
	// Dir is the folder for the spool, and Mode is the mode of its file. If Dir is empty, there is
	// no spool.
	Dir  string
	Mode fs.FileMode
	// If marks is not nil, Run adds the mark of each task to it.
	marks map[taskHash]taskMark
}

// Run reads, validates and spools all tasks. If a task is bad, Run returns an error that has one
// line for each bad task. If skipBad is set, it skips bad tasks instead.
func (c *TaskCheck) Run(source iter.Seq2[collector.Task, error]) (*TaskSet, error) {
	spool, err := newSpool(c.Dir, c.Mode)
	if err != nil {
		return nil, err
	}
	defer spool.discard()
	set := &spool.set
	first := map[taskHash]uint32{} // line number of the first task with each id
	var bad exit.Complaints
	for t, err := range source {
		if err == nil {
			id := hashOf(t.ID)
			if line, ok := first[id]; ok {
				err = &tasks.BadError{Place: fmt.Sprintf("%s:%d", t.Source, t.Line), Err: fmt.Errorf("id %q is already used at %s:%d", t.ID, t.Source, line)}
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
		return nil, exit.Refuse(exit.Usage, bad, "fix the tasks, or skip the bad ones with --skip-bad-tasks")
	case set.Tasks == 0:
		return nil, exit.Refuse(exit.Usage, errors.New("tasks.file contains no task"), "pass a file with one task per line, such as {\"id\": \"t1\", \"prompt\": \"…\"}")
	}
	return spool.finish()
}

// A growth merges the snapshot of a run with the given tasks.
type growth struct {
	old   string   // path of the snapshot
	given *TaskSet // the given tasks, validated
	// marks contains the marks of the given tasks. grow removes the marks of the tasks that are in
	// the snapshot.
	marks           map[taskHash]taskMark
	had, now        int  // default number of samples per task: previous and current
	groups          bool // true if no task is allowed to have more samples than before
	raised          bool // true if a task has more samples than before
	spool           *spool
	removed, change []string
	fewer, more     []string
}

// grow returns the merged tasks: first the snapshot's tasks in their order, then the new tasks. The
// result bad names the tasks that are missing, have changed, or have fewer samples.
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
		{g.removed, "the given tasks lack %s of the run"},
		{g.change, "the given tasks have different messages, agents, answers or metadata for %s of the run"},
		{g.fewer, "the given tasks have fewer samples for %s of the run"},
		{g.more, "the given tasks have more samples for %s of the run, but " + keepsGroups},
	} {
		if len(c.ids) > 0 {
			bad = append(bad, fmt.Errorf(c.what+": %s", format.Plural(int64(len(c.ids)), "task"), firstFew(c.ids)))
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

func firstFew(ids []string) string {
	const few = 5
	var shown []string
	for _, id := range ids[:min(few, len(ids))] {
		shown = append(shown, termsafe.Text(id, 40))
	}
	if len(ids) > few {
		shown = append(shown, "…")
	}
	return strings.Join(shown, ", ")
}

// A spool writes validated tasks to a file, or only counts them.
type spool struct {
	file *os.File // nil if the spool only counts
	w    *bufio.Writer
	enc  *json.Encoder
	sum  hash.Hash
	set  TaskSet
	done bool
}

// newSpool creates a spool in dir, the run's folder. If this process is killed, the next process
// removes the file. If dir is empty, the spool only counts.
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
	s.enc = format.NewJSONEncoder(s.w)
	return s, nil
}

// count counts a task and its samples. If own, the task's own number of samples, is 0, the task has
// the default number.
func (s *spool) count(own, samples int) {
	s.set.Tasks++
	s.set.Samples += samplesOf(own, samples)
}

// add counts and writes one task. The parameter samples is the default number of samples.
func (s *spool) add(t *collector.Task, samples int) error {
	s.count(t.Samples, samples)
	if s.file == nil {
		return nil
	}
	return exit.With(exit.Storage, s.enc.Encode(tasks.LineOf(t, time.Now())))
}

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

// discard removes the file, unless finish has returned a TaskSet with the file.
func (s *spool) discard() {
	if !s.done && s.file != nil {
		_ = s.file.Close() // an error is harmless, because the file is removed next
		s.set.Close()
	}
}

// digestFile returns the digest of a file's first n bytes, or of the whole file if it is shorter.
func digestFile(path string, n int64) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // read only
	sum := sha256.New()
	if _, err := io.Copy(sum, io.LimitReader(f, n)); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// restoreTasks is the hint for a run whose tasks are lost.
const restoreTasks = "restore the run's original " + TasksFile + "; to add tasks, pass them with --tasks instead of editing that file"

// CheckSnapshot compares the tasks of the run in dir with run.json, and returns their digest.
func CheckSnapshot(dir string, info *Info) (digest string, err error) {
	path := filepath.Join(dir, TasksFile)
	known := int64(math.MaxInt64)
	if info.Tasks.Stream {
		known = info.Tasks.Bytes // if the file is shorter, its digest differs
	}
	digest, err = digestFile(path, known)
	switch {
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EIO):
		return "", exit.With(exit.Storage, fmt.Errorf("%s: cannot read the run's tasks: %w", dir, err))
	case err != nil:
		err = fmt.Errorf("%s: cannot read the run's tasks: %w", dir, err)
	case digest == info.Tasks.GrewFrom: // a process was killed before it replaced the file
	case digest != info.Tasks.SHA256:
		err = fmt.Errorf("%s: %s is not the file that the run wrote (its digest differs)", dir, TasksFile)
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
	return nil, errors.New("the task snapshot is empty")
}

// All yields all tasks.
func (s *TaskSet) All() iter.Seq2[collector.Task, error] { return tasks.Read(s.path, nil) }

// CheckLimit rejects a limit that splits a group if the run commits whole groups. The samples
// before the limit would wait forever for the other samples of the group. If a task has not yet
// arrived (stream, dry run), CheckLimit assumes that it has the run's number of samples. See
// CheckSamples.
func CheckLimit(c *config.Config, set *TaskSet) error {
	limit, samples := c.Tasks.Limit, c.Tasks.Samples
	if limit == 0 || !set.grows && limit >= set.Samples {
		return nil
	}
	before, after := 0, 0
	if set.path != "" && set.Tasks > 0 {
		for t, err := range tasks.Read(set.path, nil) {
			if err != nil {
				return exit.With(exit.Folder, err)
			}
			if before, after = after, after+samplesOf(t.Samples, samples); after > limit {
				break
			}
		}
	}
	if after <= limit {
		before = limit - (limit-after)%samples
		after = before + samples
	}
	if before == limit {
		return nil
	}
	hint := fmt.Sprintf("use --limit %d", after)
	if before > 0 {
		hint = fmt.Sprintf("use --limit %d or %d", before, after)
	}
	return exit.Hint(exit.Usagef("tasks.limit: a limit of %d samples splits a group of %d, but a run with --stream or --until-groups commits only whole groups", limit, after-before), hint)
}

// CheckSamples rejects a streamed task that sets its own number of samples if the run has a limit.
// Such a task could make the limit split a group.
func CheckSamples(c *config.Config, t *collector.Task) error {
	if own, samples := samplesOf(t.Samples, c.Tasks.Samples), c.Tasks.Samples; c.Tasks.Limit > 0 && own != samples {
		return fmt.Errorf("samples is %d but tasks.samples is %d, so tasks.limit could split a group: delete the task's samples field, or unset tasks.limit", own, samples)
	}
	return nil
}
