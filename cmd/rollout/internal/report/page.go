package report

import (
	"crypto/sha256"
	_ "embed" // for embedding the page and its style
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"io"
	"strconv"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

// maxShownChanges is the maximum number of rows in the table of the controller's decisions.
const maxShownChanges = 60

// A page is a Report prepared for the HTML template.
type page struct {
	R      *Report
	Style  template.CSS
	Policy string
	Mood   string
	Notes  []note
	Tiles  []tile
	Parts  []part

	Reasons, Status, Stop, Flags, Grades, Sources, Versions, Lag shares
	Ends                                                         []string // one sentence each
	LimitReasons, Attempts, RetryClasses                         shares
	RewardPlot, PassPlot                                         *figure
	Lengths, Times                                               spreads
	LengthPlots, TimePlots, ControlPlots                         []*figure
	Changes                                                      []LimitChange
	Runs                                                         []invocationRow
	Open                                                         int    // attempts without an outcome
	NoLogs                                                       string // where the logs are, if the report lacks them
}

// A note is a prominent message. Mood is good, warn or bad.
type note struct{ Text, Mood string }

type tile struct{ Name, Value, Note, Mood string }

type invocationRow struct {
	Invocation
	Lasted, End, Mood string
}

// Page writes the report as one self-contained HTML page, without scripts, fonts, images or network
// access. Page escapes text from models, tasks and servers, and makes invisible characters visible.
func Page(w io.Writer, r *Report) error {
	t, err := template.New("page").Funcs(template.FuncMap{
		"count": countAny, "plural": pluralAny, "balance": format.Balance,
		"share": share, "share64": func(part, whole int64) string { return share(int(part), int(whole)) },
		"seconds": seconds, "size": size, "moment": moment, "value": value, "amount": amount,
		"deref":   func(v *float64) string { return value(*v) },
		"ratio":   func(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) },
		"shorten": func(s string) string { return termsafe.Text(s, 80) },
	}).Parse(pageHTML)
	if err != nil {
		return err // a mistake in page.html, which every test would find
	}
	out := termsafe.NewWriter(w)
	return errors.Join(t.Execute(out, newPage(r)), out.Flush())
}

// countAny is like count, but accepts every type that the template passes.
func countAny(v any) string {
	switch n := v.(type) {
	case int:
		return count(n)
	case int64:
		return count(n)
	case *int:
		return count(*n)
	case *int64:
		return count(*n)
	}
	return fmt.Sprint(v)
}

func pluralAny(v any, one string) string {
	text := countAny(v) + " " + one
	if countAny(v) != "1" {
		text += "s"
	}
	return text
}

func newPage(r *Report) *page {
	digest := sha256.Sum256([]byte(pageCSS))
	p := &page{
		R: r, Style: template.CSS(pageCSS), //nolint:gosec // the CSS is part of the program
		Policy: "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(digest[:]) + "'; base-uri 'none'; form-action 'none'",
		Mood:   map[string]string{"complete": "good", "running": "warn", "incomplete": "bad"}[r.State],
		Notes:  notes(r), Tiles: tiles(r), Parts: parts(r.Coverage, r.Filtered),

		Reasons: sharesOf("Quarantined samples and calls by reason", r.Failures.Reasons),
		Status:  sharesOf("Samples by status", r.Truncation.Status),
		Stop:    sharesOf("Samples by stop reason", r.Truncation.Stop),
		Ends:    r.Truncation.ends(),
		Flags:   partsOf("Rows by flag", r.Truncation.Flags, r.Lengths.Rows),
		Grades:  sharesOf("Rows by grade", r.Proof.Grades),
		Sources: sharesOf("Rows by prompt source", r.Proof.Sources),

		Versions: r.Proof.Versions.shares(),
		Lag:      r.Lag.shares(),

		LimitReasons: sharesOf("Limit changes by reason", r.Controller.Reasons),
		RetryClasses: sharesOf("Retries by failure class", r.Retries.ByClass),
	}
	attempts := map[string]int{}
	for n, samples := range r.Retries.Attempts {
		attempts["attempt "+strconv.Itoa(n)] = samples
	}
	p.Attempts = sharesOf("Samples by final attempt", attempts)
	if n := r.Retries.Open; n != nil {
		p.Open = *n
	}
	p.NoLogs = "The run has no logs."
	if r.Partitions > 0 {
		p.NoLogs = "The logs are in the spools of the workers."
	}
	p.rewards()
	p.lengths()
	p.times()
	p.control()
	for i, in := range r.Invocations {
		p.Runs = append(p.Runs, invocation(in, r.State == "running" && i == len(r.Invocations)-1))
	}
	return p
}

