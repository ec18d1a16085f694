package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/connect"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/preflight"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runs"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/harness"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/session/store"
	objects "github.com/rollout-rl/rollout/sink/store"
)

type cleanOptions struct {
	runID          string
	dryRun, asJSON bool
	olderThan      time.Duration
}

func (p *program) cleanCmd() *cobra.Command {
	var o cleanOptions
	cmd := &cobra.Command{
		Use:   "clean RUN | --run-id ID",
		Short: "remove what a run left: agents on the server, or processes and folders",
		Long: `Delete the agents that a run left on the server. Every agent of a run has the run's id
as a tag, so no other agent is deleted. Server runs in progress are lost, so
collect --resume cannot reattach to them. The servers, password, headers and certificates
come from the run unless flags, the environment or -c override them.

If the run drives a harness, clean kills the processes that its attempts left on this
machine, and removes their folders and sessions. A later collect --resume then collects
the unfinished samples again.

RUN can be the URL of a fleet that is complete. clean then removes what all its workers left. It
also deletes the objects of the fleet that no reader needs: shards and checkpoints that were
replaced, and the rest of commands that were killed. A reader that started before the fleet was
complete can still use replaced shards, so clean keeps them for a day after that.`,
		Annotations: exits("Exit status: 0 done, 2 usage error, 5 a server did not answer or an agent could not be deleted, 6 the store of a fleet cannot be used, 7 RUN is not a run folder, 8 a collector is running on RUN, or the fleet is not complete, 9 its run.json is damaged."),
		Example: `  rollout clean run1
  rollout clean s3://bucket/run1 --older-than 1h
  rollout clean --run-id 20260101-120000-0a1b2c3d --server http://127.0.0.1:8283`,
		Args: cobra.MaximumNArgs(1),
	}
	f := cmd.Flags()
	f.StringVar(&o.runID, "run-id", "", "the `ID` of the run, if its folder is gone")
	f.BoolVar(&o.dryRun, "dry-run", false, "list what would be deleted, but delete nothing")
	f.DurationVar(&o.olderThan, "older-than", 24*time.Hour, "keep the objects of a fleet for this `DURATION`")
	f.BoolVar(&o.asJSON, "json", false, "print one JSON line for each thing that is deleted")
	load := config.AddFlags(cmd, p.getenv, p.environ, "server.urls")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if (len(args) == 1) == (o.runID != "") {
			return exit.Hint(exit.Usagef("%sneeds either RUN or --run-id", verb(cmd)), "see rollout clean --help")
		}
		if o.olderThan < 0 {
			return exit.Usagef("--older-than: must be ≥ 0")
		}
		var workers []string // run ids
		var of *runs.Run     // the fleet
		l, err := load(func(l *config.Loader) error {
			if len(args) == 0 {
				return nil
			}
			run, err := p.openRun(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			info := run.Info
			if run.Fleet != nil {
				l.FromRun(info.Config, "server", "engine", "harness")
				of = run
				workers, err = workersOf(cmd.Context(), run)
				return err
			}
			if h, held := runfolder.Locked(args[0]); held {
				return runfolder.LockedError(args[0], h, "the run's agents are in use; wait until the run ends")
			}
			o.runID = info.ID
			l.FromRun(info.Config, "server", "engine", "harness")
			return nil
		})
		if err != nil {
			return err
		}
		if o.runID != "" {
			workers = []string{o.runID}
		}
		switch {
		case of == nil && cmd.Flags().Changed("older-than"):
			return exit.Usagef("--older-than: supported only for a fleet")
		case of != nil:
			err = p.cleanStore(cmd.Context(), of, &o)
		}
		for _, o.runID = range workers {
			if l.Config.Kind() == config.KindHarness {
				err = errors.Join(err, p.cleanHarness(cmd.Context(), &o, args))
			} else {
				err = errors.Join(err, p.clean(cmd.Context(), l.Config, &o))
			}
		}
		return err
	}
	return cmd
}

// workersOf returns the run ids of a fleet's workers. It returns an error if the fleet is not complete, because
// a worker can then be alive.
func workersOf(ctx context.Context, run *runs.Run) (ids []string, err error) {
	s, err := statusOf(ctx, run)
	if err != nil {
		return nil, err
	}
	for _, b := range s.Workers {
		if b.RunID != "" && !slices.Contains(ids, b.RunID) { // the empty id means all runs
			ids = append(ids, b.RunID)
		}
	}
	if n := s.Partitions.Total - s.Partitions.Complete; n > 0 {
		return nil, exit.Hint(exit.With(exit.Locked, fmt.Errorf("%s: %d of %d partitions are not complete, so workers can still use their agents", run.Location, n, s.Partitions.Total)),
			"clean the agents of a dead worker with: rollout clean --run-id ID; the ids are "+strings.Join(ids, ", "))
	}
	return ids, nil
}

