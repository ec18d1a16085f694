package report

import (
	"cmp"
	"crypto/sha256"
	_ "embed" // the page and its style
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/tame"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

// maxShownChanges bounds the table of the controller's decisions.
const maxShownChanges = 60

// A page is what the template shows of a Report.
type page struct {
	R      *Report
	Style  template.CSS
	Policy string
	Mood   string
	Notes  []note
	Tiles  []tile
	Parts  []part

	Reasons, Status, Stop, Flags, Grades, Sources shares
	Ends                                          []string // sentences
	LimitReasons, Attempts, RetryClasses          shares
	RewardPlot, PassPlot                          *figure
	LengthRows, TimeRows                          []spreadRow
	LengthPlots, TimePlots, ControlPlots          []*figure
	Changes                                       []LimitChange
	Runs                                          []invocationRow
	Open                                          int // attempts without an outcome
}

// A note is something that a reader must not miss. Mood is good, warn or bad.
type note struct{ Text, Mood string }

type tile struct{ Name, Value, Note, Mood string }

// A part of the coverage bar, which is 100 wide.
type part struct {
	Name, Key, Note, Share string
	Count                  int
	X, Width               string
}

// shares is a table of counts with their part of the whole.
type shares struct {
	Title string
	Rows  []shareRow
}

type shareRow struct {
	Name, Share, Width string
	Count              int
}

type spreadRow struct {
	Name string
	D    *Distribution
	Show func(float64) string
}

type invocationRow struct {
	Invocation
	Lasted, End, Mood string
}

// Page writes the report as one HTML page that needs nothing else: no script, no
// font, no image, and nothing from the network. Whatever a model, a task or a
// server may have written is escaped, and what cannot be seen of it is made visible.
func Page(w io.Writer, r *Report) error {
	t, err := template.New("page").Funcs(template.FuncMap{
		"count": countAny,
		"share": share, "share64": func(part, whole int64) string { return share(int(part), int(whole)) },
		"seconds": seconds, "size": size, "moment": moment, "value": value, "amount": amount,
		"deref":   func(v *float64) string { return value(*v) },
		"ratio":   func(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) },
		"shorten": func(s string) string { return tame.Text(s, 80) },
	}).Parse(pageHTML)
	if err != nil {
		return err // a mistake in page.html: every test finds it
	}
	out := tame.NewWriter(w)
	return errors.Join(t.Execute(out, newPage(r)), out.Flush())
}

// countAny is count for what the template has.
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

func newPage(r *Report) *page {
	digest := sha256.Sum256([]byte(pageCSS))
	p := &page{
		R: r, Style: template.CSS(pageCSS), //nolint:gosec // our own file
		Policy: "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(digest[:]) + "'; base-uri 'none'; form-action 'none'",
		Mood:   map[string]string{"complete": "good", "running": "warn", "incomplete": "bad"}[r.State],
		Notes:  notes(r), Tiles: tiles(r), Parts: parts(r.Coverage),

		Reasons: sharesOf("Quarantined, by reason", r.Failures.Reasons),
		Status:  sharesOf("Samples by status", r.Truncation.Status),
		Stop:    sharesOf("Samples by stop reason", r.Truncation.Stop),
		Ends:    r.Truncation.ends(),
		Flags:   partsOf("Rows by flag", r.Truncation.Flags, r.Lengths.Rows),
		Grades:  sharesOf("Rows by grade", r.Proof.Grades),
		Sources: sharesOf("Rows by the source of their prompts", r.Proof.Sources),

		LimitReasons: sharesOf("Changes of the limit by reason", r.Controller.Reasons),
		RetryClasses: sharesOf("Retries by the failure before them", r.Retries.ByClass),
	}
	attempts := map[string]int{}
	for n, samples := range r.Retries.Attempts {
		attempts["attempt "+strconv.Itoa(n)] = samples
	}
	p.Attempts = sharesOf("Samples by the attempt that counted", attempts)
	if n := r.Retries.Open; n != nil {
		p.Open = *n
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
		row.End = "at work"
	default:
		row.End, row.Mood = "killed: its log has no end", "bad"
	}
	return row
}

