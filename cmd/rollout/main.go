// Command rollout collects reinforcement-learning rollouts from agents. It reads tasks and
// writes aligned token ids, log-probabilities and loss masks to Parquet or Arrow shards.
//
// The whole program is the function run, which depends only on its arguments. Each verb has its own
// file, cmd_VERB.go. Only the method program.report converts an error to an exit code.
package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/show"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector/subprocess"
)

func main() {
	if code, ok := subprocess.Main(os.Args); ok {
		os.Exit(code) // this process was the supervisor of an agent's command
	}
	p := &program{stdin: os.Stdin, stdout: termsafe.NewWriter(os.Stdout), stderr: termsafe.NewWriter(os.Stderr), getenv: os.Getenv, environ: os.Environ()}
	os.Exit(p.run(context.Background(), os.Args[1:]))
}

// A program contains everything that a verb can use from the environment of the process.
type program struct {
	stdin          io.Reader
	stdout, stderr *termsafe.Writer // escape control characters
	getenv         func(string) string
	environ        []string // in the form of os.Environ; nil in programs that use only getenv
	// abort ends the process at once. It is called on the third interrupt.
	abort func()
}

// run is the whole program. It writes data to stdout and messages to stderr, and returns the exit
// code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) int {
	return (&program{stdin: stdin, stdout: termsafe.NewWriter(stdout), stderr: termsafe.NewWriter(stderr), getenv: getenv}).run(ctx, args)
}

func (p *program) run(ctx context.Context, args []string) int {
	p.abort = func() { os.Exit(exit.Interrupted) }
	root := p.rootCmd()
	root.SetArgs(args)
	root.SetIn(p.stdin)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	code := p.report(root.ExecuteContext(ctx))
	_, _ = p.stdout.Flush(), p.stderr.Flush() // write the bytes of incomplete characters
	return code
}

const rootLong = `Collect reinforcement-learning rollouts from agents.

rollout reads tasks and writes rows of token ids, log-probabilities and loss masks, as
Parquet or Arrow shards that trainers read directly.

  rollout simulate --listen 127.0.0.1:8283 --input-ids --scripted 40 --write-tasks tasks.jsonl
  rollout collect --server http://127.0.0.1:8283 --model sglang//models/qwen3 --tasks tasks.jsonl --out run1
  rollout inspect run1

For help on a verb, run rollout help VERB or rollout VERB --help. In the Python package,
python -m rollout log-to sends a run to an experiment tracker.`

// rootCmd returns a new command tree. Command trees do not share state.
func (p *program) rootCmd() *cobra.Command {
	showVersion := false
	root := &cobra.Command{
		Use:                   "rollout VERB [flags]",
		DisableFlagsInUseLine: true,
		Short:                 "collect rollouts from agents",
		Long:                  rootLong,
		Annotations:           exits(exitTable),
		SilenceErrors:         true,
		SilenceUsage:          true,
		Args:                  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if showVersion && len(args) == 0 {
				return p.printVersion(false)
			}
			return needVerb(cmd, args)
		},
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true}, // completionCmd replaces cobra's default command
	}
	root.Flags().BoolVar(&showVersion, "version", false, "print the version of this binary")
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { termsafe.Fprintf(p.stdout, "%s", termsafe.Own(helpText(cmd))) })
	root.SetHelpCommand(p.helpCmd())
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(
		p.collectCmd(),
		p.planCmd(),
		p.workCmd(),
		p.ctlCmd(),
		p.simulateCmd(),
		p.tapCmd(),
		p.doctorCmd(),
		p.statusCmd(),
		p.inspectCmd(),
		p.reportCmd(),
		p.viewCmd(),
		p.exportCmd(),
		p.importCmd(),
		p.rescoreCmd(),
		p.verifyCmd(),
		p.failuresCmd(),
		p.stepsCmd(),
		p.tokenizeCmd(),
		p.cleanCmd(),
		p.configCmd(),
		p.versionCmd(),
		p.completionCmd(),
	)
	complete(root)
	return root
}

// needVerb handles a command that needs a verb. Without arguments, it prints the help.
func needVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	return unknownVerb(cmd, args[0])
}

// unknownVerb returns the error for a word that is not a verb of cmd.
func unknownVerb(cmd *cobra.Command, word string) error {
	var verbs []string
	for _, c := range cmd.Commands() {
		if !c.Hidden {
			verbs = append(verbs, c.Name())
		}
	}
	hint := cmp.Or(format.DidYouMean("", word, verbs), "the verbs are: "+strings.Join(verbs, ", "))
	if word == "log-to" && !cmd.HasParent() {
		hint = "use python -m rollout log-to, from the Python package"
	}
	return exit.Hint(exit.Usagef("%sunknown verb %q", verb(cmd), word), hint)
}