func invocation(in Invocation, running bool) invocationRow {
	row := invocationRow{Invocation: in, Lasted: seconds(in.Seconds), End: in.Outcome}
	switch {
	case in.Outcome != "":
		if in.Exit != nil {
			row.End += fmt.Sprintf(", exit %d", *in.Exit)
		}
	case running:
		row.End = "running"
	default:
		row.End, row.Mood = "killed (its log is incomplete)", "bad"
	}
	return row
}

func notes(r *Report) (out []note) {
	say := func(mood, format string, args ...any) {
		out = append(out, note{termsafe.Sprintf(format, args...), mood})
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
		say("warn", "%s samples remain. Workers collect them: see rollout status, and start workers with rollout work.", count(c.Remaining))
	default:
		say("bad", "%s samples remain: continue with rollout collect --resume.", count(c.Remaining))
	}
	if r.Partitions > 0 && c.Failed > 0 {
		say("warn", "A fleet does not support --retry-failed. To collect the failed samples again, plan another fleet with their tasks.")
	}
	if c.Durable > 0 {
		say("warn", "%s of the remaining samples have ended. They are durable in the write-ahead log, but not yet in a shard.", count(c.Durable))
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
	if r.Tail != nil {
		who := "The tail policy"
		switch {
		case c.Late >= r.Tail.Cut.Samples:
			who = "Task deadlines"
		case c.Late > 0:
			who = "The tail policy and task deadlines"
		}
		say("warn", "%s cut %s samples, so the data are biased toward short samples.", who, count(r.Tail.Cut.Samples))
	}
	return out
}

func tiles(r *Report) []tile {
	c := r.Coverage
	mood := ""
	if c.Failed > 0 {
		mood = "bad"
	}
	out := []tile{
		{Name: "committed", Value: count(c.Committed), Note: share(c.Committed, c.Planned) + " of " + count(c.Planned) + " samples"},
		{Name: "failed", Value: count(c.Failed), Note: share(c.Failed, c.Planned), Mood: mood},
	}
	if d := r.Rewards.All; d != nil {
		out = append(out, tile{Name: "mean reward", Value: value(d.Mean), Note: "± " + value(d.Std) + " over " + count(d.Count)})
		if k := r.Rewards.PassAtK; len(k) > 0 {
			note := ""
			if last := k[len(k)-1]; last.K > 1 {
				note = fmt.Sprintf("pass@%d %.3f", last.K, last.Value)
			}
			out = append(out, tile{Name: "pass@1", Value: strconv.FormatFloat(k[0].Value, 'f', 3, 64), Note: note})
		}
	}
	if r.Lengths.Rows > 0 {
		out = append(out, tile{Name: "rows", Value: count(r.Lengths.Rows), Note: count(r.Storage.Tokens) + " tokens, " + share(int(r.Storage.Trainable), int(r.Storage.Tokens)) + " trained"})
	}
	if d := r.Time.Total; d != nil {
		out = append(out, tile{Name: "median time per sample", Value: seconds(d.P50), Note: "p99 " + seconds(d.P99)})
	}
	if s := r.Throughput; s != nil && s.TokensPerSecond > 0 {
		note := "from the start of the first sample to the end of the last sample"
		if len(r.ClockJumps) > 0 {
			note = "over the running time of the invocations"
		}
		out = append(out, tile{Name: "sampled tokens per second", Value: amount(s.TokensPerSecond), Note: note})
	}
	if r.Storage.Tokens > 0 {
		out = append(out, tile{Name: "data", Value: size(r.Storage.DataBytes), Note: fmt.Sprintf("%.2f bytes per token", r.Storage.BytesPerToken())})
	}
	return out
}
