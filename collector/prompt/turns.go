package prompt

import (
	"context"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// turnsOf is the turns of all sends, in order.
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

// afterSends says what lies before the first call of every later send: what we
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

// fillTurns has nothing to add: fromTurns took the prompts along.
func fillTurns(context.Context, *collector.Reply, *record.Rollout, []tokenize.Call) error { return nil }

// literal makes calls without prompts.
func literal(encoder tokenize.TextEncoder, r *collector.Reply) ([]tokenize.Call, error) {
	l := tokenize.Literal{Encoder: encoder}
	calls, err := l.Calls(nil, turnsOf(r))
	if err != nil {
		return nil, err
	}
	afterSends(r, calls)
	return calls, nil
}
