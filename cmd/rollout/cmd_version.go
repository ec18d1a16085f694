package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/licenses"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/version"
)

func (p *program) versionCmd() *cobra.Command {
	var asJSON, texts bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "print the version of this binary",
		Long: `Print the version of this binary, its Go version and platform, and its commit if known.
rollout --version prints the same.`,
		Annotations: exits("Exit status: 0 printed, 2 usage error."),
		Example: `  rollout version --json
  rollout version --licenses`,
		Args: exactArgs(),
		RunE: func(*cobra.Command, []string) error {
			if texts {
				if asJSON {
					return exit.Usagef("version: --json and --licenses cannot be used together")
				}
				_, err := io.WriteString(p.stdout, licenses.Text)
				return err
			}
			return p.printVersion(asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.Flags().BoolVar(&texts, "licenses", false, "print the licenses of all code in this binary")
	return cmd
}

func (p *program) printVersion(asJSON bool) error {
	v := version.Read()
	if asJSON {
		return p.printJSON(v)
	}
	termsafe.Fprintf(p.stdout, "rollout %s %s %s\n", v.Version, v.Go, v.Platform)
	if v.Revision != "" {
		dirty := ""
		if v.Modified {
			dirty = " (modified)"
		}
		termsafe.Fprintf(p.stdout, "commit %s from %s%s\n", v.Revision, v.Time, dirty)
	}
	return nil
}
