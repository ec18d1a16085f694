package main

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/human"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tame"
	"github.com/rollout-rl/rollout/collector"
)

// statusOldest is how many of the samples in flight a status shows.
const statusOldest = 10

// showStatus answers SIGUSR1: what the run does at this moment, in any display but
// the quiet one.
func (c *collection) showStatus() {
	if c.display.mode == displayQuiet {
		return
	}
	phase, _ := c.phase.Load().(string)
	r := c.running.Load()
	if r == nil {
		c.display.say("status: %s", phase)
		return
	}
	v := c.view()
	v.now = time.Now()
	c.display.block(fmt.Sprintf("status of run %s in %s: %s, for %s", c.info.ID, c.folder.Dir, phase, human.Duration(time.Since(r.began))),
		v.status(c.collector.Oldest(statusOldest)))
}

// status is what a status shows below its head.
func (v *view) status(oldest []collector.InFlight) []string {
	var lines []string
	line := func(name, format string, args ...any) {
		lines = append(lines, fmt.Sprintf("  %-10s %s", name, fmt.Sprintf(format, args...)))
	}
	line("samples", "%d planned = %d committed + %d failed + %d skipped + %d remaining", v.Planned, v.Committed, v.Failed, v.Skipped, v.Remaining)
	line("in flight", "%d of at most %d; %d finished and not in a shard yet", v.InFlight, v.most(), v.Accepted)
	if n := v.failed(); n > 0 {
		line("failed", "%d so far, in a shard or not: %s", n, classes(v.failing))
	}
	line("attempts", "%d, %d of them retries (%s)", v.Attempts, v.Retries, cmp.Or(classes(v.retried()), "-"))
	line("log", "%d samples wait in the write-ahead log (%s) for their shard", v.sink.Pending, human.Bytes(v.sink.WALBytes))
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
			state = "given up"
		case e.Down:
			state = "does not answer: nothing new is sent to it until it does"
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

// doing says what a sample in flight does.
func (v *view) doing(o *collector.InFlight) string {
	text := fmt.Sprintf("%s #%d: %s for %s", tame.Text(o.TaskID, 24), o.Index, o.Stage, human.Duration(v.now.Sub(o.Since)))
	if o.Attempt > 1 {
		text += fmt.Sprintf(", attempt %d, %s in all", o.Attempt, human.Duration(v.now.Sub(o.Started)))
	}
	if len(v.Endpoints) > 1 {
		text += " at " + o.Endpoint
	}
	return text
}

// block writes lines of talk below a head, above the live block.
func (d *display) block(head string, lines []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var b bytes.Buffer
	if d.mode == displayLive {
		d.erase(&b)
	}
	tame.Fprintf(&b, "rollout: %s\n%s\n", head, tame.Own(d.folded(strings.Join(lines, "\n"))))
	_, _ = d.talk.Write(b.Bytes()) // a terminal that is gone is no reason to stop a run
}
