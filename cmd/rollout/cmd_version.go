package main

import (
	"encoding/json"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/licenses"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tame"
)

// A buildVersion says what this binary was built from.
type buildVersion struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Time     string `json:"time,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (p *program) versionCmd() *cobra.Command {
	var asJSON, texts bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "say what this binary is",
		Args:  exactArgs(),
		RunE: func(*cobra.Command, []string) error {
			if texts {
				if asJSON {
					return exit.Usagef("version: --json and --licenses: give one of them")
				}
				_, err := io.WriteString(p.stdout, licenses.Text)
				return err
			}
			v := readVersion()
			if asJSON {
				return json.NewEncoder(p.stdout).Encode(v)
			}
			tame.Fprintf(p.stdout, "rollout %s %s %s\n", v.Version, v.Go, v.Platform)
			if v.Revision != "" {
				dirty := ""
				if v.Modified {
					dirty = " (modified)"
				}
				tame.Fprintf(p.stdout, "commit %s of %s%s\n", v.Revision, v.Time, dirty)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.Flags().BoolVar(&texts, "licenses", false, "print the licences of all that this binary is built from")
	return cmd
}

// readVersion reads what the Go linker left in the binary.
func readVersion() buildVersion {
	v := buildVersion{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}
