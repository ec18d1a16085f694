package prompt

import (
	"context"
	"slices"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// nameSteps sets the step id of each call from the messages of the answers: a message has the step
// that made it. If the match is not certain, the id stays empty.
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

// listSteps fetches the steps of a send if a call without text and calls has no step in the
// messages, such as an output of only an end token. If the fetch fails or the steps do not match
// the turns, the id stays empty.
func listSteps(ctx context.Context, r *collector.Reply, rollout *record.Rollout, calls []tokenize.Call) {
	k := 0
	for i := range r.Sends {
		n := tokenize.AssistantTurns(r.Sends[i].Turns)
		if k+n > len(calls) {
			return
		}
		own := calls[k : k+n]
		k += n
		if rollout.Sends[i].RunID == "" || !slices.ContainsFunc(own, func(c tokenize.Call) bool { return c.StepID == "" }) {
			continue
		}
		if named, _, ok := stepsOf(rollout.Sends[i].Response.Messages); !ok || len(named) >= n {
			continue // the steps are complete and contradict the turns
		}
		steps, err := rollout.Run(rollout.Sends[i].RunID).Calls(ctx)
		fits := func(c tokenize.Call, s letta.Step) bool {
			return *s.CompletionTokens == int64(len(c.OutputIDs)) && (c.StepID == "" || c.StepID == s.ID)
		}
		if err != nil || !slices.EqualFunc(own, steps, fits) {
			continue
		}
		for j := range own {
			own[j].StepID = steps[j].ID
		}
	}
}

// stepsOfTurns returns the step id of each assistant turn of one send, or empty if it is not
// certain.
//
// Turns and messages are both in the order of the steps. A step with text or calls has one turn and
// at least one message, all with the same step id. A step without either has a turn and no message.
// So turns and steps match if the messages name as many steps as there are turns, or turns with
// text or calls. A tool result is not a message of the model: after an approval it names the step
// of an earlier send.
func stepsOfTurns(turns []tokenize.Turn, messages letta.Messages) []string {
	steps, returned, ok := stepsOf(messages)
	if !ok {
		return make([]string, tokenize.AssistantTurns(turns))
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
	silent := len(slices.DeleteFunc(slices.Clone(said), func(is bool) bool { return is }))
	all := len(steps) == len(said)
	if !all && len(steps) != len(said)-silent {
		return ids
	}
	next := 0
	for k := range said {
		if !all && !said[k] {
			continue
		}
		// A turn has tool results if and only if the results name its step.
		if ran[k] != slices.Contains(returned, steps[next]) {
			return make([]string, len(said))
		}
		ids[k] = steps[next]
		next++
	}
	return ids
}

// stepsOf returns the steps that the model's messages name, in order, and the steps that tool
// results name. ok is false if a message of the model names no step, or if the messages of a step
// are not contiguous.
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
		default: // the client's message, or a note of the server
		}
	}
	return steps, returned, true
}
