package main

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/collect"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runs"
	"github.com/rollout-rl/rollout/sink/store"
)

func (p *program) planCmd() *cobra.Command {
	partitions, join := 0, false
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "split a run for several processes",
		Long: `Split the tasks of a run into partitions, and write them to a store that all processes reach:
a bucket, or a folder on a shared file system. rollout work collects them. plan takes the settings
and flags of rollout collect. No worker can change the settings that rows depend on. The other
settings, such as the servers, are defaults that each worker can change.`,
		Annotations: exits("Exit status: 0 the run is planned, 2 usage, configuration or task error, 6 the store cannot be used, 7 the store already contains a run."),
		Example: `  rollout plan -c run.yaml --tasks tasks.jsonl --out s3://bucket/run1
  rollout plan -c run.yaml --tasks tasks.jsonl --out shared/run1 --partitions 1024`,
		Args: exactArgs(),
	}
	cmd.Flags().IntVar(&partitions, "partitions", 0, "split the tasks into `N` partitions, at least 8 per worker (default 256, but at most one per task)")
	cmd.Flags().BoolVar(&join, "join", false, "succeed if the store already contains a fleet with the same tasks and rows")
	load := config.AddFlags(cmd, p.getenv, p.environ)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		l, err := load(func(*config.Loader) error { return nil })
		if err != nil {
			return err
		}
		if err := append(l.Config.CheckComplete(true), collect.CheckFleet(l.Config)...).Err(); err != nil {
			return err
		}
		return p.plan(cmd.Context(), l, partitions, join)
	}
	return cmd
}

func (p *program) plan(ctx context.Context, l *config.Loader, partitions int, join bool) (err error) {
	host := collect.NewHost(p.stdin, p.stdout, p.stderr, p.getenv, p.abort, &collect.Options{DryRun: true})
	defer func() { err = host.Close(err) }()
	location := l.Config.Output.Dir
	objects, err := p.openStore(ctx, location, nil)
	if err == nil {
		err = exit.With(exit.Storage, store.Probe(objects))
	}
	if err != nil {
		return err
	}
	f, err := collect.PlanFleet(ctx, host, l, objects, partitions, join)
	if err != nil {
		return err
	}
	p.say("planned %s of %s in %s; start workers with: rollout work %s --spool DIR", format.Plural(int64(f.Samples()), "sample"), format.Plural(int64(len(f.Partitions)), "partition"), objects, format.Shell(location))
	return nil
}

// openStore opens the store of a fleet. If requests is not nil, it counts the requests.
func (p *program) openStore(ctx context.Context, location string, requests *store.Requests) (store.Store, error) {
	return runs.OpenStore(ctx, location, store.Options{Log: p.storeLog(), Requests: requests})
}

// needFolder returns a usage error if a location is a URL. The error does not contain the URL, because it can
// contain credentials.
func needFolder(what, location, hint string) error {
	if !store.IsURL(location) {
		return nil
	}
	return exit.Hint(exit.Usagef("%s: supported only for a folder on this machine, not for a URL", what), hint)
}

// storeLog returns the log of a store, which reports that a bucket is away.
func (p *program) storeLog() *slog.Logger { return slog.New(slog.NewTextHandler(p.stderr, nil)) }

// openRun opens the run at a location for reading.
func (p *program) openRun(ctx context.Context, location string) (*runs.Run, error) {
	return runs.Open(ctx, location, p.storeLog())
}
