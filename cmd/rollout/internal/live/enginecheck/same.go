package enginecheck

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// A Sameness is the result of [Same].
type Sameness struct {
	Calls   int // number of calls for which both runs claim a context
	Rows    int // number of rows with the same spans, in samples that are complete in both runs
	Missing int // number of calls for which only the first run claims a context
	// Mixed counts the rows of samples in which the order of the tools changed. Such a sample is
	// split where the order changes, so only its calls are compared.
	Mixed int
	// Alone lists the rows of the first run that contain calls counted in Missing.
	Alone []string
	// Differences describes the first differences. Differing counts all differences.
	Differences []string
	Differing   int
}

func (s *Sameness) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "  %-12s %d calls under the same context, %d whole rows, %d not compared as a whole; %d calls are only in the first run\n", "same", s.Calls, s.Rows, s.Mixed, s.Missing)
	for _, row := range s.Alone {
		fmt.Fprintf(&out, "    %s\n", row)
	}
	fmt.Fprintf(&out, "  %-12s %d\n", "different", s.Differing)
	for _, d := range s.Differences {
		fmt.Fprintf(&out, "    %s\n", d)
	}
	return out.String()
}

func (s *Sameness) differs(format string, args ...any) {
	if s.Differing++; len(s.Differences) < maxWrong {
		s.Differences = append(s.Differences, fmt.Sprintf(format, args...))
	}
}

// A claimed is a call whose row makes a claim about the call's context.
type claimed struct {
	row  *sink.StoredRow
	call int // index of the call in the row
	span int
	used bool
}

// Same compares two runs of the same tasks. It compares the calls for which both runs claim a
// context. Calls are matched by their sampled ids and log-probabilities, so the engine's output
// must depend only on a marker in the task's message. The function show formats the part of a
// context that must be equal. It must omit the agent's id and the time. If show is nil, Same
// compares the ids. The function order returns the order of the tools in a context. If order is
// nil, Same assumes that the order never changes.
//
// If a sample is complete in both runs and has the same number of server runs, its rows must also
// have the same spans and ends.
func Same(first, second *Run, show, order func(ids []int32) string) *Sameness {
	if show == nil {
		show = func(ids []int32) string { return fmt.Sprint(ids) }
	}
	s := &Sameness{}
	of, whole, wholeToo := claims(second), withoutFailures(first), withoutFailures(second)
	mixed, mixedToo := reordered(first, order), reordered(second, order)
	for _, row := range first.Rows {
		if row.Verification == tokenize.Unverified.String() {
			continue
		}
		last := row // the matching row in the second run
		for k, span := range assistants(row) {
			c := pick(of[sampledIn(row, span)], row, span, show)
			if c == nil {
				if s.Missing++; len(s.Alone) < maxWrong {
					s.Alone = append(s.Alone, fmt.Sprintf("%s, call %d", rowName(row), k))
				}
				last = nil
				continue
			}
			c.used = true
			at := fmt.Sprintf("%s, call %d", rowName(row), k)
			if a, b := show(before(row, span)), show(before(c.row, c.span)); a != b {
				s.differs("%s: the context differs from the context in %s: %s", at, rowName(c.row), unlike(a, b))
				continue
			}
			s.Calls++
			facts(s, at, row, c, span, k)
			last = c.row
		}
		if last == nil || last == row || !whole[row.SampleKey] || !wholeToo[last.SampleKey] || len(row.RunIDs) != len(last.RunIDs) {
			continue
		}
		if mixed[row.SampleKey] || mixedToo[last.SampleKey] {
			s.Mixed++
			continue
		}
		if a, b := shape(row, show), shape(last, show); a != b {
			s.differs("%s: the row differs from %s: %s", rowName(row), rowName(last), unlike(a, b))
			continue
		}
		s.Rows++
	}
	return s
}

