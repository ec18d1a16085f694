package main

import (
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
)

func (p *program) configCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "show, check and describe the configuration",
		Long: `Show, check and describe the configuration.

Precedence, highest first: flag, environment variable (ROLLOUT_SERVER_MAX_IN_FLIGHT for
server.max_in_flight), configuration file (-c), default.`,
		Args: cobra.ArbitraryArgs,
		RunE: needVerb,
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
with --origin the source of the value. Secrets are shown as references. config show
accepts the rollout collect flags that correspond to settings.`,
		Annotations: exits("Exit status: 0 shown, 2 the configuration has errors."),
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
		if asJSON {
			return p.printJSON(l.Resolved())
		}
		w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
		for _, s := range l.Settings {
			if origin {
				termsafe.Fprintf(w, "%s\t%s\t%s\n", s.Key, s.Text(), s.Origin)
			} else {
				termsafe.Fprintf(w, "%s\t%s\n", s.Key, s.Text())
			}
		}
		return w.Flush()
	}
	return cmd
}

func (p *program) configCheckCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check -c FILE",
		Short: "report all errors in a configuration",
		Long: `Report all errors in a configuration at once. config check contacts no server and writes
nothing. It accepts the rollout collect flags that correspond to settings.`,
		Annotations: exits("Exit status: 0 no error, 2 errors found."),
		Example:     "  rollout config check -c run.yaml",
		Args:        exactArgs(),
	}
	load := config.AddFlags(cmd, p.getenv, p.environ)
	cmd.RunE = func(*cobra.Command, []string) error {
		l, err := load()
		if err == nil {
			err = l.Config.CheckComplete(true).Err()
		}
		if err != nil {
			return err
		}
		termsafe.Fprintf(p.stdout, "ok\n")
		return nil
	}
	return cmd
}

func (p *program) configSchemaCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "print the configuration file's JSON Schema",
		Long: `Print the JSON Schema of the configuration file. YAML editors use it for completion and
validation.`,
		Annotations: exits("Exit status: 0 written, 2 usage error."),
		Example:     "  rollout config schema > rollout.schema.json",
		Args:        exactArgs(),
		RunE: func(*cobra.Command, []string) error {
			enc := format.NewJSONEncoder(p.stdout)
			enc.SetIndent("", "  ")
			return enc.Encode(config.Schema(config.NewLoader(p.getenv).Settings))
		},
	}
}
