package show

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/pace"
	"github.com/rollout-rl/rollout/sink"
)

// A View is one state of a run, with its rates.
type View struct {
	collector.Stats
	Sink         sink.Stats
	Now          time.Time
	rate, tokens float64 // finished samples and sampled tokens, per second
	// Failing counts the failed samples by class. Failed does not count a failed sample until it is
	// committed, which can be minutes later.
	Failing map[string]int
	// Rewards summarizes the rewards so far. It is nil if the run does not score its samples.
	Rewards *Rewards
	// Draining is true if no new samples are being started. Stopping is true if the samples in
	// flight are being canceled. Until is the end of a drain's grace time, or zero if there is no
	// limit.
	Draining, Stopping bool
	Until              time.Time
	Recovery           Recovery
}

// end describes how the run is ending, or returns "".
func (v *View) end() string {
	switch {
	case v.Stopping:
		return "stopping"
	case !v.Draining:
		return ""
	case v.Until.IsZero():
		return fmt.Sprintf("draining: %d left", v.InFlight)
	}
	return fmt.Sprintf("draining: %d left, at most %s more", v.InFlight, format.Duration(max(0, v.Until.Sub(v.Now)).Round(time.Second)))
}

func (v *View) failed() (n int) {
	for _, k := range v.Failing {
		n += k
	}
	return n
}

// retried returns the number of failed attempts for each class that is retried.
func (v *View) retried() map[string]int {
	out := map[string]int{}
	for c, n := range v.FailedByClass {
		if c.Retryable() {
			out[c.String()] = n
		}
	}
	return out
}

// done counts the samples that need no more work. It includes samples that only wait for their
// commit.
func done(s collector.Stats) int {
	return s.Committed + s.Filtered + s.Failed + s.Skipped + s.Accepted
}

// doneNow is like done, but excludes the samples from earlier processes.
func doneNow(s collector.Stats) int {
	return done(s) - earlier(s.Earlier).ended() - s.Earlier.Skipped
}

// eta returns the remaining time at the current rate, or -1 if it is unknown.
func (v *View) eta() time.Duration {
	left := v.Planned - done(v.Stats)
	if v.rate <= 0 || left < 0 || v.Draining {
		return -1
	}
	return time.Duration(float64(left) / v.rate * float64(time.Second))
}

// limits returns the current and the maximum limit on the number of samples in flight.
func (v *View) limits() (now, most int) {
	for _, e := range v.Endpoints {
		if !e.Lost {
			now += e.Limit
			most += e.Max
		}
	}
	return now, most
}

// flight describes the number of samples in flight and its limit. After the limit has been lowered,
// the number can exceed the limit until enough samples have ended.
func (v *View) flight() string {
	limit, most := v.limits()
	switch {
	case v.Draining: // the limit applies only to new samples
		return fmt.Sprint(v.InFlight)
	case limit == most:
		return fmt.Sprintf("%d/%d", v.InFlight, most)
	}
	return fmt.Sprintf("%d, limit %d of %d", v.InFlight, limit, most)
}

// scored describes which samples the mean reward covers.
func (v *View) scored() string {
	text := format.Count(int64(v.Rewards.Scored)) + " scored"
	if v.Earlier.Committed > 0 {
		text += " by this process"
	}
	if v.Unscored > 0 {
		text += fmt.Sprintf(", %s not scored", format.Count(int64(v.Unscored)))
	}
	return text
}

// groups describes the groups of a run that commits whole groups. It returns "" for any other run.
func (v *View) groups() string {
	p := v.Pace
	if p == nil {
		return ""
	}
	text := fmt.Sprintf("%s groups whole, %s ahead", format.Count(int64(p.Whole())), format.Count(int64(p.Ahead)))
	if p.Filtered > 0 {
		text += fmt.Sprintf(", %s filtered", format.Count(int64(p.Filtered)))
	}
	if p.Version >= 0 {
		text += fmt.Sprintf(", version %d", p.Version)
	}
	if p.Held != pace.NotHeld {
		text += ", " + p.Held.String()
	}
	return text
}

