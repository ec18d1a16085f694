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
	"github.com/rollout-rl/rollout/cmd/rollout/internal/human"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tame"
)

// opAdd sends tasks, each in a request with ctl.OpTask.
const opAdd = "add"

// ctlOps lists the operations of rollout ctl with the names of their arguments. An argument in
// brackets is optional; only the last one can be.
var ctlOps = []struct {
	name  string
	args  []string
	short string
}{
	{ctl.OpStatus, nil, "show what is done, what is in progress, and how far the reader is"},
	{ctl.OpPause, nil, "begin no further sample; what is in flight goes on"},
	{ctl.OpResume, nil, "end a pause"},
	{ctl.OpDrain, nil, "accept no more tasks, collect those that were accepted and end"},
	{ctl.OpSetVersion, []string{"N"}, "policy version N samples from now on"},
	{ctl.OpAck, []string{"SEQ", "GROUPS"}, "the reader has all groups up to there"},
	{opAdd, []string{"[FILE|-]"}, "add tasks, one JSON object per line"},
}

func (p *program) ctlCmd() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "ctl RUN status|pause|resume|drain|set-version N|ack SEQ GROUPS|add [FILE|-]",
		Short: "tell a collector at work what to do",
		Long: `Tell the collector that is at work on a run what to do, and print what it answers. It
listens where collect was given --stream, at ctl.sock in the folder of the run, and to the
user who collects alone.

  status          what is done, what is in progress, and how far the reader is
  pause           begin no further sample; what is in flight goes on
  resume          end a pause
  drain           accept no more tasks, collect those that were accepted and end; a
                  pause ends
  set-version N   policy version N samples from now on
  ack SEQ GROUPS  the reader has all groups of the commits before SEQ, and the first
                  GROUPS of commit SEQ; the events of groups name both, as seq and n
  add [FILE|-]    add tasks, one JSON object per line, from the file or standard input;
                  each is on the disk when it is answered, and may be added again

A send that began and ended under set-version N carries version N; one that the change fell
into does not, unless its trace says more.`,
		Annotations: exits("Exit status: 0 done, 2 wrong arguments or a task that is refused, 5 no collector is at work on RUN or it does not answer, 6 its socket cannot be used or the acknowledgement not be written, 7 RUN is not a run folder."),
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
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the answer as it is, one JSON line per request")
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
		if near := human.Nearest(args[1], names); near != "" {
			hint = "did you mean " + near + "?"
		}
		if slices.Contains(names, args[0]) {
			hint = "the run comes first: rollout ctl " + human.Shell(args[1]) + " " + args[0]
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
		return exit.Hint(exit.Usagef("ctl: %s takes %s, got %s", args[1], want, human.Plural(int64(n), "argument")), "see "+cmd.CommandPath()+" --help")
	}
	return nil
}

func ctlRequest(op string, args []string) (ctl.Request, error) {
	r := ctl.Request{Op: op}
	var numbers []int64
	for _, text := range args {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 || n > math.MaxInt32 && (op != ctl.OpAck || len(numbers) > 0) {
			hint := "rollout ctl RUN status says which version samples now"
			if op == ctl.OpAck {
				hint = "the event of a group has SEQ as seq and GROUPS as n"
			}
			return r, exit.Hint(exit.Usagef("ctl: %s: %q is not a whole number ≥ 0 and ≤ %d", op, text, math.MaxInt32), hint)
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
			return exit.With(exit.Unusable, fmt.Errorf("%s: the answer: %w", dir, err))
		}
		return p.showCtlStatus(dir, &s)
	case ctl.OpPause:
		p.say("%s: paused: no further sample begins; rollout ctl %s resume ends it", dir, human.Shell(dir))
	case ctl.OpResume:
		p.say("%s: samples begin again", dir)
	case ctl.OpDrain:
		p.say("%s: no more tasks are accepted; the run ends when those that were are collected; a pause has ended", dir)
	case ctl.OpSetVersion:
		p.say("%s: version %d samples from now on", dir, *r.Version)
	case ctl.OpAck:
		p.say("%s: acknowledged up to group %d of commit %d", dir, *r.Groups, *r.Seq)
	}
	return nil
}

// refusal converts a refused request into the program's error.
func refusal(err error) error {
	if no, ok := errors.AsType[*ctl.RefusedError](err); ok {
		return no.Exit()
	}
	return err
}

func (p *program) showCtlStatus(dir string, s *ctl.Status) error {
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	line := func(label, format string, args ...any) {
		tame.Fprintf(w, "%s\t%s\n", tame.Own(label), tame.Own(tame.Sprintf(format, args...)))
	}
	state := cmp.Or(s.Phase, "collecting")
	if s.Paused {
		state += ", paused"
	}
	if s.EndOfTasks {
		state += ", no further tasks are accepted"
	}
	line("run", "%s in %s", s.RunID, dir)
	line("state", "%s; process %d, for %s", state, s.PID, human.Duration(time.Since(s.StartedAt)))
	line("samples", "%d planned = %d committed + %d filtered + %d failed + %d skipped + %d remaining (%d in flight)",
		s.Planned, s.Committed, s.Filtered, s.Failed, s.Skipped, s.Remaining, s.InFlight)
	line("groups", "%d begun, %d whole: %d informative, %d filtered%s", s.Groups.Begun, s.Groups.Whole, s.Groups.Informative, s.Groups.Filtered,
		tame.Own(bound(s.Groups.Until, "; the run ends with %d informative ones")))
	line("ahead", "%d of the reader%s", s.Groups.Ahead, tame.Own(bound(s.Groups.MaxAhead, ", %d at most")))
	if s.Version != nil {
		line("version", "%d", *s.Version)
	} else {
		line("version", "not told")
	}
	if counts := s.Lag.Text(); counts != "" {
		line("lag", "%s", counts)
	}
	line("reader", "%s; the last whole group is %s", cursorText(s.Cursor, "has acknowledged nothing", "has acknowledged up to "), cursorText(s.End, "not there yet", ""))
	return w.Flush()
}

// bound formats a bound. It returns "" if n is 0, which means no bound.
func bound(n int, format string) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(format, n)
}

// cursorText formats a cursor after before. It returns none if there is no cursor.
func cursorText(c *ctl.Cursor, none, before string) tame.Own {
	if c == nil || *c == (ctl.Cursor{}) {
		return tame.Own(none)
	}
	return tame.Own(before + fmt.Sprintf("group %d of commit %d", c.Groups, c.Seq))
}
