package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/ctl"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
)

// opAdd adds tasks. It sends each task as a separate ctl.OpTask request.
const opAdd = "add"

// ctlOps lists the operations of rollout ctl with the names of their arguments. An argument in
// brackets is optional. Only the last argument can be optional.
var ctlOps = []struct {
	name  string
	args  []string
	short string
}{
	{ctl.OpStatus, nil, "show progress and the reader's cursor"},
	{ctl.OpPause, nil, "stop starting samples; finish the samples in flight"},
	{ctl.OpResume, nil, "end a pause"},
	{ctl.OpDrain, nil, "accept no more tasks, finish the accepted tasks and exit"},
	{ctl.OpSetVersion, []string{"N"}, "set the policy version for new sends to N"},
	{ctl.OpAck, []string{"SEQ", "GROUPS"}, "acknowledge all groups up to the cursor SEQ GROUPS"},
	{opAdd, []string{"[FILE|-]"}, "add tasks, one JSON object per line"},
}

func (p *program) ctlCmd() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "ctl RUN status|pause|resume|drain|set-version N|ack SEQ GROUPS|add [FILE|-]",
		Short: "control a running collector",
		Long: `Control a running collector and print its answer. A collector that was started with
--stream or --from-runs listens on ctl.sock in the run folder. Only the user who runs the
collector can connect.

  status          show progress and the reader's cursor
  pause           stop starting samples; finish the samples in flight
  resume          end a pause
  drain           accept no more tasks, end a pause, finish the accepted tasks and exit
  set-version N   set the policy version for new sends to N
  ack SEQ GROUPS  acknowledge all groups of the commits before SEQ, and the first GROUPS
                  groups of commit SEQ; a group event reports SEQ and GROUPS as seq and n
  add [FILE|-]    add tasks, one JSON object per line, from FILE or standard input; an
                  accepted task is on disk, and adding it again has no effect

A send that starts and ends while version N is set gets version N. A send during which the
version changes gets no version, unless its trace contains one.`,
		Annotations: exits("Exit status: 0 done, 2 usage error or a task was refused, 5 no collector is running on RUN or the collector does not answer, 6 the socket cannot be used or the acknowledgement cannot be written, 7 RUN is not a run folder."),
		Example: `  rollout ctl run1 status
  rollout ctl run1 set-version 3
  rollout ctl run1 add more.jsonl
  rollout ctl run1 status --json | jq .groups.ahead`,
		Args: checkCtlArgs,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
			switch {
			case len(args) == 0:
				return runFolders(cmd, args, start)
			case len(args) == 1:
				var words []string
				for _, op := range ctlOps {
					if strings.HasPrefix(op.name, start) {
						words = append(words, op.name+"\t"+op.short)
					}
				}
				return words, cobra.ShellCompDirectiveNoFileComp
			case len(args) == 2 && args[1] == opAdd:
				return nil, cobra.ShellCompDirectiveDefault
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error { return p.ctl(cmd.Context(), args, asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the raw answers, one JSON line per request")
	return cmd
}

// checkCtlArgs checks the operation and the number of its arguments.
func checkCtlArgs(cmd *cobra.Command, args []string) error {
	var names []string
	for _, op := range ctlOps {
		names = append(names, op.name)
	}
	hint := "the operations are: " + strings.Join(names, ", ")
	switch {
	case len(args) == 0 || args[0] == "":
		return exit.Hint(exit.Usagef("ctl: needs RUN and an operation"), hint)
	case len(args) == 1:
		return exit.Hint(exit.Usagef("ctl: needs an operation after %s", args[0]), hint)
	}
	i := slices.Index(names, args[1])
	if i < 0 {
		hint = cmp.Or(format.DidYouMean("", args[1], names), hint)
		if slices.Contains(names, args[0]) {
			hint = "put RUN before the operation: rollout ctl " + format.Shell(args[1]) + " " + args[0]
		}
		return exit.Hint(exit.Usagef("ctl: unknown operation %q", args[1]), hint)
	}
	most := len(ctlOps[i].args)
	least := most
	if most > 0 && strings.HasPrefix(ctlOps[i].args[most-1], "[") {
		least--
	}
	if n := len(args) - 2; n < least || n > most {
		want := cmp.Or(strings.Join(ctlOps[i].args, " "), "no arguments")
		return exit.Hint(exit.Usagef("ctl: %s takes %s, got %s", args[1], want, format.Plural(int64(n), "argument")), "see "+cmd.CommandPath()+" --help")
	}
	return nil
}

func ctlRequest(op string, args []string) (ctl.Request, error) {
	r := ctl.Request{Op: op}
	var numbers []int64
	for _, text := range args {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 || n > math.MaxInt32 && (op != ctl.OpAck || len(numbers) > 0) {
			hint := "rollout ctl RUN status prints the current version"
			if op == ctl.OpAck {
				hint = "use seq and n of a group event as SEQ and GROUPS"
			}
			return r, exit.Hint(exit.Usagef("ctl: %s: %q is not a whole number from 0 to %d", op, text, math.MaxInt32), hint)
		}
		numbers = append(numbers, n)
	}
	switch op {
	case ctl.OpSetVersion:
		r.Version = new(int32(numbers[0]))
	case ctl.OpAck:
		r.Seq, r.Groups = &numbers[0], new(int(numbers[1]))
	}
	return r, nil
}

func (p *program) ctl(ctx context.Context, args []string, asJSON bool) (err error) {
	dir, op := args[0], args[1]
	if err := needFolder("ctl", dir, "rollout status shows a fleet, and an interrupt ends a worker after its samples in flight"); err != nil {
		return err
	}
	var r ctl.Request
	if op != opAdd {
		if r, err = ctlRequest(op, args[2:]); err != nil {
			return err
		}
	}
	if err := runfolder.Need(dir); err != nil {
		return err
	}
	c, err := ctl.Dial(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if op == opAdd {
		return p.addTasks(c, dir, append(args, "-")[2], asJSON)
	}
	var line json.RawMessage
	if err := refusal(c.Do(r, &line)); err != nil {
		return err
	}
	if asJSON {
		return p.printJSON(line)
	}
	switch op {
	case ctl.OpStatus:
		var s ctl.Status
		if err := json.Unmarshal(line, &s); err != nil {
			return exit.With(exit.Unusable, fmt.Errorf("%s: invalid answer from the collector: %w", dir, err))
		}
		return p.showCtlStatus(dir, &s)
	case ctl.OpPause:
		p.say("%s: paused; rollout ctl %s resume ends the pause", dir, format.Shell(dir))
	case ctl.OpResume:
		p.say("%s: resumed", dir)
	case ctl.OpDrain:
		p.say("%s: draining; the run accepts no more tasks and ends after the accepted tasks", dir)
	case ctl.OpSetVersion:
		p.say("%s: policy version %d applies to new sends", dir, *r.Version)
	case ctl.OpAck:
		p.say("%s: acknowledged up to group %d of commit %d", dir, *r.Groups, *r.Seq)
	}
	return nil
}

// refusal converts an error about a refused request into an error with the program's exit code.
func refusal(err error) error {
	if no, ok := errors.AsType[*ctl.RefusedError](err); ok {
		return no.Exit()
	}
	return err
}

func (p *program) showCtlStatus(dir string, s *ctl.Status) error {
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	line := func(label, text string, args ...any) {
		termsafe.Fprintf(w, "%s\t%s\n", termsafe.Own(label), termsafe.Own(termsafe.Sprintf(text, args...)))
	}
	state := cmp.Or(s.Phase, "collecting")
	if s.Paused {
		state += ", paused"
	}
	if s.EndOfTasks {
		state += ", accepting no more tasks"
	}
	line("run", "%s in %s", s.RunID, dir)
	line("state", "%s; process %d, started %s ago", state, s.PID, format.Duration(time.Since(s.StartedAt)))
	line("samples", "%d planned = %d committed + %d filtered + %d failed + %d skipped + %d remaining (%d in flight)",
		s.Planned, s.Committed, s.Filtered, s.Failed, s.Skipped, s.Remaining, s.InFlight)
	line("groups", "%d started, %d whole: %d informative, %d filtered%s", s.Groups.Begun, s.Groups.Whole, s.Groups.Informative, s.Groups.Filtered,
		termsafe.Own(bound(s.Groups.Until, "; the run ends at %d informative groups")))
	line("ahead", "%s not acknowledged%s", format.Plural(int64(s.Groups.Ahead), "group"), termsafe.Own(bound(s.Groups.MaxAhead, " (limit: %d)")))
	if s.Version != nil {
		line("version", "%d", *s.Version)
	} else {
		line("version", "unknown")
	}
	if counts := s.Lag.Text(); counts != "" {
		line("lag", "%s", counts)
	}
	line("reader", "%s; last whole group: %s", cursorText(s.Cursor, "has acknowledged nothing", "has acknowledged up to "), cursorText(s.End, "none yet", ""))
	return w.Flush()
}

// bound formats a limit. It returns "" if n is 0, which means no limit.
func bound(n int, format string) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(format, n)
}

// cursorText formats a cursor with the given prefix. If there is no cursor, it returns the
// parameter none.
func cursorText(c *ctl.Cursor, none, before string) termsafe.Own {
	if c == nil || *c == (ctl.Cursor{}) {
		return termsafe.Own(none)
	}
	return termsafe.Own(before + fmt.Sprintf("group %d of commit %d", c.Groups, c.Seq))
}