// cleanStore deletes the objects of a fleet that no reader needs.
func (p *program) cleanStore(ctx context.Context, of *runs.Run, o *cleanOptions) error {
	n, size := int64(0), int64(0)
	err := of.Clean(ctx, o.olderThan, o.dryRun, func(url string, i objects.Info) error {
		n, size = n+1, size+i.Size
		if o.asJSON {
			return p.printJSON(map[string]any{"object": url, "bytes": i.Size, "removed": !o.dryRun})
		}
		termsafe.Fprintf(p.stdout, "%s\n", url)
		return nil
	})
	did := "removed"
	if o.dryRun {
		did = "found"
	}
	p.say("%s %s with %s that no reader has needed for %s", did, format.Plural(n, "object"), format.Bytes(size), format.Duration(o.olderThan))
	return err
}

// cleanHarness removes what the attempts of a harness left on this machine: processes, folders and, if
// args contains the folder of the run, sessions.
func (p *program) cleanHarness(ctx context.Context, o *cleanOptions, args []string) error {
	marks, err := harness.Leftovers("", o.runID)
	attempts, sessions := len(marks), 0
	dir := ""
	if len(args) > 0 { // a fleet has no sessions in its store
		dir = filepath.Join(args[0], runfolder.SessionsDir)
		var failed error
		sessions, failed = countSessions(dir)
		err = errors.Join(err, failed)
	}
	did := "found"
	if err == nil && !o.dryRun {
		did = "removed"
		attempts, err = harness.Clean(ctx, "", o.runID, nil)
		if sessions > 0 {
			var failed error
			sessions, failed = clearSessions(dir)
			err = errors.Join(err, failed)
		}
	}
	if err != nil {
		return exit.With(exit.Unusable, err)
	}
	p.say("%s what was left of %s and %s of run %s", did, format.Plural(int64(attempts), "attempt"), format.Plural(int64(sessions), "session"), o.runID)
	if o.asJSON {
		return p.printJSON(map[string]any{"run_id": o.runID, "attempts": attempts, "sessions": sessions, "removed": !o.dryRun})
	}
	return nil
}

// countSessions counts the files of sessions in the subfolders of a folder. A folder that does not
// exist has none.
func countSessions(dir string) (n int, err error) {
	folders, err := os.ReadDir(dir)
	for _, f := range folders {
		if !f.IsDir() {
			continue
		}
		files, err := os.ReadDir(filepath.Join(dir, f.Name()))
		if err != nil {
			return 0, err
		}
		for _, file := range files {
			if filepath.Ext(file.Name()) == ".session" {
				n++
			}
		}
	}
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	return n, err
}

// clearSessions removes all sessions in a folder, and returns their number.
func clearSessions(dir string) (int, error) {
	s, err := store.Open(store.Config{Dir: dir})
	if err != nil {
		return 0, err
	}
	n, err := s.Clear(func(string) bool { return false })
	return n, errors.Join(err, s.Close())
}

func (p *program) clean(ctx context.Context, c *config.Config, o *cleanOptions) error {
	clients, err := connect.Clients(c, func(text string) { p.say("%s", text) }, nil)
	if err != nil {
		return err
	}
	if len(clients) == 0 {
		return exit.Hint(exit.Usagef("no server is configured"), "pass one with --server URL")
	}
	total := int64(0)
	var failed []error
	for _, client := range clients {
		err := agent.EachAgent(ctx, client, o.runID, func(a *letta.AgentState) error {
			if !o.dryRun {
				if err := client.DeleteAgent(ctx, a.ID); err != nil {
					return fmt.Errorf("agent %s: %w", a.ID, err)
				}
			}
			total++
			if o.asJSON {
				return p.printJSON(map[string]any{"server": client.BaseURL(), "agent_id": a.ID, "name": a.Name, "removed": !o.dryRun})
			}
			termsafe.Fprintf(p.stdout, "%s %s\n", a.ID, a.Name)
			return nil
		})
		if err != nil {
			failed = append(failed, preflight.Unusable(client.BaseURL(), err))
		}
		client.CloseIdle()
	}
	did := "removed"
	if o.dryRun {
		did = "found"
	}
	p.say("%s %s of run %s", did, format.Plural(total, "agent"), o.runID)
	return errors.Join(failed...)
}
