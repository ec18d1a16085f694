package prompt

import (
	"context"
	"errors"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/tokenize"
)

// fromTurns checks every turn and makes one call of each assistant turn. A call
// has the prompt that its turn holds, and is quarantined where that holds none.
func fromTurns(r *collector.Reply) ([]tokenize.Call, error) {
	var calls []tokenize.Call
	turns := 0
	for i := range r.Sends {
		send := &r.Sends[i]
		first := len(calls)
		var err error
		if calls, err = tokenize.CallsFromTurns(calls, send.Turns); err != nil {
			return nil, shift(err, turns)
		}
		// A later send begins with what we sent: a user message, unless the server
		// shows it as the return of a tool.
		if i > 0 && first < len(calls) {
			calls[first].After = tokenize.RoleUser
			if send.Turns[0].Role == tokenize.RoleTool {
				calls[first].After = tokenize.RoleTool
			}
		}
		turns += len(send.Turns)
	}
	return calls, nil
}

// fillTurns has nothing to add: fromTurns took the prompts along.
func fillTurns(context.Context, *collector.Reply, []tokenize.Call) error { return nil }

// literal makes calls without prompts.
func literal(encoder tokenize.TextEncoder, r *collector.Reply) ([]tokenize.Call, error) {
	var turns []tokenize.Turn
	if len(r.Sends) == 1 {
		turns = r.Sends[0].Turns
	} else {
		for i := range r.Sends {
			turns = append(turns, r.Sends[i].Turns...)
		}
	}
	l := tokenize.Literal{Encoder: encoder}
	return l.Calls(nil, turns)
}

// shift makes the turn of an error count from the first send.
func shift(err error, turns int) error {
	if e, ok := errors.AsType[*tokenize.AlignError](err); ok && e.Turn >= 0 {
		moved := *e
		moved.Turn += turns
		return &moved
	}
	return err
}
