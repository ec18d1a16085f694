package doctor

import (
	"fmt"
	"slices"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/collector/prompt"
)

// clock reports whether the template reads the clock, and the time zone of the server. It compares
// server.timezone with known prompts, which a tap saw or the server sent. If the setting is
// missing, it reports the time zones that fit these prompts.
func (d *Doctor) clock() {
	const name = "clock"
	if !d.model.Template.ReadsClock() {
		return
	}
	printed, open := false, false
	var offsets []time.Duration // with each of these offsets, every known prompt is reproduced exactly
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
		d.ok(name, "the template reads the clock but does not print it in this conversation%s", set)
	case unlike > 0:
		d.report(Hint, name, "the template prints the time, but a known prompt matches no time that the server's timestamps allow", nil, "")
	case zone != nil && !agree:
		d.report(Bad, name, fmt.Sprintf("the template prints the time: server.timezone is %s, and the known prompts show a clock at %s", zone, offsetsText(offsets)), nil,
			"correct server.timezone: it is the time zone of the server's process (its variable TZ)")
	case zone != nil && known > 0:
		d.ok(name, "the template prints the time: server.timezone is %s, and the known prompts agree", zone)
	case zone != nil && open:
		d.report(Hint, name, fmt.Sprintf("the template prints the time: server.timezone is %s, but the time of this call is not exact enough", zone), nil, "try again: the call may have crossed midnight")
	case zone != nil:
		d.ok(name, "the template prints the time: server.timezone is %s", zone)
	case known > 0:
		of := ""
		if len(offsets) > 1 {
			of = "one of "
		}
		d.report(Hint, name, "the template prints the time: the known prompts show that the server's zone is "+of+offsetsText(offsets), nil,
			"set server.timezone: calls without an exact prompt need it")
	default:
		state := Hint
		if open && d.Config.Tokens.Require != config.RequireAny {
			state = Bad
		}
		d.report(state, name, "the template prints the time, but the server's zone is unknown: set server.timezone", nil, prompt.ClockHint)
	}
}

func offsetsText(all []time.Duration) string {
	if len(all) == 0 {
		return "no offset"
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
	return show(all[0]) + " to " + show(all[len(all)-1])
}
