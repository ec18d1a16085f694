package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/human"
	"github.com/rollout-rl/rollout/collector/journal"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/frame"
)

// repair says what is damaged in the write-ahead log and the journal of a run, and
// what will be kept, and then keeps it. It reports whether anything was damaged.
func (p *program) repair(dir string, dryRun bool) (damaged bool, err error) {
	folder, err := os.Stat(dir)
	if err != nil {
		return false, exit.With(exit.Storage, err)
	}
	mode := (&config.Config{}).SharedAs(config.ShareOf(folder)).FileMode()
	lock, err := lockRun(dir, mode)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, lock.close()) }()
	plan, err := sink.PlanRepair(sink.OSMode(mode), dir)
	if err != nil {
		return false, readError(dir, err)
	}
	notes, err := journalDamage(dir)
	if err != nil {
		return false, err
	}
	if len(plan.Segments) == 0 && len(plan.Lost) == 0 && len(notes) == 0 {
		p.say("%s: neither the write-ahead log nor the journal is damaged: there is nothing to repair", dir)
		return false, nil
	}
	for _, s := range plan.Segments {
		p.say("%s: %d bytes in %s cannot be read; %s whole and kept; the damaged file goes to %s",
			s.Path, s.LostBytes, human.Plural(int64(len(s.Damage)), "place"), human.Plural(int64(s.Samples), "sample"), s.Aside)
		for _, d := range s.Damage {
			p.say("%s: %v", s.Path, d)
		}
	}
	for _, path := range plan.Lost {
		p.say("%s: the entry that named it is missing at the end of the commit log; the file goes to orphans/", path)
	}
	for _, err := range notes {
		p.say("%v", err)
	}
	if len(notes) > 0 {
		p.say("%s: %s cannot be read; every entry that is whole is kept", journalDir, human.Plural(int64(len(notes)), "place"))
	}
	if dryRun {
		return true, nil
	}
	if err := plan.Apply(); err != nil {
		return true, exit.With(exit.Storage, fmt.Errorf("%s: repair: %w", dir, err))
	}
	if len(notes) > 0 {
		j, err := journal.Open(filepath.Join(dir, journalDir), journal.Config{Salvage: true, Mode: mode})
		if err == nil {
			err = j.Close()
		}
		if err != nil {
			return true, exit.With(exit.Storage, fmt.Errorf("%s: repair: %w", dir, err))
		}
	}
	p.say("%s: repaired; %s collects again what was lost", dir, resumeCommand(dir))
	return true, nil
}

// repairHint is what to do about a damaged write-ahead log or journal.
func repairHint(dir string) string {
	return "rollout verify --repair " + human.Shell(dir) + " keeps all that is whole; --dry-run says what that is"
}

// journalDamage lists what cannot be read in the journal of a run.
func journalDamage(dir string) (damage []error, err error) {
	for _, err := range journal.Read(filepath.Join(dir, journalDir)) {
		switch _, corrupt := errors.AsType[*frame.CorruptError](err); {
		case err == nil:
		case corrupt:
			damage = append(damage, err)
		case errors.Is(err, frame.ErrNewer):
			return nil, exit.Hint(exit.With(exit.Folder, err), "use a newer rollout")
		default:
			return nil, exit.With(exit.Storage, err)
		}
	}
	return damage, nil
}

// journalProblems adds the damage of the journal to what verify found.
func journalProblems(dir string, r *sink.VerifyReport) error {
	damage, err := journalDamage(dir)
	r.Problems = append(r.Problems, damage...)
	r.ProblemCount += int64(len(damage))
	return err
}
