package main

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runs"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/show"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

type failuresOptions struct {
	class       string
	limit       int
	all, asJSON bool
}

func (p *program) failuresCmd() *cobra.Command {
	var o failuresOptions
	cmd := &cobra.Command{
		Use:   "failures RUN",
		Short: "group and list the samples that a run failed to collect",
		Long: `Group the failed samples of a run by class and stage of the failure, and list them.
If a sample has rows, its failed calls are grouped separately. --all also lists these
calls, and samples that a later attempt collected. Calls that are valid but not trained on are
listed only with --all or --class. Failures that have not yet been written to a shard are not
listed.

RUN is a folder, or the URL of a fleet or of a copied run.
rollout collect --retry-failed collects the listed samples again. A fleet does not support it: plan
another fleet with the tasks that failed.`,
		Annotations: exits("Exit status: 0 shown, 2 usage error, 6 RUN cannot be read, 7 RUN is not a run, 9 RUN is damaged; the readable failures are listed."),
		Example: `  rollout failures run1
  rollout failures run1 --class token_mismatch --limit 0
  rollout failures run1 --json
  rollout collect --retry-failed --out run1`,
		Args: exactArgs("RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.limit < 0 {
				return exit.Usagef("--limit: must be ≥ 0, got %d", o.limit)
			}
			if o.asJSON && !cmd.Flags().Changed("limit") {
				o.limit = 0
			}
			return p.failures(cmd.Context(), args[0], &o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.class, "class", "", "list only failures of this `CLASS`")
	f.IntVar(&o.limit, "limit", 20, "list only the first `N` failures (0: all)")
	f.BoolVar(&o.all, "all", false, "also list samples that a later attempt collected, failed calls of samples that have rows, and untrained calls")
	f.BoolVar(&o.asJSON, "json", false, "print one JSON line per failure, without groups, and list all failures unless --limit is given")
	values(cmd, "class", cobra.ShellCompDirectiveNoFileComp, classNames()...)
	return cmd
}

func classNames() (names []string) {
	for _, c := range collector.Classes() {
		names = append(names, c.String())
	}
	return names
}

type failed struct {
	sink.StoredFailure
	// superseded is true if a later attempt at the sample succeeded or failed.
	superseded bool
}

func (p *program) failures(ctx context.Context, dir string, o *failuresOptions) error {
	if o.class != "" {
		if _, ok := collector.ParseClass(o.class); !ok {
			return exit.Hint(exit.Usagef("--class: %q is not a failure class", o.class), "the classes are: "+strings.Join(classNames(), ", "))
		}
	}
	run, err := p.openRun(ctx, dir)
	if err != nil {
		return err
	}
	run.Scores = runfolder.CollectedScores // a failure has no reward
	logs, damage, err := run.Logs(ctx)
	if err != nil {
		return err
	}
	damage, err = p.listFailures(run, logs, damage, o)
	if err != nil {
		return err
	}
	return run.Damage(damage)
}

// listFailures prints the failures. It adds the errors of damaged shards to damage.
func (p *program) listFailures(run *runs.Run, logs []*runs.Log, damage []error, o *failuresOptions) (_ []error, err error) {
	groups := map[groupName]*failureGroup{}
	var list []failed
	calls, partial := map[groupName]*failureGroup{}, map[string]int{} // failures of individual calls, and their number per sample
	shown := 0
	for f, err := range failuresOf(logs) {
		if errors.Is(err, sink.ErrCorrupt) {
			damage = append(damage, err)
			continue
		}
		if err != nil {
			return nil, run.Error(err)
		}
		if o.class != "" && f.Class != o.class {
			continue
		}
		untrained := tokenize.Untrained(f.Reason, f.Call)
		if untrained && !o.all && o.class == "" {
			continue
		}
		all := o.all || untrained
		if !all && f.Call >= 0 {
			addFailure(calls, f)
			partial[f.SampleKey]++
		}
		if !all && (f.superseded || f.Call >= 0) {
			continue
		}
		if shown++; o.limit > 0 && shown > o.limit {
			if o.asJSON {
				break
			}
		} else if o.asJSON {
			if err := p.printJSON(f.json()); err != nil {
				return nil, err
			}
		} else {
			list = append(list, *f)
		}
		addFailure(groups, f)
	}
	if o.asJSON {
		return damage, nil
	}
	except := ""
	if damage != nil {
		except = " in the readable part"
	}
	switch {
	case len(groups) == 0 && len(calls) == 0:
		p.say("%s: no failures%s", run.Location, except)
		return damage, nil
	case len(groups) == 0:
		p.say("%s: no failed samples%s", run.Location, except)
		return damage, p.showCalls(calls, partial)
	}
	if err := p.showGroups(groups); err != nil {
		return nil, err
	}
	termsafe.Fprintf(p.stdout, "\n")
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	termsafe.Fprintf(w, "key\ttask\tindex\tattempt\tclass\tstage\treason\tcall\terror\n")
	for i := range list {
		f := &list[i]
		termsafe.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\n", show.ShortKey(f.SampleKey), termsafe.Text(f.TaskID, 32), f.SampleIndex, f.Attempt,
			f.Class, f.Stage, cmp.Or(f.Reason, "-"), callText(f.Call), termsafe.Text(f.Error, 80))
	}
	if err := w.Flush(); err != nil {
		return nil, err
	}
	if hidden := shown - len(list); hidden > 0 {
		p.say("%s not listed; --limit 0 lists all", format.Plural(int64(hidden), "more failure"))
	}
	if len(calls) == 0 {
		return damage, nil
	}
	termsafe.Fprintf(p.stdout, "\n")
	return damage, p.showCalls(calls, partial)
}

