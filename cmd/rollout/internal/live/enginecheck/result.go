package enginecheck

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/sink"
)

// A Run contains the rows and failures in a run's folder.
type Run struct {
	Rows     []*sink.StoredRow
	Failures []*sink.StoredFailure
}

// Read reads all committed rows and failures of a run.
func Read(dir string) (*Run, error) {
	log, err := sink.ReadLog(dir)
	if err != nil {
		return nil, err
	}
	run := new(Run)
	for s := range log.Shards(sink.KindData) {
		for row, err := range log.Rows(s) {
			if err != nil {
				return nil, err
			}
			run.Rows = append(run.Rows, row)
		}
	}
	for s := range log.Shards(sink.KindFailures) {
		for failure, err := range log.Failures(s) {
			if err != nil {
				return nil, err
			}
			run.Failures = append(run.Failures, failure)
		}
	}
	return run, nil
}

// A Count is a number of engine calls and the number of their sampled tokens.
type Count struct{ Calls, Tokens int }

func (n *Count) add(c *enginesim.Call) { n.Calls++; n.Tokens += len(c.OutputIDs) }

func (n Count) String() string { return fmt.Sprintf("%d calls with %d tokens", n.Calls, n.Tokens) }

// A Result is the result of a comparison.
type Result struct {
	Samples, Rows, Failures int // number of samples with rows or failures
	// Spans counts the calls in rows that were compared. NotClaimed counts the spans in rows that
	// make no claim about their prompts. Astray counts the spans that do not match any engine call.
	// Each such span is an error.
	Spans, NotClaimed, Astray int
	Trimmed                   int // number of sampled tokens that are missing from rows and counted in n_trimmed

	InRows, Quarantined, Named, Lost, Other Count
	Refused                                 int // number of calls that sampled no tokens

	Grades, Sources, Reasons map[string]int // Grades and Sources count rows; Reasons counts failures
	Versions                 map[string]int // number of calls in rows by policy version, if known
	Flags                    map[string]int // number of rows by flag
	Told                     map[string]int // number of calls in rows by sampling parameter, such as "top_p 1"

	// Wrong contains the messages of the first errors. Wrongs counts all errors.
	Wrong  []string
	Wrongs int
}

const maxWrong = 25

func newResult() *Result {
	return &Result{Grades: map[string]int{}, Sources: map[string]int{}, Reasons: map[string]int{}, Versions: map[string]int{}, Flags: map[string]int{}, Told: map[string]int{}}
}

func (c *comparison) wrong(format string, args ...any) {
	if c.res.Wrongs++; len(c.res.Wrong) < maxWrong {
		c.res.Wrong = append(c.res.Wrong, fmt.Sprintf(format, args...))
	}
}

// Add adds the counts and errors of another result.
func (r *Result) Add(o *Result) {
	r.Samples, r.Rows, r.Failures = r.Samples+o.Samples, r.Rows+o.Rows, r.Failures+o.Failures
	r.Spans, r.NotClaimed, r.Astray, r.Trimmed = r.Spans+o.Spans, r.NotClaimed+o.NotClaimed, r.Astray+o.Astray, r.Trimmed+o.Trimmed
	r.Refused, r.Wrongs = r.Refused+o.Refused, r.Wrongs+o.Wrongs
	for _, n := range [][2]*Count{{&r.InRows, &o.InRows}, {&r.Quarantined, &o.Quarantined}, {&r.Named, &o.Named}, {&r.Lost, &o.Lost}, {&r.Other, &o.Other}} {
		n[0].Calls, n[0].Tokens = n[0].Calls+n[1].Calls, n[0].Tokens+n[1].Tokens
	}
	for _, m := range [][2]map[string]int{{r.Grades, o.Grades}, {r.Sources, o.Sources}, {r.Reasons, o.Reasons}, {r.Versions, o.Versions}, {r.Flags, o.Flags}, {r.Told, o.Told}} {
		for name, n := range m[1] {
			m[0][name] += n
		}
	}
	r.Wrong = append(r.Wrong, o.Wrong...)
}

// String returns a summary of the result.
func (r *Result) String() string {
	var out strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&out, "  %-12s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("samples", "%d with %d rows and %d failures", r.Samples, r.Rows, r.Failures)
	line("grades", "%s; prompts from %s", counts(r.Grades), counts(r.Sources))
	line("flags", "%s", counts(r.Flags))
	line("contexts", "%d right, id by id; %d not claimed; %d wrong", r.Spans-r.NotClaimed-r.Astray, r.NotClaimed, r.Astray)
	sampled := r.InRows
	for _, n := range []Count{r.Quarantined, r.Named, r.Lost, r.Other} {
		sampled.Calls, sampled.Tokens = sampled.Calls+n.Calls, sampled.Tokens+n.Tokens
	}
	line("sampled", "%v, each token in one of the next five; %d of them trimmed", sampled, r.Trimmed)
	line("sampled by", "%s", counts(r.Told))
	line("in rows", "%v; of versions %s", r.InRows, counts(r.Versions))
	line("quarantined", "%v; %s", r.Quarantined, counts(r.Reasons))
	line("named", "%v of samples that failed or were cut", r.Named)
	line("lost", "%v", r.Lost)
	line("besides", "%v in preflights and summaries; %d calls sampled nothing", r.Other, r.Refused)
	line("wrong", "%d", r.Wrongs)
	for _, w := range r.Wrong {
		fmt.Fprintf(&out, "    %s\n", w)
	}
	return out.String()
}

func counts(m map[string]int) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%s %d", name, m[name]))
	}
	if out == nil {
		return "none"
	}
	return strings.Join(out, ", ")
}