// line returns the whole state as one line of text.
func (v *View) line() string {
	var b strings.Builder
	termsafe.Fprintf(&b, "rollout: %s/%s done, in flight %s, %s samples/s, %s tokens/s",
		format.Count(int64(done(v.Stats))), format.Count(int64(v.Planned)), v.flight(), format.Rate(v.rate), format.Rate(v.tokens))
	if r := v.Rewards; r != nil {
		termsafe.Fprintf(&b, ", mean reward %s (%s)", r.mean(), v.scored())
	}
	if text := v.groups(); text != "" {
		b.WriteString(", " + text)
	}
	if n := v.failed(); n > 0 {
		termsafe.Fprintf(&b, ", %d failed (%s)", n, classes(v.Failing))
	}
	if v.Retries > 0 {
		termsafe.Fprintf(&b, ", %d retries", v.Retries)
	}
	if end := v.end(); end != "" {
		b.WriteString(", " + end)
	} else if eta := v.eta(); eta >= 0 {
		termsafe.Fprintf(&b, ", %s left", format.Duration(eta))
	}
	if o := v.Oldest; o != nil && v.Now.Sub(o.Started) > time.Minute {
		termsafe.Fprintf(&b, ", oldest %s", v.doing(v.Oldest))
	}
	return b.String()
}

// block returns the lines of the live block, at most width columns wide.
func (v *View) block(width int, paint Painter) []string {
	finished := done(v.Stats)
	head := fmt.Sprintf("%s/%s", format.Count(int64(finished)), format.Count(int64(v.Planned)))
	share := format.Percent(int64(finished), int64(v.Planned))
	tail := share
	if end := v.end(); end != "" {
		tail += "  " + end
	} else if eta := v.eta(); eta >= 0 {
		tail += "  " + format.Duration(eta) + " left"
	}
	if utf8.RuneCountInString(head)+utf8.RuneCountInString(tail)+7 > width {
		tail = share
	}
	size := min(40, width-utf8.RuneCountInString(head)-utf8.RuneCountInString(tail)-8)
	lines := []string{string("  "+paint.bold(head)+"  "+paint.bar(finished-v.failed(), v.failed(), v.Planned, size)) + "  " + tail}

	flight := "in flight " + v.flight()
	more := []string{format.Rate(v.rate) + " samples/s", format.Rate(v.tokens) + " tokens/s"}
	if v.Sink.Shards > 0 {
		more = append(more, fmt.Sprintf("%d shards, %s", v.Sink.Shards, format.Bytes(v.Sink.Bytes)))
	}
	for _, part := range more { // drop whole parts, so that no number is cut
		if utf8.RuneCountInString(flight)+3+utf8.RuneCountInString(part) > width-3 {
			break
		}
		flight += "   " + part
	}
	lines = append(lines, "  "+termsafe.Text(flight, width-3))
	if text := v.groups(); text != "" {
		lines = append(lines, "  "+termsafe.Text(text, width-3))
	}
	if v.Rewards != nil {
		lines = append(lines, "  "+termsafe.Text("mean reward "+v.Rewards.mean()+"   "+v.scored(), width-3))
	}

	if n := v.failed(); n > 0 {
		lines = append(lines, string("  "+paint.red(termsafe.Text(fmt.Sprintf("failed %d   %s", n, classes(v.Failing)), width-3))))
	}
	if v.Retries > 0 {
		lines = append(lines, string("  "+paint.yellow(termsafe.Text(fmt.Sprintf("retries %d   %s", v.Retries, cmp.Or(classes(v.retried()), "of samples that an earlier process left unfinished")), width-3))))
	}
	if text := v.recoveredText(); text != "" {
		lines = append(lines, "  "+termsafe.Text(text, width-3))
	}
	for _, e := range v.Endpoints {
		switch {
		case e.Lost:
			lines = append(lines, string("  "+paint.red(termsafe.Text(e.Name+" is lost: this run does not use it again", width-3))))
		case e.Down:
			lines = append(lines, string("  "+paint.red(termsafe.Text(e.Name+" does not answer", width-3))))
		}
	}
	if v.Oldest != nil {
		lines = append(lines, string("  "+paint.dim(termsafe.Text("oldest "+v.doing(v.Oldest), width-3))))
	}
	return lines
}

// recoveredText describes the samples and attempts from earlier processes, or returns "".
func (v *View) recoveredText() string {
	var parts []string
	if n := earlier(v.Earlier).ended(); n > 0 {
		text := format.Count(int64(n)) + " done before"
		if v.Recovery.Samples > 0 {
			text += fmt.Sprintf(" (%s from the write-ahead log)", format.Count(v.Recovery.Samples))
		}
		parts = append(parts, text)
	}
	if v.Recovery.Open > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d in flight reattached", v.Reattached, v.Recovery.Open))
		if v.Gone > 0 {
			parts = append(parts, fmt.Sprintf("%d lost", v.Gone))
		}
	}
	if parts == nil {
		return ""
	}
	return "resumed   " + strings.Join(parts, ", ")
}