// flagError converts an error about a wrong flag into a usage error. It suggests the flag or the
// setting that was probably meant.
func flagError(cmd *cobra.Command, err error) error {
	hint := "see " + cmd.CommandPath() + " --help"
	if word := unknownFlag.FindStringSubmatch(err.Error()); word != nil {
		var flags []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { flags = append(flags, f.Name) })
		if foreign := config.FlagHint(cmd.Flags(), word[1]); foreign != "" {
			hint = foreign
		} else if near := format.Nearest(word[1], flags); near != "" {
			hint = "did you mean --" + near + "?"
		}
	}
	return exit.Hint(exit.Usagef("%s%s", verb(cmd), err), hint)
}

// unknownFlag matches the error for an unknown flag, with one or two dashes.
var unknownFlag = regexp.MustCompile(`^unknown (?:flag: --|shorthand flag: '.' in -)([^=]+)`)

// exactArgs is like cobra.ExactArgs, but returns a usage error that names the arguments.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			if i := slices.Index(args, ""); i >= 0 {
				return exit.Hint(exit.Usagef("%s%s is empty", verb(cmd), names[i]), "see "+cmd.CommandPath()+" --help")
			}
			return nil
		}
		want, got := "takes no arguments", format.Plural(int64(len(args)), "argument")
		if len(names) == 0 {
			got = strconv.Quote(args[0]) // often meant as the value of a flag that takes no value
		} else {
			want = "needs " + strings.Join(names, " ")
		}
		return exit.Hint(exit.Usagef("%s%s, got %s", verb(cmd), want, got), "see "+cmd.CommandPath()+" --help")
	}
}

// verb returns the prefix for usage errors of cmd, such as "steps list: ".
func verb(cmd *cobra.Command) string {
	_, words, ok := strings.Cut(cmd.CommandPath(), " ")
	if !ok {
		return ""
	}
	return words + ": "
}

// interruptible returns a context that is canceled by an interrupt. Further interrupts are ignored
// until stop is called.
func interruptible(ctx context.Context) (_ context.Context, stop context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}

// listen opens a listener at the address given with --listen.
func listen(ctx context.Context, address string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		err = exit.Hint(exit.With(exit.Unusable, err), "choose another address with --listen; port 0 picks a free port")
	}
	return listener, err
}

// exits returns an annotation with the exit statuses that are listed at the end of a verb's help.
func exits(text string) map[string]string { return map[string]string{"exits": text} }

func (p *program) say(format string, args ...any) {
	termsafe.Fprintf(p.stderr, "rollout: "+format+"\n", args...)
}

func (p *program) printJSON(v any) error {
	enc := format.NewJSONEncoder(p.stdout)
	return enc.Encode(v)
}

// painter returns a Painter for stdout. The value of --color decides whether the Painter adds
// colors.
func (p *program) painter(when string) (show.Painter, error) {
	switch when {
	case "always":
		p.stdout.Colours()
		return true, nil
	case "never":
		return false, nil
	case "auto":
		f, ok := termsafe.File(p.stdout)
		if !ok || !term.IsTerminal(int(f.Fd())) || p.getenv("NO_COLOR") != "" {
			return false, nil
		}
		p.stdout.Colours()
		return true, nil
	}
	return false, exit.Usagef("--color: %q is not one of auto, always, never", when)
}

func (p *program) width() int {
	if f, ok := termsafe.File(p.stdout); ok {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w >= 40 {
			return w
		}
	}
	return 100
}

// exitTable is the list of exit codes in the help text.
const exitTable = `Exit status:
    0  all planned samples are committed, or cut by --tail
    1  internal error
    2  usage, configuration or task error
    3  finished; some samples failed or were not scored, within --fail-on-error
    4  more failures than --fail-on-error (default: none) or --max-failures allows, more
       cuts than --tail allows, fewer groups than --until-groups, or no row at all
    5  server or model unusable, or no sample would produce a row
    6  storage failed: disk full, permission denied
    7  the folder is not empty, already contains a run, or its run cannot be resumed this way
    8  the folder is locked by another process
    9  the run's files are damaged; see rollout verify
  130  interrupted; collect --resume continues`

// report prints err and returns its exit code. If err contains several Complaints, each is printed
// on its own line.
func (p *program) report(err error) int {
	if s, ok := errors.AsType[exit.SilentError](err); ok {
		return int(s)
	}
	if err == nil {
		return exit.OK
	}
	for _, line := range exit.Lines(err) {
		p.say("%s", line)
	}
	if hint := exit.HintOf(err); hint != "" {
		termsafe.Fprintf(p.stderr, "hint: %s\n", hint)
	}
	return exit.Code(err)
}