// notes come worst first.
func notes(r *Report) (out []note) {
	say := func(mood, format string, args ...any) { out = append(out, note{tame.Sprintf(format, args...), mood}) }
	for _, text := range r.Problems {
		say("bad", "%s", text)
	}
	for _, text := range clockNotes(r) {
		say("warn", "%s", text)
	}
	c := r.Coverage
	if !c.Holds {
		say("bad", "The folder holds more samples than were planned: the numbers of coverage do not add up.")
	}
	if c.Failed > 0 {
		say("bad", "%s of %s samples failed (%s).", count(c.Failed), count(c.Planned), share(c.Failed, c.Planned))
	}
	if c.Remaining > 0 && r.State != "running" {
		say("bad", "%s samples remain: rollout collect --resume continues.", count(c.Remaining))
	}
	if c.Durable > 0 {
		say("warn", "%s of the remaining samples have ended: they are durable in the write-ahead log, and in no shard yet.", count(c.Durable))
	}
	if n := r.Proof.Grades["unverified"]; n > 0 {
		say("warn", "%s of %s rows (%s) are unverified: nothing could be checked about their prompts.", count(n), count(r.Lengths.Rows), share(n, r.Lengths.Rows))
	}
	if n := r.Proof.Downgraded; n > 0 {
		say("warn", "%s of %s rows (%s) are not exact because their answer was lost: the server's record of it holds no prompts.", count(n), count(r.Lengths.Rows), share(n, r.Lengths.Rows))
	}
	if t := r.Truncation; t.Cut*20 > t.Samples {
		say("warn", "%s of the samples have a row that was cut at tokens.max_row_tokens.", share(t.Cut, t.Samples))
	}
	if t := r.Truncation; t.Length*20 > t.Samples {
		say("warn", "%s of the samples have a row whose last output the engine's limit of tokens ended.", share(t.Length, t.Samples))
	}
	if g := r.Groups; g.Scored > 0 && g.ZeroVariance*2 > g.Scored {
		say("warn", "%s of the scored groups have one reward for all samples, and teach nothing.", share(g.ZeroVariance, g.Scored))
	}
	if r.Rewards.Scored > 0 && r.Rewards.Unscored > 0 {
		say("warn", "%s samples with data have no reward.", count(r.Rewards.Unscored))
	}
	if r.Tail != nil {
		say("warn", "The tail policy cut %s samples: the data lean towards what is quick and short.", count(r.Tail.Cut.Samples))
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
		note := "first start to last end"
		if len(r.ClockJumps) > 0 {
			note = "over the time of the invocations"
		}
		out = append(out, tile{Name: "sampled tokens per second", Value: amount(s.TokensPerSecond), Note: note})
	}
	if r.Storage.Tokens > 0 {
		out = append(out, tile{Name: "data", Value: size(r.Storage.DataBytes), Note: fmt.Sprintf("%.2f bytes per token", r.Storage.BytesPerToken())})
	}
	return out
}

func parts(c Coverage) []part {
	committed := ""
	if c.Empty > 0 {
		committed = count(c.Empty) + " of them without a row"
	}
	if c.LostCalls > 0 {
		if committed != "" {
			committed += "; "
		}
		committed += count(c.LostCalls) + " single calls of them are in failures/"
	}
	failed := ""
	if c.Superseded > 0 {
		failed = count(c.Superseded) + " earlier failures are void: the samples succeeded later"
	}
	out := []part{
		{Name: "committed", Key: "c", Count: c.Committed, Note: committed},
		{Name: "failed", Key: "x", Count: c.Failed, Note: failed},
		{Name: "skipped", Key: "k", Count: c.Skipped, Note: "cut by the tail policy"},
		{Name: "remaining", Key: "r", Count: c.Remaining},
	}
	if c.Durable > 0 {
		out[3].Note = count(c.Durable) + " of them have ended and are in the write-ahead log"
	}
	switch {
	case c.Skipped == 0:
		out[2].Note = ""
	case c.Unstarted > 0:
		out[2].Note += ", " + count(c.Unstarted) + " of them before they were begun"
	}
	whole := c.Committed + c.Failed + c.Skipped + c.Remaining
	at := 0
	for i := range out {
		p := &out[i]
		p.Share = share(p.Count, c.Planned)
		if whole > 0 {
			p.X, p.Width = num2(100*float64(at)/float64(whole)), num2(100*float64(p.Count)/float64(whole))
		} else {
			p.X, p.Width = "0", "0"
		}
		at += p.Count
	}
	return out
}

func num2(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }

// maxName is how much is shown of a name that a server may have given.
const maxName = 120

// sharesOf is a table of counts, the largest first; an empty name is a dash.
func sharesOf(title string, by map[string]int) shares {
	whole := 0
	for _, n := range by {
		whole += n
	}
	return partsOf(title, by, whole)
}

// partsOf is sharesOf where the counts are parts of a whole that is known.
func partsOf(title string, by map[string]int, whole int) shares {
	s := shares{Title: title}
	for _, name := range slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		return cmp.Or(cmp.Compare(by[b], by[a]), cmp.Compare(a, b))
	}) {
		s.Rows = append(s.Rows, shareRow{
			Name: cmp.Or(tame.Text(name, maxName), "–"), Count: by[name], Share: share(by[name], whole), Width: num2(100 * float64(by[name]) / float64(whole)),
		})
	}
	return s
}

