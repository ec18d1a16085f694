package main

import (
	"context"
	"sync"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/fleet"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runs"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/sink"
)

func (p *program) statusCmd() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "status RUN",
		Short: "show how far a run is",
		Long: `Show how many samples of a run are committed, how many have failed and how many remain. RUN is a
folder, or the URL of a fleet or of a copied run. For a fleet, status also shows the partitions and
the workers. It reads only the commit logs, so samples that are not yet committed count as
remaining.`,
		Annotations: exits("Exit status: 0 shown, 2 usage error, 6 RUN cannot be read, 7 RUN is not a run, 9 RUN is damaged."),
		Example: `  rollout status run1
  rollout status s3://bucket/run1`,
		Args: exactArgs("RUN"),
		RunE: func(cmd *cobra.Command, args []string) error { return p.status(cmd.Context(), args[0], asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// A runStatus is the output of status.
type runStatus struct {
	RunID      string           `json:"run_id"`
	Running    *bool            `json:"running,omitempty"` // a process on this machine collects into the folder; nil if the run is not in a folder
	Planned    int              `json:"planned"`
	Committed  int              `json:"committed"`
	Failed     int              `json:"failed"`
	Remaining  int              `json:"remaining"`
	Rows       int64            `json:"rows"`
	Tokens     sink.Tokens      `json:"tokens"`
	Partitions *partitionStatus `json:"partitions,omitempty"` // nil if the run is not a fleet
	Workers    []fleet.Beat     `json:"workers,omitempty"`
}

type partitionStatus struct {
	Total    int `json:"total"` // with tasks
	Complete int `json:"complete"`
	Claimed  int `json:"claimed"` // and not complete
}

func (p *program) status(ctx context.Context, location string, asJSON bool) error {
	run, err := p.openRun(ctx, location)
	if err != nil {
		return err
	}
	s, err := statusOf(ctx, run)
	if err != nil {
		return err
	}
	if asJSON {
		return p.printJSON(s)
	}
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	termsafe.Fprintf(w, "samples\t%d planned: %d committed, %d failed, %d remaining\n", s.Planned, s.Committed, s.Failed, s.Remaining)
	termsafe.Fprintf(w, "rows\t%s with %s, %s of them trained\n", format.Count(s.Rows), format.Plural(s.Tokens.Total, "token"), format.Percent(s.Tokens.Trainable, s.Tokens.Total))
	if of := s.Partitions; of != nil {
		termsafe.Fprintf(w, "partitions\t%d: %d complete, %d claimed, %d not claimed\n", of.Total, of.Complete, of.Claimed, of.Total-of.Complete-of.Claimed)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(s.Workers) > 0 {
		termsafe.Fprintf(w, "\nworker\thost\tprocess\tlast heartbeat\tpartitions\tsealed\n")
		for _, b := range s.Workers {
			termsafe.Fprintf(w, "%s\t%s\t%d\t%s\t%d\t%d\n", b.Worker, termsafe.Text(b.Host, 40), b.PID, b.Time.Local().Format("2006-01-02 15:04:05"), b.Count(""), b.Count(fleet.StateSealed))
		}
	}
	return w.Flush()
}

func statusOf(ctx context.Context, run *runs.Run) (*runStatus, error) {
	s := &runStatus{RunID: run.Info.ID}
	if run.Dir != "" {
		_, running := runfolder.Locked(run.Dir)
		s.Running = &running
		if err := run.Info.CountTasks(run.Dir); err != nil {
			return nil, err
		}
	}
	s.Planned = run.Info.Tasks.Planned
	if run.Fleet != nil {
		s.Partitions = &partitionStatus{Total: len(run.Datasets)}
	}
	var mu sync.Mutex
	err := run.Each(ctx, func(_ context.Context, _ int, d *runs.Dataset) error {
		log, err := d.Log()
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		s.add(log)
		return nil
	})
	if err != nil {
		return nil, run.Error(err)
	}
	s.Remaining = s.Planned - s.Committed - s.Failed
	if run.Fleet != nil {
		if s.Workers, err = fleet.Beats(run.Store); err != nil {
			return nil, exit.With(exit.Storage, err)
		}
	}
	return s, nil
}

// add adds the samples of a dataset.
func (s *runStatus) add(log *sink.Log) {
	done := log.Done()
	failed := map[string]bool{}
	for i := range log.Commits {
		for _, c := range log.Commits[i].Samples {
			if _, ok := done[c.Key]; !ok {
				failed[c.Key] = true
			}
		}
	}
	s.Committed += len(done)
	s.Failed += len(failed)
	for shard := range log.Shards(sink.KindData) {
		s.Rows += shard.Rows
		s.Tokens.Add(shard.Tokens)
	}
	switch {
	case s.Partitions == nil:
	case log.Sealed():
		s.Partitions.Complete++
	case log.Last() > 0: // a log begins with a claim
		s.Partitions.Claimed++
	}
}
