package report

import (
	"encoding/json"
	"io"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/view/web"
	"github.com/rollout-rl/rollout/collector/pace"
)

// An Overview is what the page shows of a report.
type Overview struct {
	Name   string  `json:"name"` // of the run's folder or bucket
	Report *Report `json:"report"`
	Notes  []Note  `json:"notes"`
	// Balance is the text of Report.Balance. LagMost is the index in Report.Lag.Groups that includes
	// older groups.
	Balance string   `json:"balance"`
	LagMost int      `json:"lag_most"`
	Left    *LeftOut `json:"left_out,omitempty"` // nil if the page contains all samples, or none
}

// A LeftOut describes the samples that a page in a file does not contain.
type LeftOut struct {
	Kept    int      `json:"kept"`    // number of samples in the page
	Samples int      `json:"samples"` // number of samples that the page lacks
	Tasks   int      `json:"tasks"`   // number of tasks with such a sample
	IDs     []string `json:"ids"`     // the first of these tasks
}

// A Note is a prominent message. Mood is good, warn or bad.
type Note struct {
	Text string `json:"text"`
	Mood string `json:"mood"`
}

// OverviewOf returns the overview of a report. The name is the name of the run's folder.
func OverviewOf(name string, r *Report) *Overview {
	o := &Overview{Name: name, Report: r, Notes: Notes(r), LagMost: pace.LagMost}
	if o.Notes == nil {
		o.Notes = []Note{}
	}
	if r.Balance != nil {
		o.Balance = format.Count(r.Balance.Sampled) + " sampled tokens = " + format.Balance(r.Balance) + "."
	}
	return o
}

// Page writes the report as one self-contained page.
func Page(w io.Writer, name string, r *Report) error {
	return web.Write(w, web.Page{Title: name, Text: Text(r), Data: func(w io.Writer) error {
		return json.NewEncoder(w).Encode(map[string]any{"overview": OverviewOf(name, r)})
	}})
}

// Notes returns the prominent messages about a report.
func Notes(r *Report) (out []Note) {
	say := func(mood, format string, args ...any) {
		out = append(out, Note{termsafe.Sprintf(format, args...), mood})
	}
	for _, text := range r.Problems {
		say("bad", "%s", text)
	}
	for _, text := range clockNotes(r) {
		say("warn", "%s", text)
	}
	c := r.Coverage
	if !c.Holds {
		say("bad", "The run has more samples than were planned, so the coverage numbers do not add up.")
	}
	if c.Failed > 0 {
		say("bad", "%s of %s samples failed (%s).", count(c.Failed), count(c.Planned), share(c.Failed, c.Planned))
	}
	switch {
	case c.Remaining == 0 || r.State == "running":
	case r.Partitions > 0:
		say("warn", "%s of %s samples remain. Workers collect them: see rollout status, and start workers with rollout work.", count(c.Remaining), count(c.Planned))
	default:
		say("bad", "%s of %s samples remain: continue with rollout collect --resume.", count(c.Remaining), count(c.Planned))
	}
	if r.Partitions > 0 && c.Failed > 0 {
		say("warn", "A fleet does not support --retry-failed. To collect the failed samples again, plan another fleet with their tasks.")
	}
	if n := c.Durable; n != nil && *n > 0 {
		say("warn", "%s of the remaining samples have ended. They are durable in the write-ahead log, but not yet in a shard.", count(*n))
	}
	if n := r.Proof.Grades["unverified"]; n > 0 {
		say("warn", "%s of %s rows (%s) are unverified: their prompts could not be checked.", count(n), count(r.Lengths.Rows), share(n, r.Lengths.Rows))
	}
	if n := r.Proof.Downgraded; n > 0 {
		say("warn", "%s of %s rows (%s) are not exact because their replies were lost and the server's record has no prompts.", count(n), count(r.Lengths.Rows), share(n, r.Lengths.Rows))
	}
	if t := r.Truncation; t.Cut*20 > t.Samples {
		say("warn", "%s of the samples have a row that was cut at tokens.max_row_tokens.", share(t.Cut, t.Samples))
	}
	if t := r.Truncation; t.Length*20 > t.Samples {
		say("warn", "%s of the samples have a row whose last output ended at the engine's token limit.", share(t.Length, t.Samples))
	}
	if g := r.Groups; g.Scored > 0 && g.ZeroVariance*2 > g.Scored && c.Filtered == 0 {
		say("warn", "%s of the scored groups have equal rewards, so they provide no training signal.", share(g.ZeroVariance, g.Scored))
	}
	if r.Rewards.Scored > 0 && r.Rewards.Unscored > 0 {
		say("warn", "%s samples with data have no reward.", count(r.Rewards.Unscored))
	}
	if n := r.Rewards.Later; n > 0 {
		say("warn", "%s samples were collected after scores set %s, so they have no reward in it. To score all samples, use rollout rescore again.", count(n), r.Scores)
	}
	if r.Tail != nil {
		say("warn", "%s cut %s samples, so the data are biased toward short samples.", r.Tail.cutBy(c.Late), count(r.Tail.Cut.Samples))
	}
	return out
}

// cutBy names what cut the samples. The parameter late is the number of samples that were cut at a deadline.
func (t *TailBias) cutBy(late int) string {
	switch {
	case late >= t.Cut.Samples:
		return "Task deadlines"
	case late > 0:
		return "The tail policy and task deadlines"
	}
	return "The tail policy"
}
