package main

import (
	"encoding/json"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/plainjson"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tame"
)

func (p *program) configCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "show, check and describe the configuration",
		Long: `Show, check and describe the configuration.

A value is taken from the first of these that gives it: a flag, the environment
(server.max_in_flight is ROLLOUT_SERVER_MAX_IN_FLIGHT), the file of -c, the default.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return unknownVerb(cmd, args[0])
		},
	}
	cmd.AddCommand(p.configShowCmd(), p.configCheckCmd(), p.configSchemaCmd())
	return cmd
}

func (p *program) configShowCmd() *cobra.Command {
	var origin, asJSON bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "print the configuration that collect would use",
		Long: `Print the configuration that collect would use: every setting with its value, and
with --origin where that comes from. Secrets are shown as references.`,
		Annotations: exits("Exit status: 0 shown, 2 the configuration is wrong."),
		Example:     "  rollout config show -c run.yaml --origin",
		Args:        exactArgs(),
	}
	cmd.Flags().BoolVar(&origin, "origin", false, "show where each value comes from")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	load := config.AddFlags(cmd, p.getenv, p.environ)
	cmd.RunE = func(*cobra.Command, []string) error {
		l, err := load()
		if err != nil {
			return err
		}
		if err := l.Err(); err != nil {
			return err
		}
		if asJSON {
			return json.NewEncoder(p.stdout).Encode(l.Resolved())
		}
		w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
		for _, s := range l.Settings {
			if origin {
				tame.Fprintf(w, "%s\t%s\t%s\n", s.Key, s.Text(), s.Origin)
			} else {
				tame.Fprintf(w, "%s\t%s\n", s.Key, s.Text())
			}
		}
		return w.Flush()
	}
	return cmd
}

func (p *program) configCheckCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check -c FILE",
		Short: "report everything that is wrong with a configuration",
		Long: `Report everything that is wrong with a configuration, all at once. No server is
asked and nothing is written.`,
		Annotations: exits("Exit status: 0 nothing is wrong, 2 something is."),
		Example:     "  rollout config check -c run.yaml",
		Args:        exactArgs(),
	}
	load := config.AddFlags(cmd, p.getenv, p.environ)
	cmd.RunE = func(*cobra.Command, []string) error {
		l, err := load()
		if err != nil {
			return err
		}
		if len(l.Bad) == 0 {
			l.Bad = l.Config.CheckComplete(true)
		}
		if err := l.Err(); err != nil {
			return err
		}
		tame.Fprintf(p.stdout, "ok\n")
		return nil
	}
	return cmd
}

func (p *program) configSchemaCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "print the configuration file's JSON Schema",
		Long: `Print the JSON Schema of the configuration file. An editor that knows YAML completes
and checks a file with it.`,
		Annotations: exits("Exit status: 0 written, 2 wrong flags."),
		Example:     "  rollout config schema > rollout.schema.json",
		Args:        exactArgs(),
		RunE: func(*cobra.Command, []string) error {
			enc := plainjson.NewEncoder(p.stdout)
			enc.SetIndent("", "  ")
			return enc.Encode(config.Schema(config.NewLoader(p.getenv).Settings))
		},
	}
}
