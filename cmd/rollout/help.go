package main

import (
	"cmp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
)

// helpWidth is the maximum width of a line of help text, in columns.
const helpWidth = 100

// A flagGroup is a group of flags in the help of a verb.
type flagGroup struct {
	title string
	about string // printed before the flags
	flags string // names of the flags, separated by spaces
}

// collectGroups lists the flags of collect in the order of its help. The first group contains the
// ten flags that most runs need.
var collectGroups = []flagGroup{
	{title: "flags", flags: "server model tokenizer tasks samples reward out config resume dry-run"},
	{title: "servers and agents", flags: "max-in-flight engine-metrics agent-file keep-agents preflight"},
	{
		title: "agent harnesses",
		about: `With --harness, collect runs a published agent program for each sample instead of an agent on a
Letta server, and records its calls. For other programs, set harness.command and harness.env with
-c; configs/collect.yaml describes them.`,
		flags: "harness engine workdir set chains continuity render",
	},
	{title: "tasks, groups and rewards", about: "collector/reward/README.md describes the kinds of --reward, and what a scorer of your own gets.", flags: "limit skip-bad-tasks min-std until-groups"},
	{title: "prompts and tokens", flags: "prompts tap require drift max-row-tokens transformers experimental"},
	{title: "policy versions", flags: "policy-version one-engine unclaimed"},
	{title: "failures and slow samples", flags: "retries data-retries fail-on-error max-failures tail"},
	{
		title: "stop and resume",
		about: `The first interrupt lets samples in flight finish, the second stops them, and the third
exits at once. All three keep the finished samples. --resume continues a run no matter what
ended it, even kill -9. It uses the run's settings and tasks unless you pass new ones. You
cannot change agent.*, tokens.*, reward.*, output.messages or existing tasks;
collector/README.md lists the exceptions.`,
		flags: "retry-failed check",
	},
	{
		title: "tasks that arrive during the run",
		about: `With --stream, collect accepts tasks while it runs, and commits each group when it is whole. It
reads tasks from standard input, one JSON object per line, until the input ends. If standard input
is a terminal or /dev/null, add tasks with rollout ctl RUN add, and end the run with rollout ctl
RUN drain. collect reports and skips bad lines, and ignores repeated tasks. --resume finishes the
accepted tasks, and --resume --stream also accepts new tasks.`,
		flags: "stream max-ahead max-lag attached unpaced",
	},
	{
		title: "server runs from other programs",
		about: `With --from-runs, collect creates no agents. It reads the records and traces of server runs
that another program started, such as a product or an evaluation. Each server run is one
sample and one group, and is read only once. collect sends, changes and deletes nothing. A server
run that cannot be read counts as a failure; collector/README.md lists the reasons.`,
		flags: "from-runs follow",
	},
	{
		title: "sessions of other programs",
		about: `With --from-sessions, collect runs nothing. It reads the sessions of rollout tap --sessions that have ended.
Each session is one sample and one group, and is read only once. --follow waits for more.`,
		flags: "from-sessions",
	},
	{title: "output", about: "Send SIGUSR1 to print the status at any time.", flags: "format share json quiet metrics-addr metrics-pprof help"},
}

// helpText returns the help of a verb: description, usage, example, verbs or flags, and exit
// statuses.
func helpText(cmd *cobra.Command) string {
	cmd.InitDefaultHelpFlag()
	var b strings.Builder
	part := func(title, text string) {
		if text = strings.TrimRight(text, "\n"); text != "" {
			b.WriteString("\n" + title + text + "\n")
		}
	}
	b.WriteString(foldCommands(cmp.Or(cmd.Long, cmd.Short)) + "\n")
	part("usage: ", cmd.UseLine())
	var verbs strings.Builder
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			termsafe.Fprintf(&verbs, "  %-11s %s\n", c.Name(), c.Short)
		}
	}
	part("verbs:\n", verbs.String())
	part("example:\n", foldCommands(cmd.Example))
	for _, g := range flagGroups(cmd) {
		flags := pflag.NewFlagSet(g.title, pflag.ContinueOnError)
		flags.SortFlags = false
		for name := range strings.FieldsSeq(g.flags) {
			if f := cmd.Flags().Lookup(name); f != nil {
				flags.AddFlag(f)
			}
		}
		about := ""
		if g.about != "" {
			about = format.Fold("  "+strings.Join(strings.Fields(g.about), " ")+"\n", helpWidth, len("  "))
		}
		if flags.HasFlags() {
			part(g.title+":\n", about+flags.FlagUsagesWrapped(helpWidth))
		}
	}
	part("", format.Fold(cmd.Annotations["exits"], helpWidth, len("  ")))
	return b.String()
}

// flagGroups returns the flags of a verb in the groups that its help shows. The subcommands of
// rollout config accept a flag for every setting. Their help omits these flags, because the help of
// collect lists them.
func flagGroups(cmd *cobra.Command) []flagGroup {
	if cmd.Name() == "collect" {
		return collectGroups
	}
	one := flagGroup{title: "flags"}
	hasAll := cmd.Flags().Lookup("from-runs") != nil
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !hasAll || !config.IsSetting(f) {
			one.flags += " " + f.Name
		}
	})
	return []flagGroup{one}
}

// If a command is longer than helpWidth, foldCommands breaks the command before a flag or an
// operator. It adds a backslash, so that a shell still accepts the command.
func foldCommands(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		for strings.HasPrefix(line, "  ") && len(line) > helpWidth {
			at := 0
			for _, mark := range []string{" --", " | ", " && "} {
				at = max(at, strings.LastIndex(line[:helpWidth-len(` \`)], mark))
			}
			if at <= len("    ") {
				break
			}
			b.WriteString(line[:at] + " \\\n")
			line = "    " + line[at+1:]
		}
		b.WriteString(line)
	}
	return b.String()
}
