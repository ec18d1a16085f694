package doctor

import (
	"context"
	"fmt"
	"slices"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/human"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// findTapped finds the calls of a reply that the tap saw.
func (d *Doctor) findTapped(ctx context.Context, reply *collector.Reply, e *record.Rollout) error {
	if d.Tap == nil {
		return nil
	}
	p, err := prompt.New(prompt.Config{Force: tokenize.SourceTap, Tap: d.Tap, Model: d.model})
	if err == nil {
		d.tapped, err = p.Prompts(ctx, reply, e)
	}
	return err
}

// compareTapped lets the rebuilt prompts be compared with what the tap saw, id by id.
func (d *Doctor) compareTapped() {
	for i := range d.calls {
		if x := &d.calls[i]; len(x.PromptIDs) == 0 && i < len(d.tapped) && d.tapped[i].Grade == tokenize.Exact {
			x.PromptIDs, x.Source = d.tapped[i].PromptIDs, tokenize.SourceTap
			x.Settle(d.model)
		}
	}
}

// tapSaw tells what the tap saw of the last reply, and reports whether that is all of it.
func (d *Doctor) tapSaw() bool {
	if d.Tap == nil {
		return false
	}
	seen, tokens := 0, 0
	for i := range d.tapped {
		if d.tapped[i].Grade == tokenize.Exact {
			seen++
			tokens += len(d.tapped[i].PromptIDs)
		}
	}
	state := Hint
	if d.Config.Tokens.Prompts == config.PromptsTap {
		state = Bad
	}
	switch stats := d.Tap.Stats(); {
	case seen == len(d.tapped) && seen > 0:
		d.ok("tap", "it saw every call, with prompts of %s tokens: rows will be exact", human.Count(int64(tokens)))
		return true
	case stats.Calls == 0:
		d.tell(state, "tap", "it saw no call at all", nil, "the base URL of the server's provider must be that of the tap: GET /v1/providers/ on the server shows it")
	default:
		missing := slices.IndexFunc(d.tapped, func(c tokenize.Call) bool { return c.Grade != tokenize.Exact })
		text := fmt.Sprintf("it saw %d calls, and %d of the %d of this rollout", stats.Calls, seen, len(d.tapped))
		if missing >= 0 {
			text += fmt.Sprintf("; call %d: %s", missing, d.tapped[missing].Note)
		}
		d.tell(state, "tap", text, nil, "the base URL of the server's provider must be that of the tap, and the clocks of both machines must agree")
	}
	return false
}
