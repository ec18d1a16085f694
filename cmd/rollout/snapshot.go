package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/rollout-rl/rollout/collector"
)

// How the snapshot of a run's tasks grows. A run that is continued may be given
// its tasks in another order, more of them, and more samples of each. It may not
// lose one, nor may one change: its samples are in the dataset.

// A storedTask is what has to stay of a task.
type storedTask struct {
	group   string
	rest    [16]byte // digest of answer and metadata, which rows and rewards show
	samples int      // 0: the run's
	seen    bool     // in the snapshot
}

func storedTaskOf(t *collector.Task) storedTask {
	h := sha256.New()
	enc := json.NewEncoder(h)
	_ = enc.Encode(t.Answer)   // a hash takes everything, and a text always can
	_ = enc.Encode(t.Metadata) // compact JSON since it was read
	return storedTask{group: collector.GroupID(t), rest: [16]byte(h.Sum(nil)), samples: t.Samples}
}

// grow returns the snapshot of old with what now adds to it: its tasks in their
// order, then the new ones. samplesHad and samplesNow are the samples of a task that
// does not say its own. What a run cannot lose is in the complaints.
func grow(old string, now *taskSet, samplesHad, samplesNow int) (_ *taskSet, bad complaints, err error) {
	given := make(map[string]storedTask, now.tasks)
	for t, err := range readTasks(now.path, nil) {
		if err != nil {
			return nil, nil, err
		}
		given[t.ID] = storedTaskOf(&t)
	}
	spool, err := newSpool()
	if err != nil {
		return nil, nil, err
	}
	defer spool.discard()
	var removed, changed, fewer []string
	for t, err := range readTasks(old, nil) {
		if err != nil {
			return nil, nil, withExit(exitFolder, err)
		}
		n, ok := given[t.ID]
		had := storedTaskOf(&t)
		switch {
		case !ok:
			removed = append(removed, t.ID)
			continue
		case n.group != had.group, n.rest != had.rest:
			changed = append(changed, t.ID)
		case samplesOf(n.samples, samplesNow) < samplesOf(t.Samples, samplesHad):
			fewer = append(fewer, t.ID)
		}
		n.seen = true
		given[t.ID] = n
		t.Samples = n.samples
		if err := spool.add(&t, samplesNow); err != nil {
			return nil, nil, err
		}
	}
	for t, err := range readTasks(now.path, nil) {
		if err != nil {
			return nil, nil, err
		}
		if given[t.ID].seen {
			continue
		}
		if err := spool.add(&t, samplesNow); err != nil {
			return nil, nil, err
		}
	}
	for _, c := range []struct {
		ids  []string
		what string
	}{
		{removed, "are not among those that you gave"},
		{changed, "have other messages, agent, answer or metadata than those that you gave"},
		{fewer, "have more samples in the run than you gave"},
	} {
		if len(c.ids) > 0 {
			bad = append(bad, fmt.Errorf("tasks: %d of the run's %s: %s", len(c.ids), c.what, firstFew(c.ids)))
		}
	}
	if bad != nil {
		return nil, bad, nil
	}
	set, err := spool.finish()
	if err != nil {
		return nil, nil, err
	}
	set.bad = now.bad
	return set, nil, nil
}

func samplesOf(own, run int) int {
	if own > 0 {
		return own
	}
	return run
}

// firstFew names some of ids.
func firstFew(ids []string) string {
	const few = 5
	var shown []string
	for _, id := range ids[:min(few, len(ids))] {
		shown = append(shown, cut(id, 40))
	}
	if len(ids) > few {
		shown = append(shown, "…")
	}
	return strings.Join(shown, ", ")
}

// A spool takes checked tasks to a file of its own.
type spool struct {
	file *os.File
	w    *bufio.Writer
	enc  *json.Encoder
	sum  interface{ Sum([]byte) []byte }
	set  taskSet
	done bool
}

func newSpool() (*spool, error) {
	f, err := os.CreateTemp("", "rollout-tasks-*.jsonl")
	if err != nil {
		return nil, withExit(exitStorage, err)
	}
	sum := sha256.New()
	s := &spool{file: f, sum: sum, set: taskSet{path: f.Name()}}
	s.w = bufio.NewWriterSize(io.MultiWriter(f, sum), 64<<10)
	s.enc = json.NewEncoder(s.w)
	s.enc.SetEscapeHTML(false)
	return s, nil
}

// add writes one task. samples is how many it has where it does not say.
func (s *spool) add(t *collector.Task, samples int) error {
	s.set.tasks++
	s.set.samples += samplesOf(t.Samples, samples)
	return withExit(exitStorage, s.enc.Encode(taskLine{t.ID, t.Messages, t.Answer, t.Metadata, t.Samples, t.Agent}))
}

// finish returns the tasks that were added.
func (s *spool) finish() (*taskSet, error) {
	if err := errors.Join(s.w.Flush(), s.file.Close()); err != nil {
		return nil, withExit(exitStorage, err)
	}
	s.done = true
	s.set.digest = hex.EncodeToString(s.sum.Sum(nil))
	return &s.set, nil
}

// discard removes the file, unless finish gave it away.
func (s *spool) discard() {
	if !s.done {
		_ = s.file.Close() // it is thrown away
		s.set.close()
	}
}

// digestFile is the SHA-256 of a file, in hex.
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
