package prompt

import (
	"context"
	"slices"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// nameSteps gives each call the id of its step where the answers themselves say it: a
// message carries the step that made it. Where the join is not certain the id stays
// empty.
func nameSteps(r *collector.Reply, rollout *record.Rollout, calls []tokenize.Call) {
	k := 0
	for i := range r.Sends {
		for _, id := range stepsOfTurns(r.Sends[i].Turns, rollout.Sends[i].Response.Messages) {
			if k < len(calls) {
				calls[k].StepID = id
			}
			k++
		}
	}
}

// listSteps asks the server for the steps of a send of which the messages name none for
// a call that said nothing, as one of only an end token does. What cannot be asked, or
// does not fit the turns, leaves the id empty.
func listSteps(ctx context.Context, r *collector.Reply, rollout *record.Rollout, calls []tokenize.Call) {
	k := 0
	for i := range r.Sends {
		n := assistantTurns(r.Sends[i].Turns)
		if k+n > len(calls) {
			return
		}
		own := calls[k : k+n]
		k += n
		if rollout.Sends[i].RunID == "" || !slices.ContainsFunc(own, func(c tokenize.Call) bool { return c.StepID == "" }) {
			continue
		}
		if named, _, ok := stepsOf(rollout.Sends[i].Response.Messages); !ok || len(named) >= n {
			continue // they are there and contradict the turns
		}
		steps, err := rollout.Run(rollout.Sends[i].RunID).Calls(ctx)
		if err != nil || len(steps) != n {
			continue
		}
		fits := true
		for j := range own {
			fits = fits && *steps[j].CompletionTokens == int64(len(own[j].OutputIDs)) && (own[j].StepID == "" || own[j].StepID == steps[j].ID)
		}
		for j := range own {
			if fits {
				own[j].StepID = steps[j].ID
			}
		}
	}
}

// stepsOfTurns returns the id of the step of each assistant turn of one send, empty
// where that is not certain.
//
// Turns and messages are both in the order of the steps. A step that said or called
// something has one turn and at least one message, all of its own with one id; one that
// said nothing has a turn and no message. So where there are as many steps among the
// messages as turns, or as turns that must have one, they are the same ones. The result
// of a tool is not a message of the model's: after an approval it names the step of an
// earlier send.
func stepsOfTurns(turns []tokenize.Turn, messages letta.Messages) []string {
	steps, returned, ok := stepsOf(messages)
	if !ok {
		return make([]string, assistantTurns(turns))
	}
	var said []bool // by assistant turn: it has text or a call that was run
	var ran []bool  // by assistant turn: a tool turn follows
	for t := range turns {
		if turns[t].Role == tokenize.RoleAssistant {
			said, ran = append(said, turns[t].Content != ""), append(ran, false)
		} else if n := len(ran); n > 0 {
			said[n-1], ran[n-1] = true, true
		}
	}
	ids := make([]string, len(said))
	speakers := 0
	for _, is := range said {
		if is {
			speakers++
		}
	}
	all := len(steps) == len(said)
	if !all && len(steps) != speakers {
		return ids
	}
	next := 0
	for k := range said {
		if !all && !said[k] {
			continue
		}
		// The results of its tools must name it too, and only where there are some.
		if ran[k] != slices.Contains(returned, steps[next]) {
			return make([]string, len(said))
		}
		ids[k] = steps[next]
		next++
	}
	return ids
}

// stepsOf lists the steps that the model's own messages name, in order, and those that
// results of tools name. It is not ok where a message of the model names no step, or
// where the messages of a step do not lie together.
func stepsOf(messages letta.Messages) (steps, returned []string, ok bool) {
	for i := range messages {
		id := messages[i].StepID
		switch messages[i].Type {
		case letta.TypeToolReturn:
			returned = append(returned, id)
		case letta.TypeAssistant, letta.TypeReasoning, letta.TypeHiddenReasoning, letta.TypeToolCall, letta.TypeApprovalRequest:
			if n := len(steps); n > 0 && steps[n-1] == id {
				continue
			}
			if id == "" || slices.Contains(steps, id) {
				return nil, nil, false
			}
			steps = append(steps, id)
		default: // the client's, or a note of the server
		}
	}
	return steps, returned, true
}