func (p *page) rewards() {
	w := p.R.Rewards
	p.RewardPlot = histogram("Rewards", "reward", w.All, "samples")
	if len(w.PassAtK) < 2 {
		return
	}
	var points []point
	x := axis{name: "k", low: 1, high: float64(w.PassAtK[len(w.PassAtK)-1].K), log: true}
	for _, k := range w.PassAtK {
		points = append(points, point{float64(k.K), k.Value})
		x.ticks = append(x.ticks, tick{float64(k.K), strconv.Itoa(k.K)})
	}
	p.PassPlot = drawLines("pass@k", x, axis{name: "share of groups", high: 1, ticks: ticks(0, 1, 4)}, []line{{points: points}})
}

func (p *page) lengths() {
	l := p.R.Lengths
	p.LengthRows = []spreadRow{
		{"prompt tokens per row", l.Prompt, amount},
		{"tokens per row", l.Sequence, amount},
		{"sampled tokens per sample", l.Completion, amount},
		{"calls per sample", l.Calls, amount},
		{"rows per sample", l.RowsPer, amount},
	}
	p.LengthPlots = present(
		histogram("Prompt length", "tokens", l.Prompt, "rows"),
		histogram("Length of a row", "tokens", l.Sequence, "rows"),
		histogram("Sampled tokens", "tokens", l.Completion, "samples"),
	)
}

func (p *page) times() {
	t := p.R.Time
	for _, row := range []spreadRow{
		{"total", t.Total, seconds},
		{"working (no queueing, no backoff)", t.Working, seconds},
		{"total, of samples that failed", t.Failed, seconds},
	} {
		if row.D != nil {
			p.TimeRows = append(p.TimeRows, row)
		}
	}
	p.TimePlots = append(present(histogram("Time per sample", "seconds", t.Total, "samples")), p.throughput()...)
}

// throughput is over the time since the first sample began. A sample counts when it
// ends.
func (p *page) throughput() []*figure {
	s := p.R.Throughput
	if s == nil || len(s.Tokens) < 2 {
		return nil
	}
	unit, per := elapsed(time.Duration(float64(len(s.Tokens)) * s.Step * float64(time.Second)))
	since := unit + " since " + s.Start.Format("2006-01-02 15:04:05")
	curve := func(values []float64, scale float64) []line {
		var points []point
		for i, v := range values {
			points = append(points, point{float64(i) * s.Step / per, v * scale})
		}
		last := points[len(points)-1].y
		return []line{{points: append(points, point{float64(len(values)) * s.Step / per, last}), step: true, area: true}}
	}
	return present(
		lines("Sampled tokens per second", since, "tokens/s", curve(s.Tokens, 1/s.Step)),
		lines("Samples ended per minute", since, "samples/min", curve(s.Samples, 60/s.Step)),
	)
}

// control draws the limits and what was in flight over the time of the logs.
func (p *page) control() {
	k := p.R.Controller
	p.Changes = slices.Clone(k.Changes[max(0, len(k.Changes)-maxShownChanges):])
	slices.Reverse(p.Changes)
	var first, last time.Time
	see := func(t time.Time) {
		if first.IsZero() || t.Before(first) {
			first = t
		}
		if t.After(last) {
			last = t
		}
	}
	for _, c := range k.Changes {
		see(c.At)
	}
	for _, q := range k.InFlight {
		see(q.At)
	}
	if first.IsZero() {
		return
	}
	unit, per := elapsed(last.Sub(first))
	since := unit + " since " + first.Format("2006-01-02 15:04:05")
	x := func(t time.Time) float64 { return t.Sub(first).Seconds() / per }
	var flight []point
	for _, q := range k.InFlight {
		flight = append(flight, point{x(q.At), q.Value})
	}
	var limits []line
	shown := k.Endpoints[:min(len(k.Endpoints), len(lineInks))]
	for _, e := range shown {
		l := line{name: e.Endpoint, step: true}
		for _, c := range k.Changes {
			if c.Endpoint == e.Endpoint {
				l.points = append(l.points, point{x(c.At), float64(c.To)})
			}
		}
		if n := len(l.points); n > 0 {
			l.points = append(l.points, point{x(last), l.points[n-1].y})
		}
		limits = append(limits, l)
	}
	title := "Limit of samples in flight"
	if n := len(k.Endpoints) - len(shown); n > 0 {
		title += fmt.Sprintf(" (%d more endpoints in the table)", n)
	}
	p.ControlPlots = present(
		lines(title, since, "samples", limits),
		lines("Samples in flight", since, "samples", []line{{points: flight, area: true}}),
	)
}

// present leaves out what is not there.
func present(figures ...*figure) (out []*figure) {
	for _, f := range figures {
		if f != nil {
			out = append(out, f)
		}
	}
	return out
}
