package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runs"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector/journal"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/frame"
)

func (p *program) verifyCmd() *cobra.Command {
	var asJSON, repair, dryRun bool
	var o sink.VerifyOptions
	cmd := &cobra.Command{
		Use:   "verify RUN",
		Short: "check the integrity of a run",
		Long: `Check the integrity of a run: run.json, the tasks and the copy of the tokenizer are
unchanged; the commit log has no gap, and its entries belong to this run and have valid
checksums; every shard exists with its checksum and row count; no sample is duplicated, and
every row satisfies the invariants; the scores sets, the write-ahead log and the journal are
readable. verify changes nothing, and can check a run in progress.

RUN is a folder, or the URL of a fleet or of a copied run. In a fleet, the samples of each partition
are also compared with its tasks.

--repair first repairs a damaged write-ahead log or journal: it reports the damage, keeps
all intact records and moves the damaged file aside. It also moves aside a shard whose
entry is missing at the end of the commit log. collect --resume collects lost samples
again. Damaged shards and commits cannot be repaired.`,
		Annotations: exits("Exit status: 0 no problem, 2 usage error, 6 RUN cannot be read, 7 RUN is not a run, 8 RUN is in use (with --repair), 9 problems found and listed."),
		Example: `  rollout verify run1
  rollout verify run1 --repair --dry-run
  rollout verify run1 --repair`,
		Args: exactArgs("RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			run, err := p.openRun(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			o.RunID = run.Info.ID
			if dryRun && !repair {
				return exit.Hint(exit.Usagef("--dry-run needs --repair"), "without --repair, verify never changes a file")
			}
			if repair {
				if err := run.NeedFolder("--repair", runs.Restore); err != nil {
					return err
				}
				damaged, err := p.repair(args[0], dryRun)
				if err != nil {
					return err
				}
				if dryRun {
					if damaged {
						return exit.SilentError(exit.Verify)
					}
					return nil
				}
			}
			r, err := run.Verify(cmd.Context(), o)
			if err != nil {
				return err
			}
			if run.Dir == "" {
				return p.verified(run, r, asJSON)
			}
			found, err := journalDamage(args[0])
			if err != nil {
				return err
			}
			if _, err := runfolder.CheckSnapshot(args[0], &run.Info); err != nil {
				if exit.Code(err) != exit.Verify {
					return err
				}
				found = append(found, err)
			}
			r.Problems, r.ProblemCount = append(r.Problems, found...), r.ProblemCount+int64(len(found))
			return p.verified(run, r, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.Flags().BoolVar(&repair, "repair", false, "first repair a damaged write-ahead log or journal")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "with --repair: report the repair but do not perform it")
	cmd.Flags().IntVar(&o.MaxProblems, "max-problems", 100, "list at most `N` problems; all are counted")
	cmd.Flags().IntVar(&o.VocabSize, "vocab-size", 0, "check ids against a vocabulary of size `N` (default: not checked)")
	return cmd
}

// verified prints what verify has found.
func (p *program) verified(run *runs.Run, r sink.VerifyReport, asJSON bool) error {
	dir := run.Location
	problems := make([]string, len(r.Problems))
	for i, err := range r.Problems {
		problems[i] = err.Error()
	}
	if asJSON {
		body := map[string]any{
			"run": dir, "ok": r.ProblemCount == 0, "commits": r.Commits, "shards": r.Shards, "samples": r.Samples,
			"failed": r.Failed, "rows": r.Rows, "failures": r.Failures, "tokens": r.Tokens, "bytes": r.Bytes,
			"problems": problems, "problem_count": r.ProblemCount, "orphans": r.Orphans,
		}
		if run.Dir != "" { // only a folder has a write-ahead log
			body["wal_segments"], body["wal_pending"], body["wal_torn_bytes"] = r.WAL.Segments, r.WAL.Pending, r.WAL.TornBytes
		}
		if err := p.printJSON(body); err != nil {
			return err
		}
	} else {
		for _, text := range problems {
			termsafe.Fprintf(p.stdout, "%s\n", text)
		}
		for _, name := range r.Orphans {
			p.say("%s: orphaned file (no commit lists it)", name)
		}
		if r.WAL.Pending > 0 {
			p.say("samples in the write-ahead log but not yet in a shard: %d", r.WAL.Pending)
		}
		state := "ok"
		if r.ProblemCount > 0 {
			state = format.Plural(r.ProblemCount, "problem")
			if hidden := r.ProblemCount - int64(len(problems)); hidden > 0 {
				state += fmt.Sprintf(", %d of them not listed", hidden)
			}
		}
		termsafe.Fprintf(p.stdout, "%s: %s: %s, %s, %s; %s, %d of them failed; %s, %s; %s, %d of them trainable\n",
			dir, state, format.Plural(r.Commits, "commit"), format.Plural(r.Shards, "shard"), format.Bytes(r.Bytes),
			format.Plural(r.Samples, "sample"), r.Failed, format.Plural(r.Rows, "row"), format.Plural(r.Failures, "failure row"),
			format.Plural(r.Tokens.Total, "token"), r.Tokens.Trainable)
		if slices.ContainsFunc(r.Problems, runfolder.Repairable) {
			termsafe.Fprintf(p.stderr, "hint: %s\n", runfolder.RepairHint(dir))
		}
	}
	if r.ProblemCount > 0 {
		return exit.SilentError(exit.Verify)
	}
	return nil
}

// repair repairs the write-ahead log and the journal of a run. It first reports the damage and the
// data that can be kept. The result damaged is true if it found damage.
func (p *program) repair(dir string, dryRun bool) (damaged bool, err error) {
	folder, err := os.Stat(dir)
	if err != nil {
		return false, exit.With(exit.Storage, err)
	}
	mode := config.ShareOf(folder).FileMode()
	lock, err := runfolder.TakeLock(dir, mode)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	plan, err := sink.PlanRepair(sink.OSMode(mode), dir)
	if err != nil {
		return false, runfolder.ReadError(dir, err)
	}
	notes, err := journalDamage(dir)
	if err != nil {
		return false, err
	}
	if len(plan.Segments) == 0 && len(plan.Lost) == 0 && len(notes) == 0 {
		p.say("%s: the write-ahead log and the journal are intact; nothing to repair", dir)
		return false, nil
	}
	moving := "moving"
	if dryRun {
		moving = "would move"
	}
	for _, s := range plan.Segments {
		p.say("%s: %s the damaged file to %s (%d unreadable bytes in %s; %s kept)",
			s.Path, moving, s.Aside, s.LostBytes, format.Plural(int64(len(s.Damage)), "place"), format.Plural(int64(s.Samples), "intact sample"))
		for _, d := range s.Damage {
			p.say("%s: %v", s.Path, d)
		}
	}
	for _, path := range plan.Lost {
		p.say("%s: the commit log has lost the entry for this file; %s the file to orphans/", path, moving)
	}
	for _, err := range notes {
		p.say("%v", err)
	}
	if len(notes) > 0 {
		p.say("%s: %s; all intact entries are kept", runfolder.JournalDir, format.Plural(int64(len(notes)), "unreadable place"))
	}
	if dryRun {
		return true, nil
	}
	if err := plan.Apply(); err != nil {
		return true, exit.With(exit.Storage, fmt.Errorf("%s: repair: %w", dir, err))
	}
	if len(notes) > 0 {
		j, err := journal.Open(filepath.Join(dir, runfolder.JournalDir), journal.Config{Salvage: true, Mode: mode})
		if err == nil {
			err = j.Close()
		}
		if err != nil {
			return true, exit.With(exit.Storage, fmt.Errorf("%s: repair: %w", dir, err))
		}
	}
	p.say("%s: repaired; run %s to collect the lost samples again", dir, runfolder.ResumeCommand(dir))
	return true, nil
}

func journalDamage(dir string) (damage []error, err error) {
	for _, err := range journal.Read(filepath.Join(dir, runfolder.JournalDir)) {
		switch _, corrupt := errors.AsType[*frame.CorruptError](err); {
		case err == nil:
		case corrupt:
			damage = append(damage, err)
		case errors.Is(err, frame.ErrNewer):
			return nil, exit.With(exit.Folder, err)
		default:
			return nil, exit.With(exit.Storage, err)
		}
	}
	return damage, nil
}
