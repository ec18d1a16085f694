package main

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/connect"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
)

var shells = []string{"bash", "zsh", "fish", "powershell"}

func (p *program) completionCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "print a script that completes verbs, flags and values in a shell",
		Long: `Print a script that completes verbs, flags, their values and run folders in a shell.
To load it in every new shell, add one of these lines to its startup file:

  ~/.bashrc                    source <(rollout completion bash)
  ~/.zshrc, after compinit     source <(rollout completion zsh)
  ~/.config/fish/config.fish   rollout completion fish | source
  $PROFILE                     rollout completion powershell | Out-String | Invoke-Expression`,
		Annotations: exits("Exit status: 0 written, 2 usage error."),
		Example:     "  rollout completion bash",
		ValidArgs:   shells,
		Args:        exactArgs("SHELL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(p.stdout, true)
			case "zsh":
				return root.GenZshCompletion(p.stdout)
			case "fish":
				return root.GenFishCompletion(p.stdout, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(p.stdout)
			}
			hint := cmp.Or(format.DidYouMean("", args[0], shells), "the shells are: "+strings.Join(shells, ", "))
			return exit.Hint(exit.Usagef("completion: unknown shell %q", args[0]), hint)
		},
	}
}

func (p *program) helpCmd() *cobra.Command {
	return &cobra.Command{
		Use:         "help [VERB …]",
		Short:       "print the help for a verb",
		Long:        "Print the help for a verb, like VERB --help.",
		Annotations: exits("Exit status: 0 printed, 2 unknown verb."),
		Example:     "  rollout help steps list",
		RunE: func(cmd *cobra.Command, args []string) error {
			at, rest, _ := cmd.Root().Find(args) // cannot fail, because every verb checks its own arguments
			if len(rest) > 0 {
				return unknownVerb(at, rest[0])
			}
			at.InitDefaultHelpFlag()
			return at.Help()
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, start string) (verbs []string, _ cobra.ShellCompDirective) {
			if at, rest, _ := cmd.Root().Find(args); len(rest) == 0 { // cannot fail, because every verb checks its own arguments
				for _, c := range at.Commands() {
					if strings.HasPrefix(c.Name(), start) && c.IsAvailableCommand() {
						verbs = append(verbs, c.Name()+"\t"+c.Short)
					}
				}
			}
			return verbs, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// complete registers completions for the arguments and flags of cmd and its verbs, unless they
// already have completions. The value's name in the help text determines which files the shell
// suggests. RUN completes to run folders, DIR to folders, and FILE to files. For any other value,
// no files are suggested.
func complete(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil && cmd.ValidArgs == nil {
		switch {
		case strings.HasPrefix(strings.TrimPrefix(cmd.Use, cmd.Name()), " RUN"):
			cmd.ValidArgsFunction = runFolders
		case !strings.Contains(cmd.Use, "FILE"):
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		}
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if _, has := cmd.GetFlagCompletionFunc(f.Name); has || f.Value.Type() == "bool" {
			return
		}
		directive := cobra.ShellCompDirectiveNoFileComp
		switch name, _ := pflag.UnquoteUsage(f); name {
		case "FILE":
			return
		case "DIR", "RUN":
			directive = cobra.ShellCompDirectiveFilterDirs
		}
		values(cmd, f.Name, directive)
	})
	for _, sub := range cmd.Commands() {
		complete(sub)
	}
}

// values registers fixed completions for the value of a flag. If a completion ends with "=", use
// ShellCompDirectiveNoSpace so that the user can continue typing.
func values(cmd *cobra.Command, flag string, directive cobra.ShellCompDirective, words ...string) {
	completeFlag(cmd, flag, cobra.FixedCompletions(words, directive))
}

func completeFlag(cmd *cobra.Command, flag string, words cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, words); err != nil {
		panic("rollout: internal error: " + err.Error()) // happens only if cmd does not have the flag
	}
}

// runFolders completes the paths of run folders that begin with start. If there are no such run
// folders, the shell completes the names of folders.
func runFolders(_ *cobra.Command, args []string, start string) (runs []string, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	dir, begin := filepath.Split(start)
	entries, _ := os.ReadDir(cmp.Or(dir, ".")) // an unreadable folder counts as empty
	for _, e := range entries {
		if path := dir + e.Name(); strings.HasPrefix(e.Name(), begin) && runfolder.Exists(path) {
			runs = append(runs, path)
		}
	}
	if runs == nil {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	return runs, cobra.ShellCompDirectiveNoFileComp
}

// models completes --model with the handles of the models on the first configured server. It reads
// the server's URL from the flags typed so far, the environment and the configuration file (-c).
func (p *program) models(load func(...func(*config.Loader) error) (*config.Loader, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, start string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
		defer cancel()
		var handles []string
		// Errors in other settings are ignored. During completion, cobra parses the flags twice, so
		// URLs contains each URL twice.
		if l, _ := load(); l != nil && len(l.Config.Server.URLs) > 0 {
			if clients, err := connect.Clients(l.Config, func(string) {}, nil); err == nil {
				if found, err := clients[0].FindModel(ctx, start); err == nil {
					handles = found.Near
				}
			}
		}
		return handles, cobra.ShellCompDirectiveNoFileComp
	}
}
