package prompt

import (
	"context"
	"fmt"

	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// ContinuityHint explains how to prove calls that have the reason tokenize.ReasonContinuity.
const ContinuityHint = "a tap with --continuity runs in front of the engine, and only the tap has these prompts: use --tap, " +
	"or start the tap without --continuity"

// checkTap does nothing unless a tap with continuity was noticed. No server record shows the prompt
// that such a tap sent to the engine, but the trace of the call contains the tap's mark. For each
// prompt that does not come from the tap, checkTap reads this trace. It withdraws the prompt if the
// tap changed it or might have changed it.
func (p *Prompter) checkTap(ctx context.Context, rollout *record.Rollout, calls []tokenize.Call) error {
	if p.literal != nil || !rollout.Engines.Continuity() && (p.tap == nil || !p.tap.Continuity()) {
		return nil
	}
	var all []func(context.Context) error
	for i := range calls {
		if c := &calls[i]; c.Source != tokenize.SourceTap && c.StepID != "" {
			all = append(all, prefetchTrace(rollout, c.StepID))
		}
	}
	if err := p.lanes.together(ctx, all...); err != nil {
		return err
	}
	for i := range calls {
		c := &calls[i]
		if c.Source == tokenize.SourceTap {
			continue
		}
		answer, err := ownAnswer(ctx, rollout, c)
		switch {
		case err != nil:
			return err
		case answer == nil:
			p.unshown(c)
		case answer.Spliced != 0:
			spliced(c, answer.Spliced)
		}
	}
	return nil
}

// ownAnswer returns the answer in the trace of a call, or nil if the call has no usable trace.
func ownAnswer(ctx context.Context, rollout *record.Rollout, c *tokenize.Call) (*record.Answer, error) {
	if c.StepID == "" {
		return nil, nil
	}
	t, err := rollout.Trace(ctx, c.StepID)
	if err != nil || t == nil {
		return nil, err
	}
	answer, err := t.Answer()
	if err != nil || !answer.Proves(c.OutputIDs) {
		return nil, nil //nolint:nilerr // an unreadable trace shows nothing
	}
	return answer, nil
}

// unshown withdraws the proof of a prompt if no trace shows whether the tap changed the prompt.
func (p *Prompter) unshown(c *tokenize.Call) {
	switch {
	case c.Grade == tokenize.Unverified: // has no proof to withdraw
		return
	case c.Grade == tokenize.Quarantined && c.Reason != tokenize.ReasonCountMismatch:
		return // already quarantined for another reason
	case c.Grade != tokenize.Quarantined && p.unverified:
		c.Grade = tokenize.Unverified
		return
	}
	c.Note = noted(c.Note, "no trace shows whether the tap with --continuity changed the prompt of this call")
	withheld(c)
}

// spliced withdraws a prompt that the engine did not receive.
func spliced(c *tokenize.Call, turns int32) {
	text := "turns of the prompt"
	if turns >= 0 {
		text = fmt.Sprint(turns, " of the prompt's turns")
	}
	c.Note = noted(c.Note, "the tap with --continuity replaced "+text+" with sampled tokens: the engine did not receive the server's prompt")
	withheld(c)
}

func withheld(c *tokenize.Call) {
	c.PromptIDs, c.Source, c.Grade, c.Reason, c.TakenOver = nil, tokenize.SourceNone, tokenize.Quarantined, tokenize.ReasonContinuity, false
}
