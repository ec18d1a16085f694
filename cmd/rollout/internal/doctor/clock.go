package doctor

import (
	"fmt"
	"slices"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/collector/prompt"
)

// clock reports whether the template prints the time, and whether the server's time zone is known.
// It compares server.timezone with the prompts that a tap saw or that the server sent. If the
// setting is missing, it reports the time zones that fit these prompts.
func (d *Doctor) clock() {
	const name = "clock"
	if !d.model.Template.ReadsClock() {
		return
	}
	printed, open := false, false
	var offsets []time.Duration // each of these offsets reproduces every known prompt exactly
	known, unlike, agree := 0, 0, true
	for i := range d.calls {
		x := &d.calls[i]
		if !x.PrintsTime(d.model) {
			continue
		}
		printed = true
		if len(x.PromptIDs) == 0 {
			open = open || x.Stored.Clock != "" || x.Trace.Clock != ""
			continue
		}
		switch fit := x.Offsets(d.model); {
		case len(fit) == 0:
			unlike++
		case known == 0:
			offsets = fit
			known++
		default:
			offsets = slices.DeleteFunc(offsets, func(o time.Duration) bool { return !slices.Contains(fit, o) })
			known++
		}
		agree = agree && x.Fits()
	}
	zone, set := d.Config.Server.Timezone, ""
	if zone != nil {
		set = "; server.timezone is " + zone.String()
	}
	switch {
	case !printed:
		d.ok(name, "the template reads the clock but does not print the time in this conversation%s", set)
	case unlike > 0:
		d.report(Hint, name, "the template prints the current time, but no time consistent with the server's timestamps reproduces a known prompt", nil, "")
	case zone != nil && !agree:
		d.report(Bad, name, fmt.Sprintf("the template prints the time; server.timezone is %s, but the known prompts fit %s", zone, offsetsText(offsets)), nil,
			"set server.timezone to the time zone of the server's process (its environment variable TZ)")
	case zone != nil && known > 0:
		d.ok(name, "the template prints the time; server.timezone is %s, and the known prompts agree", zone)
	case zone != nil && open:
		d.report(Hint, name, fmt.Sprintf("the template prints the time; server.timezone is %s, but the time of this call is ambiguous", zone), nil, "run rollout doctor again, because midnight might have passed during the call")
	case zone != nil:
		d.ok(name, "the template prints the time; server.timezone is %s", zone)
	case known > 0:
		d.report(Hint, name, "the template prints the time; the known prompts fit "+offsetsText(offsets), nil,
			"set server.timezone, which rollout needs to rebuild the other prompts")
	default:
		state := Hint
		if open && d.Config.Tokens.Require != config.RequireAny {
			state = Bad
		}
		d.report(state, name, "the template prints the time, but the server's time zone is unknown", nil, prompt.ClockHint)
	}
}

func offsetsText(all []time.Duration) string {
	if len(all) == 0 {
		return "no single UTC offset"
	}
	show := func(o time.Duration) string {
		sign := '+'
		if o < 0 {
			sign, o = '-', -o
		}
		return fmt.Sprintf("UTC%c%02d:%02d", sign, int(o.Hours()), int(o.Minutes())%60)
	}
	if len(all) == 1 {
		return show(all[0])
	}
	return "offsets from " + show(all[0]) + " to " + show(all[len(all)-1])
}
