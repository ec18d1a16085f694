package prompt

import (
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/tokenize"
)

// fromReply creates one call per assistant turn, with the prompt from the reply itself. With the
// source literal, the call instead gets a concatenation of sampled ids and tokenized tool text,
// which is not claimed to be the prompt.
func (p *Prompter) fromReply(r *collector.Reply) ([]tokenize.Call, error) {
	if p.literal != nil {
		l := tokenize.Literal{Encoder: p.literal}
		calls, err := l.Calls(nil, turnsOf(r))
		if err != nil {
			return nil, err
		}
		afterSends(r, calls)
		return calls, nil
	}
	calls, err := fromTurns(r)
	if err == nil && !p.turns {
		for i := range calls {
			c := &calls[i]
			c.PromptIDs, c.Source, c.Grade, c.Reason = nil, tokenize.SourceNone, tokenize.Quarantined, tokenize.ReasonNoPrompt
		}
	}
	return calls, err
}

// fromTurns creates one call per assistant turn. A call is quarantined if its turn contains no
// prompt.
func fromTurns(r *collector.Reply) ([]tokenize.Call, error) {
	calls, err := tokenize.CallsFromTurns(nil, turnsOf(r))
	if err != nil {
		return nil, err
	}
	afterSends(r, calls)
	return calls, nil
}

func turnsOf(r *collector.Reply) []tokenize.Turn {
	if len(r.Sends) == 1 {
		return r.Sends[0].Turns
	}
	var all []tokenize.Turn
	for i := range r.Sends {
		all = append(all, r.Sends[i].Turns...)
	}
	return all
}

// afterSends sets the field After of the first call in every send except the first. The value is
// tool if the send's own turns begin with a tool turn. Otherwise the value is user, even if the
// previous send ended with a tool turn.
func afterSends(r *collector.Reply, calls []tokenize.Call) {
	k := 0
	for i := range r.Sends {
		turns := r.Sends[i].Turns
		first := k
		k += tokenize.AssistantTurns(turns)
		if i == 0 || first == k {
			continue
		}
		calls[first].After = tokenize.RoleUser
		if turns[0].Role == tokenize.RoleTool {
			calls[first].After = tokenize.RoleTool
		}
	}
}
