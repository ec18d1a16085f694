package prompt

import (
	"context"
	"slices"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// nameSteps sets the step id of each call. It uses the messages in the answers, because each
// message contains the id of its step. If the match is uncertain, the id stays empty.
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

// listSteps sets the remaining step ids. It fetches the steps of a send if the messages do not name
// the step of every call. This happens if an output has neither text nor tool calls, for example
// only an end token. If the fetch fails or the steps do not match the turns, the ids stay empty.
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
			continue // the messages name all steps or are inconsistent, so the list would not help
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

// stepsOfTurns returns the step id of each assistant turn in one send. An id is empty if it is
// uncertain.
//
// Turns and messages are both in the order of the steps. A step with text or calls has one turn and
// at least one message, all with the same step id. A step with neither text nor calls has a turn
// but no message. So turns and steps match if the messages name as many steps as there are turns,
// or as there are turns with text or calls. Tool results are not counted, because a result after an
// approval names a step of an earlier send.
func stepsOfTurns(turns []tokenize.Turn, messages letta.Messages) []string {
	steps, returned, ok := stepsOf(messages)
	if !ok {
		return make([]string, tokenize.AssistantTurns(turns))
	}
	var said []bool // for each assistant turn: whether it has text or a tool call that was run
	var ran []bool  // for each assistant turn: whether a tool turn follows
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
		// A tool turn must follow if and only if a tool result names the step.
		if ran[k] != slices.Contains(returned, steps[next]) {
			return make([]string, len(said))
		}
		ids[k] = steps[next]
		next++
	}
	return ids
}

// stepsOf returns the steps that the model's messages name, in order, and the steps that tool
// results name. The result ok is false if a message from the model names no step, or if the
// messages of a step are not contiguous.
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
		default: // a message from the client, or a note from the server
		}
	}
	return steps, returned, true
}
