package show

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/pace"
)

// Status returns the lines of a status report, except its first line.
func (v *View) Status(oldest []collector.InFlight) []string {
	var lines []string
	line := func(name, format string, args ...any) {
		lines = append(lines, fmt.Sprintf("  %-10s %s", name, fmt.Sprintf(format, args...)))
	}
	filtered := ""
	if v.Filtered > 0 {
		filtered = fmt.Sprintf(" + %d filtered", v.Filtered)
	}
	line("samples", "%d planned = %d committed%s + %d failed + %d skipped + %d remaining", v.Planned, v.Committed, filtered, v.Failed, v.Skipped, v.Remaining)
	if g := groupsOf(v.Pace); g != nil {
		held := ""
		if v.Pace.Held != pace.NotHeld {
			held = "; the next group is " + v.Pace.Held.String()
		}
		line("groups", "%s%s", g, held)
	}
	_, most := v.limits()
	line("in flight", "%d of at most %d; %d finished but not yet in a shard", v.InFlight, most, v.Accepted)
	if n := v.failed(); n > 0 {
		line("failed", "%d so far, including failures not yet in a shard: %s", n, classes(v.Failing))
	}
	if v.Rewards != nil {
		line("reward", "mean %s, %s", v.Rewards.mean(), v.scored())
	}
	line("attempts", "%d, %d of them retries (%s)", v.Attempts, v.Retries, cmp.Or(classes(v.retried()), "-"))
	line("log", "%d samples wait in the write-ahead log (%s) for their shard", v.Sink.Pending, format.Bytes(v.Sink.WALBytes))
	if text := v.recoveredText(); text != "" {
		line("resumed", "%s", strings.TrimSpace(strings.TrimPrefix(text, "resumed")))
	}
	if end := v.end(); end != "" {
		line("end", "%s", end)
	}
	for _, e := range v.Endpoints {
		state := "answers"
		switch {
		case e.Lost:
			state = "lost: this run no longer uses it"
		case e.Down:
			state = "down: no new samples are sent to it until it answers"
		}
		line("server", "%s: %d in flight, %d of them waiting for a retry; limit %d of %d; %s", e.Name, e.InFlight, e.Waiting, e.Limit, e.Max, state)
	}
	for i := range oldest {
		o := &oldest[i]
		name := ""
		if i == 0 {
			name = "oldest"
		}
		line(name, "%s", v.doing(o))
	}
	return lines
}

// doing describes the stage and the duration of a sample in flight.
func (v *View) doing(o *collector.InFlight) string {
	text := fmt.Sprintf("%s #%d: %s for %s", termsafe.Text(o.TaskID, 24), o.Index, o.Stage, format.Duration(v.Now.Sub(o.Since)))
	if o.Attempt > 1 {
		text += fmt.Sprintf(", attempt %d, %s in total", o.Attempt, format.Duration(v.Now.Sub(o.Started)))
	}
	if len(v.Endpoints) > 1 {
		text += " at " + o.Endpoint
	}
	return text
}

// Block prints a heading and lines. Like all messages, they appear above the live block.
func (d *Display) Block(head string, lines []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.above("rollout: %s\n%s\n", head, termsafe.Own(d.folded(strings.Join(lines, "\n"))))
}

// Works describes the current work on the samples in flight. It excludes samples that wait for a
// retry, because a drain does not wait for them.
func Works(s collector.Stats) string {
	var inFlight, scored, written, removed int
	for _, e := range s.Endpoints {
		for stage, n := range e.Stages {
			switch stage {
			case collector.StageWait:
			case collector.StageScore:
				scored += n
			case collector.StageAppend:
				written += n
			case collector.StageClose:
				removed += n
			default:
				inFlight += n
			}
		}
	}
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{inFlight, "in flight"}, {scored, "being scored"}, {written, "being written"}, {removed, "being cleaned up"}} {
		if p.n == 0 {
			continue
		}
		of := ""
		if len(parts) == 0 {
			if of = " samples"; p.n == 1 {
				of = " sample"
			}
		}
		parts = append(parts, fmt.Sprintf("%d%s %s", p.n, of, p.what))
	}
	if parts == nil {
		return "finished samples to be written"
	}
	return strings.Join(parts, ", ")
}
