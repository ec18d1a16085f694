package main

import (
	"iter"
	"path/filepath"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/sink"
)

// reportNoRows reports that no row of task was found, and suggests the task that was likely meant.
func (p *program) reportNoRows(task, dir string, log *sink.Log) {
	text := "no rows of task " + termsafe.Text(task, 60)
	if near := nearTask(task, taskIDs(dir, log)); near != "" {
		text += ": did you mean " + termsafe.Text(near, 60) + "?"
	}
	p.say("%s", text)
}

// maxNear is the longest id, in bytes, that is compared. A comparison takes quadratic time, and
// every task is compared.
const maxNear = 100

// nearTask returns the id that task was most likely meant to be. It is empty if no id is near, or
// if task is one of the ids.
func nearTask(task string, ids iter.Seq[string]) (near string) {
	if len(task) > maxNear {
		return ""
	}
	for id := range ids {
		switch {
		case id == task:
			return ""
		case len(id) > maxNear:
		case near == "":
			near = format.Nearest(task, []string{id})
		default:
			near = format.Nearest(task, []string{near, id})
		}
	}
	return near
}

// taskIDs yields the ids of a run's tasks. An imported run has no tasks, so it takes them from the
// rows. It stops at the first error, because the ids only serve suggestions.
func taskIDs(dir string, log *sink.Log) iter.Seq[string] {
	return func(yield func(string) bool) {
		has := false
		for t, err := range tasks.Read(filepath.Join(dir, runfolder.TasksFile), nil) {
			if has = true; err != nil || !yield(t.ID) {
				return
			}
		}
		if has {
			return
		}
		for s := range log.Shards(sink.KindData) {
			for r, err := range log.Heads(s) {
				if err != nil || !yield(r.TaskID) {
					return
				}
			}
		}
		for s := range log.Shards(sink.KindFailures) {
			for f, err := range log.FailureHeads(s) {
				if err != nil || !yield(f.TaskID) {
					return
				}
			}
		}
	}
}
