package prompt

import (
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/tokenize"
)

// fromReply makes one call of each assistant turn of a reply, with the prompt that the
// reply itself gives it.
func (p *Prompter) fromReply(r *collector.Reply) ([]tokenize.Call, error) {
	if p.literal != nil {
		return literal(p.literal, r)
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

// fromTurns checks every turn and makes one call of each assistant turn. A call
// has the prompt that its turn holds, and is quarantined where that holds none.
func fromTurns(r *collector.Reply) ([]tokenize.Call, error) {
	calls, err := tokenize.CallsFromTurns(nil, turnsOf(r))
	if err != nil {
		return nil, err
	}
	afterSends(r, calls)
	return calls, nil
}

// literal makes calls that claim no prompt: the sampled ids and the tokenized texts of
// tools, one after the other.
func literal(encoder tokenize.TextEncoder, r *collector.Reply) ([]tokenize.Call, error) {
	l := tokenize.Literal{Encoder: encoder}
	calls, err := l.Calls(nil, turnsOf(r))
	if err != nil {
		return nil, err
	}
	afterSends(r, calls)
	return calls, nil
}

// turnsOf returns the turns of all sends, in order.
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

// assistantTurns counts the turns that the model sampled.
func assistantTurns(turns []tokenize.Turn) int {
	n := 0
	for t := range turns {
		if turns[t].Role == tokenize.RoleAssistant {
			n++
		}
	}
	return n
}

// afterSends sets what lies before the first call of every later send: what the client
// sent. It is a user message, even where the send before ended with a tool, unless
// the server shows it as the return of a tool, which then begins the send's turns.
func afterSends(r *collector.Reply, calls []tokenize.Call) {
	k := 0
	for i := range r.Sends {
		turns := r.Sends[i].Turns
		first := k
		for j := range turns {
			if turns[j].Role == tokenize.RoleAssistant {
				k++
			}
		}
		if i == 0 || first == k {
			continue
		}
		calls[first].After = tokenize.RoleUser
		if turns[0].Role == tokenize.RoleTool {
			calls[first].After = tokenize.RoleTool
		}
	}
}