// claims returns, by output, the calls whose rows make a claim about the calls' contexts.
func claims(run *Run) map[string][]*claimed {
	all := map[string][]*claimed{}
	for _, row := range run.Rows {
		if row.Verification == tokenize.Unverified.String() {
			continue
		}
		for k, span := range assistants(row) {
			key := sampledIn(row, span)
			all[key] = append(all[key], &claimed{row: row, call: k, span: span})
		}
	}
	return all
}

func withoutFailures(run *Run) map[string]bool {
	whole := map[string]bool{}
	for _, row := range run.Rows {
		whole[row.SampleKey] = true
	}
	for _, f := range run.Failures {
		whole[f.SampleKey] = false
	}
	return whole
}

// reordered returns the samples in which contexts list the tools in different orders.
func reordered(run *Run, order func(ids []int32) string) map[string]bool {
	mixed, seen := map[string]bool{}, map[string]string{}
	if order == nil {
		return mixed
	}
	for _, row := range run.Rows {
		o := order(row.InputIDs)
		if before, ok := seen[row.SampleKey]; ok && before != o {
			mixed[row.SampleKey] = true
		}
		seen[row.SampleKey] = o
	}
	return mixed
}

func assistants(row *sink.StoredRow) (spans []int) {
	for k, role := range row.TurnRoles {
		if role == int8(tokenize.RoleAssistant) {
			spans = append(spans, k)
		}
	}
	return spans
}

func before(row *sink.StoredRow, span int) []int32 { return row.InputIDs[:row.TurnOffsets[span]] }

// sampledIn formats the output in a span: the ids, the mask, and the bits of the log-probabilities.
func sampledIn(row *sink.StoredRow, span int) string {
	var out strings.Builder
	for i := row.TurnOffsets[span]; i < row.TurnOffsets[span+1]; i++ {
		fmt.Fprintf(&out, "%d:%d:%08x ", row.InputIDs[i], row.LossMask[i], math.Float32bits(row.Logprobs[i]))
	}
	return out.String()
}

// pick returns an unused call. It prefers a call with the same context.
func pick(of []*claimed, row *sink.StoredRow, span int, show func([]int32) string) *claimed {
	free := slices.DeleteFunc(slices.Clone(of), func(c *claimed) bool { return c.used })
	if len(free) == 0 {
		return nil
	}
	if len(free) > 1 {
		context := show(before(row, span))
		for _, c := range free {
			if show(before(c.row, c.span)) == context {
				return c
			}
		}
	}
	return free[0]
}

func facts(s *Sameness, at string, row *sink.StoredRow, c *claimed, span, k int) {
	if a, b := reason(row, k), reason(c.row, c.call); a != "" && b != "" && a != b {
		s.differs("%s: the finish reasons are %s and %s", at, a, b)
	}
	if row.Versions == nil || c.row.Versions == nil {
		return
	}
	a, b := row.Versions[row.TurnOffsets[span]], c.row.Versions[c.row.TurnOffsets[c.span]]
	if a >= 0 && b >= 0 && a != b {
		s.differs("%s: the versions are %d and %d", at, a, b)
	}
}

func reason(row *sink.StoredRow, call int) string {
	if call >= len(row.FinishReasons) {
		return ""
	}
	return row.FinishReasons[call]
}

// shape formats everything in a row that must be equal in both runs if a sample is complete.
func shape(row *sink.StoredRow, show func([]int32) string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s, %s, segment %d of %d, truncated %v, %d unscored, %d trimmed", row.Status, row.StopReason, row.SegmentIndex, row.SegmentCount, row.Truncated, row.Unscored, row.Trimmed)
	for k, role := range row.TurnRoles {
		fmt.Fprintf(&out, "\n%d ", role)
		if role == int8(tokenize.RoleAssistant) {
			out.WriteString(sampledIn(row, k))
		} else {
			out.WriteString(show(row.InputIDs[row.TurnOffsets[k]:row.TurnOffsets[k+1]]))
		}
	}
	return out.String()
}

func unlike(a, b string) string {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	from := max(0, n-40)
	cut := func(s string) string { return s[min(from, len(s)):min(n+60, len(s))] }
	return fmt.Sprintf("%q and %q", cut(a), cut(b))
}