// showCalls prints the failures of individual calls in samples that have rows.
func (p *program) showCalls(groups map[groupName]*failureGroup, samples map[string]int) error {
	n := 0
	for _, calls := range samples {
		n += calls
	}
	termsafe.Fprintf(p.stdout, "%s failed in %s with rows; --all lists these calls\n", format.Plural(int64(n), "call"), format.Plural(int64(len(samples)), "sample"))
	return p.showGroups(groups)
}

// failuresOf yields all failures of a run in commit order. Each yielded pointer is valid only until
// the next iteration. After the error of a shard, it continues with the next shard.
func failuresOf(logs []*runs.Log) iter.Seq2[*failed, error] {
	return func(yield func(*failed, error) bool) {
		for _, log := range logs {
			last := lastCommits(log.Log)
			for s := range log.Shards(sink.KindFailures) {
				for row, err := range log.FailureFacts(s) {
					if err != nil {
						if !yield(nil, log.Wrap(err)) {
							return
						}
						break
					}
					l := last[row.SampleKey]
					f := &failed{StoredFailure: *row, superseded: row.Call < 0 && (!l.Failed() || l.Attempt != row.Attempt)}
					if !yield(f, nil) {
						return
					}
				}
			}
		}
	}
}

// lastCommits returns the last commit entry of each sample that has failures, by sample key. If a
// sample also succeeded, its entry is the entry of the successful attempt.
func lastCommits(log *sink.Log) map[string]sink.CommittedSample {
	last := map[string]sink.CommittedSample{}
	for i := range log.Commits {
		for _, s := range log.Commits[i].Samples {
			if s.Failures > 0 {
				last[s.Key] = s
			}
		}
	}
	for i := range log.Commits {
		for _, s := range log.Commits[i].Samples {
			if _, ok := last[s.Key]; ok && !s.Failed() {
				last[s.Key] = s
			}
		}
	}
	return last
}

func (f *failed) json() map[string]any {
	return map[string]any{
		"sample_key": f.SampleKey, "task_id": f.TaskID, "sample_index": f.SampleIndex, "attempt": f.Attempt,
		"class": f.Class, "stage": f.Stage, "reason": f.Reason, "error": f.Error, "call": f.Call,
		"status": f.Status, "stop_reason": f.StopReason, "agent_id": f.AgentID, "superseded": f.superseded,
	}
}

type groupName struct{ class, stage, reason string }

type failureGroup struct {
	samples, calls int
	example        string
}

func addFailure(groups map[groupName]*failureGroup, f *failed) {
	name := groupName{f.Class, f.Stage, f.Reason}
	g := groups[name]
	if g == nil {
		g = &failureGroup{example: f.Error}
		groups[name] = g
	}
	if f.Call < 0 {
		g.samples++
	} else {
		g.calls++
	}
}

func (p *program) showGroups(groups map[groupName]*failureGroup) error {
	names := slices.SortedFunc(maps.Keys(groups), func(a, b groupName) int {
		return cmp.Or(groups[b].samples-groups[a].samples, groups[b].calls-groups[a].calls,
			strings.Compare(a.class, b.class), strings.Compare(a.stage, b.stage), strings.Compare(a.reason, b.reason))
	})
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	termsafe.Fprintf(w, "samples\tcalls\tclass\tstage\treason\tcause\texample\n")
	for _, n := range names {
		g := groups[n]
		termsafe.Fprintf(w, "%d\t%d\t%s\t%s\t%s\t%s\t%s\n", g.samples, g.calls, n.class, n.stage, cmp.Or(n.reason, "-"), cause(n.class), termsafe.Text(g.example, 60))
	}
	return w.Flush()
}

// cause returns the general cause of a failure class, such as infrastructure or data.
func cause(name string) string {
	switch c, ok := collector.ParseClass(name); {
	case !ok:
		return "-"
	case c.Retryable():
		return "infrastructure"
	case c == collector.ClassCensored:
		return "tail policy or deadline"
	case c == collector.ClassUntrained:
		return "not trained on"
	default:
		return "data"
	}
}
