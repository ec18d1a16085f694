package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/collect"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/fleet"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/sink/store"
)

func (p *program) workCmd() *cobra.Command {
	var o collect.Options
	spool := ""
	cmd := &cobra.Command{
		Use:   "work STORE",
		Short: "collect a part of a planned run",
		Long: `Collect partitions of a run that rollout plan has split, until all partitions are complete. Any
number of workers can run at the same time, and start and end at any time, on any machine. If a
worker dies, the others collect its partitions after a minute. An interrupt lets the samples in
flight finish, and hands the rest to the other workers.

The spool is a folder on a local disk for samples that are not yet in the store. Only one worker can
use it. To keep the samples of a worker that has died, start another one with its spool. work
uses the settings of the plan; pass the flags of rollout collect to change them.

A worker skips a partition that is damaged in the store. It collects the others and ends with exit
status 9.`,
		Annotations: exits("Exit status: 0 all partitions are complete, 1 internal error, 2 usage or configuration error, 3 or 4 as 0, but samples failed, 5 server or model unusable, 6 storage failed, 7 the store contains no planned run, or its settings differ, 8 another worker uses the spool, 9 files are damaged, 130 interrupted."),
		Example: `  rollout work s3://bucket/run1 --spool /tmp/spool
  rollout work s3://bucket/run1 --spool /tmp/spool --server http://127.0.0.1:8283`,
		Args: exactArgs("STORE"),
	}
	f := cmd.Flags()
	f.StringVar(&spool, "spool", "", "keep samples that are not yet in the store in the local folder `DIR`")
	f.BoolVar(&o.JSON, "json", false, "print JSON lines: launch, status, commit, warning, done and group events")
	f.BoolVar(&o.Quiet, "quiet", false, "print only errors")
	f.BoolVar(&o.Attached, "attached", false, "end at once when standard input ends")
	f.Bool("retry-failed", false, "")
	_ = f.MarkHidden("retry-failed") // it is only refused with a better error
	load := config.AddFlags(cmd, p.getenv, p.environ)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		var earlier *runfolder.Earlier // nil if the spool is new
		defer func() { err = errors.Join(err, earlier.Close()) }()
		if spool == "" {
			return exit.Hint(exit.Usagef("--spool is not set"), "pass a folder on a local disk, such as --spool /tmp/spool")
		}
		if err := needFolder("--spool", spool, "pass a folder on a local disk, such as --spool /tmp/spool"); err != nil {
			return err
		}
		for flag, why := range map[string]string{
			"tasks": "the tasks come from rollout plan", "out": "rows go to STORE, and other files to --spool",
			"retry-failed": "a partition is complete when its samples have succeeded or failed; plan another fleet with the tasks that failed",
		} {
			if cmd.Flags().Changed(flag) {
				return exit.Hint(exit.Usagef("--%s: not supported by work", flag), why)
			}
		}
		ctx, location, requests := cmd.Context(), args[0], new(store.Requests)
		storing, abandon := context.WithCancel(ctx)
		defer abandon()
		objects, err := p.openStore(storing, location, requests)
		if err != nil {
			return err
		}
		of, err := fleet.Read(objects)
		if err == nil {
			err = exit.With(exit.Storage, store.Probe(objects))
		}
		if err != nil {
			return err
		}
		o.Fleet = &collect.Fleet{Fleet: of, Store: objects, Location: location, Abandon: abandon, Requests: requests, Checks: requests.Take()}
		l, err := load(func(l *config.Loader) (err error) {
			l.Config.Output.Dir = spool
			if earlier, err = runfolder.Find(l, false, false); err == nil {
				err = o.Fleet.CheckSpool(spool, earlier)
			}
			if err != nil {
				return exit.Refuse(exit.Code(err), err, "start each worker with its own --spool, an empty folder or one that it used before")
			}
			l.FromRun(of.Config)
			return nil
		})
		if l == nil || err != nil {
			return err
		}
		if err := append(l.Config.CheckComplete(false), collect.CheckFleet(l.Config)...).Err(); err != nil {
			return err
		}
		return p.collect(ctx, l, earlier, &o)
	}
	return cmd
}
