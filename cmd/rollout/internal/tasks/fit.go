package tasks

import (
	"errors"
	"fmt"
	"iter"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/reward"
)

// A Fit checks tasks, as they are read, against the settings of the run. A task fits if the run's
// agents can do it and its answer can be scored.
type Fit struct {
	doable func(*collector.Task) error
	scorer reward.Checker // nil if every task can be scored

	first             *collector.Task // the first valid task; nil if there is none yet
	tasks, unscorable int
}

// NewFit returns a Fit for the scorer, which can be nil. The function doable returns an error if the
// run's agents cannot do a task.
func NewFit(doable func(*collector.Task) error, scorer collector.Scorer) *Fit {
	k := &Fit{doable: doable}
	k.scorer, _ = scorer.(reward.Checker)
	return k
}

// maxAgents is the maximum number of distinct agent overrides that are cached.
const maxAgents = 1 << 12

// Overrides returns a function for NewFit that checks the agent overrides of a task for Letta servers.
func Overrides(cfg agent.Config) func(*collector.Task) error {
	checked := map[string]error{}
	return func(t *collector.Task) error {
		if t.Agent == nil {
			return nil
		}
		err, seen := checked[string(t.Agent)]
		if !seen {
			err = cfg.CheckOverrides(t.Agent)
			if len(checked) < maxAgents {
				checked[string(t.Agent)] = err
			}
		}
		return err
	}
}

// Read yields the tasks. For a task that does not fit, it yields a *BadError. If the Fit
// is nil, Read does not check anything.
func (k *Fit) Read(tasks iter.Seq2[collector.Task, error]) iter.Seq2[collector.Task, error] {
	if k == nil {
		return tasks
	}
	return func(yield func(collector.Task, error) bool) {
		for t, err := range tasks {
			if err == nil {
				err = k.Check(&t)
			}
			if !yield(t, err) {
				return
			}
		}
	}
}

// Check validates one task. It returns a *BadError if the run's agents cannot do it, or if the scorer
// cannot compare a sample with the task's answer.
func (k *Fit) Check(t *collector.Task) error {
	if t.Recorded != nil {
		return &BadError{fmt.Sprintf("%s:%d", t.Source, t.Line), errors.New("recorded: not allowed in a task; to collect a server run, use --from-runs run=ID")}
	}
	err := k.doable(t)
	if err != nil {
		return &BadError{fmt.Sprintf("%s:%d", t.Source, t.Line), err}
	}
	if k.scorer != nil {
		err = k.scorer.Check(t)
	}
	if _, bad := errors.AsType[*reward.AnswerError](err); bad {
		return &BadError{fmt.Sprintf("%s:%d", t.Source, t.Line), err}
	}
	if k.tasks++; k.first == nil {
		k.first = new(*t)
	}
	if err != nil {
		k.unscorable++
	}
	return nil
}

// First returns the first valid task, or nil if there is none.
func (k *Fit) First() *collector.Task { return k.first }

// Unscorable returns how many of the tasks read so far lack an answer for the scorer.
func (k *Fit) Unscorable() int { return k.unscorable }

// Scorable returns an error if no task can be scored. If only some tasks cannot be scored, it
// reports their number through note.
func (k *Fit) Scorable(kind string, note func(format string, args ...any)) error {
	switch k.unscorable {
	case 0:
	case k.tasks:
		none := fmt.Sprintf("none of the %d tasks has a usable answer", k.tasks)
		if k.tasks == 1 {
			none = "the only task has no usable answer"
		}
		return exit.Hint(exit.Usagef("reward.kind %s needs an answer in the task, but %s", kind, none),
			"add an answer to the tasks, or remove --reward")
	default:
		note("no usable answer for reward.kind %s in %d of %d tasks: the samples of these tasks get no reward", kind, k.unscorable, k.tasks)
	}
	return nil
}