// json returns the state as the fields of an event.
func (v *View) json() map[string]any {
	limit, _ := v.limits()
	out := map[string]any{
		"planned": v.Planned, "committed": v.Committed, "filtered": v.Filtered, "failed": v.Failed, "failing": v.Failing, "skipped": v.Skipped, "remaining": v.Remaining,
		"accepted": v.Accepted, "in_flight": v.InFlight, "retries": v.Retries, "retried": v.retried(),
		"rows": v.Rows, "sampled": v.Sampled, "trained": v.Trained,
		"samples_per_second": v.rate, "tokens_per_second": v.tokens,
		"shards": v.Sink.Shards, "bytes": v.Sink.Bytes, "draining": v.Draining, "stopping": v.Stopping,
		"limit": limit, "reattached": v.Reattached, "gone": v.Gone, "earlier": earlier(v.Earlier).ended(),
	}
	if g := groupsOf(v.Pace); g != nil {
		out["groups"], out["paused"] = g, v.Pace.Paused
	}
	if v.Rewards != nil {
		out["scored"], out["mean_reward"], out["unscored"] = v.Rewards.Scored, v.Rewards.Mean, v.Unscored
	}
	if v.Draining && !v.Stopping && !v.Until.IsZero() {
		out["grace_seconds"] = max(0, v.Until.Sub(v.Now)).Seconds()
	}
	if eta := v.eta(); eta >= 0 {
		out["eta_seconds"] = eta.Seconds()
	}
	if o := v.Oldest; o != nil {
		out["oldest"] = map[string]any{
			"task_id": o.TaskID, "sample_index": o.Index, "attempt": o.Attempt, "endpoint": o.Endpoint,
			"stage": o.Stage.String(), "seconds": v.Now.Sub(o.Started).Seconds(), "stage_seconds": v.Now.Sub(o.Since).Seconds(),
		}
	}
	return out
}

func writeEvent(w io.Writer, name string, fields map[string]any) {
	out := map[string]any{"event": name}
	maps.Copy(out, fields)
	enc := format.NewJSONEncoder(w)
	_ = enc.Encode(out) // cannot fail: a write to a queue always succeeds
}

// classes formats counts by class, largest first.
func classes(m map[string]int) string {
	names := slices.SortedFunc(maps.Keys(m), func(a, b string) int { return cmp.Or(m[b]-m[a], strings.Compare(a, b)) })
	parts := make([]string, len(names))
	for i, c := range names {
		parts[i] = fmt.Sprintf("%s %d", c, m[c])
	}
	return strings.Join(parts, ", ")
}

func classMap(m map[collector.Class]int) map[string]int {
	out := make(map[string]int, len(m))
	for c, n := range m {
		out[c.String()] = n
	}
	return out
}

// A Painter adds colors to text. The zero value, false, leaves text uncolored.
type Painter bool

// Code escapes the text and gives it an SGR attribute, such as "31" for red.
func (p Painter) Code(code, text string) termsafe.Own {
	text = termsafe.Text(text, termsafe.MaxText)
	if !p || text == "" {
		return termsafe.Own(text)
	}
	return termsafe.Own("\x1b[" + code + "m" + text + "\x1b[0m")
}

func (p Painter) bold(s string) termsafe.Own   { return p.Code("1", s) }
func (p Painter) dim(s string) termsafe.Own    { return p.Code("2", s) }
func (p Painter) red(s string) termsafe.Own    { return p.Code("31", s) }
func (p Painter) green(s string) termsafe.Own  { return p.Code("32", s) }
func (p Painter) yellow(s string) termsafe.Own { return p.Code("33", s) }

// bar draws a progress bar that is size columns wide. The green part is good/whole, and the red
// part is bad/whole. If bad is not zero, the red part has at least one column.
func (p Painter) bar(good, bad, whole, size int) termsafe.Own {
	if size < 4 || whole <= 0 {
		return ""
	}
	g, b := good*size/whole, bad*size/whole
	if bad > 0 && b == 0 {
		b = 1
	}
	g = max(0, min(g, size-b))
	return p.green(strings.Repeat("█", g)) + p.red(strings.Repeat("█", b)) + p.dim(strings.Repeat("░", size-g-b))
}

// A Recovery counts what earlier processes left: samples in the write-ahead log, and attempts
// without an outcome.
type Recovery struct {
	Samples int64
	Open    int
}
