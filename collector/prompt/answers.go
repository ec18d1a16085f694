package prompt

import (
	"context"
	"slices"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// An answer already contains most of the data that join.go fetches. So the Prompter first tries to
// rebuild the prompts of a sample from the answers and from the traces that prove these answers. If
// any call of the sample remains unproven, the Prompter discards the results and join.go fetches
// the records. doc.go explains why both ways give the same proof.

// fromAnswers rebuilds the prompts of a sample from its answers. It returns false if any call
// remains unproven. In that case, b does not change, except that b.rollout keeps the fetched
// records.
func (p *Prompter) fromAnswers(ctx context.Context, reply *collector.Reply, b *rebuild) (bool, error) {
	if !p.takesAnswers(b.rollout) {
		return false, nil
	}
	a := &answers{rebuild: newRebuild(b.rollout, slices.Clone(b.calls), b.finish, b.lanes)}
	if !a.read(reply) {
		return false, nil
	}
	if shown, err := a.show(ctx); err != nil || !shown {
		return false, err
	}
	a.r = p.renderer(a.transcript.longestPrompt())
	defer p.release(a.r)
	if err := a.fromStored(true); err != nil || !complete(a.calls) {
		return false, nil // join.go hits the same error and reports it
	}
	copy(b.calls, a.calls)
	return true, nil
}

// takesAnswers reports whether the rollout's answers might be enough to rebuild its prompts. The
// agent must have been read before the first request, and the server must keep traces.
func (p *Prompter) takesAnswers(r *record.Rollout) bool {
	return p.answers && !p.model.Template.ReadsClock() && !r.Late && !r.Recorded && len(r.Before) == 0 && p.finish.keepsTraces()
}

type answers struct {
	*rebuild
	now *letta.AgentState // the agent after the last send; nil if not fetched
}

// read builds the transcript from the answers. It returns false if an answer is incomplete.
func (b *answers) read(reply *collector.Reply) bool {
	r := b.rollout
	b.transcript = &transcript{rollout: r, sends: make([]send, len(r.Sends))}
	n, sampled := 0, make([]int64, len(b.calls))
	for i := range b.transcript.sends {
		s, of := &b.transcript.sends[i], &r.Sends[i]
		ids := stepsSaid(r, of, reply.Sends[i].Turns)
		if len(ids) == 0 || reply.Sends[i].FromRecord {
			return false
		}
		s.request, s.messages, s.stored, s.turns, s.first = of.Request, of.Response.Messages, of.Response.Messages, reply.Sends[i].Turns, n
		s.steps = make([]letta.Step, len(ids))
		for k, id := range ids {
			c := &b.calls[n+k]
			if slices.ContainsFunc(b.calls[:n+k], func(before tokenize.Call) bool { return before.StepID == id }) {
				return false
			}
			sampled[n+k] = int64(len(c.OutputIDs))
			c.StepID, s.steps[k] = id, letta.Step{ID: id, CompletionTokens: &sampled[n+k]}
		}
		s.calls = len(ids)
		n += s.calls
	}
	b.transcript.decide(nil)
	b.transcript.findCompactions()
	return true
}

// stepsSaid returns the step id of every call in a send, or nil if the answer is not enough to
// rebuild the prompts. The answer must not contain a compaction or a call that waits for the
// client. The usage in the answer must report as many calls and sampled tokens as the turns contain.
func stepsSaid(r *record.Rollout, of *record.Send, turns []tokenize.Turn) []string {
	request, usage := of.Request, &of.Response.Usage
	if of.RunID == "" || overrides(request) || answersCalls(request) || len(request.ClientTools) > 0 ||
		len(r.Agent.Tools) > 1 && toolsVary(r.Agent) {
		return nil
	}
	for i := range of.Response.Messages {
		m := &of.Response.Messages[i]
		switch m.Type {
		case letta.TypeAssistant, letta.TypeReasoning, letta.TypeHiddenReasoning, letta.TypeToolCall, letta.TypeToolReturn:
		default:
			return nil // a compaction note, a call that waits for the client, or an unknown type
		}
		if m.RunID != of.RunID {
			return nil
		}
	}
	sampled := int64(0)
	for i := range turns {
		sampled += int64(len(turns[i].OutputIDs)) // a tool turn has no ids
	}
	ids := stepsOfTurns(turns, of.Response.Messages)
	if int(usage.StepCount) != len(ids) || usage.CompletionTokens != sampled || slices.Contains(ids, "") {
		return nil
	}
	return ids
}

// fewCalls is the largest number of calls per send for which the usage in the answer determines the
// length of each prompt.
const fewCalls = 2

// show fetches the records that prove the transcript, and sets the witnesses and the token counts.
// It returns false if a record is missing or contradicts another record.
func (b *answers) show(ctx context.Context) (bool, error) {
	sends := b.transcript.sends
	last := &sends[len(sends)-1]
	each := len(sends) <= 2 || slices.ContainsFunc(sends, func(s send) bool { return needsTrace(b.rollout, s.request) })
	if err := b.fetchProof(ctx, each); err != nil {
		return false, err
	}
	if heard, err := b.witness(ctx, last); err != nil || !heard || !b.system(last) {
		return false, err
	}
	if !each && !b.sameEnds(last) {
		each = true
		if err := b.fetchProof(ctx, each); err != nil {
			return false, err
		}
	}
	if !each && changedSince(b.transcript.agent(), b.now) != "" {
		return false, nil
	}
	for i := range sends {
		s := &sends[i]
		if each && s != last {
			if heard, err := b.witness(ctx, s); err != nil || !heard {
				return false, err
			}
		}
		if counted, err := b.count(ctx, s, &b.rollout.Sends[i]); err != nil || !counted {
			return false, err
		}
	}
	return true, nil
}

// needsTrace reports whether the send always needs its own trace. This is the case if its prompts
// depend on something that rereading the agent does not show.
func needsTrace(r *record.Rollout, request *letta.LettaRequest) bool {
	return r.Conversation != nil || len(r.Agent.Tools) > 1 || len(r.Agent.Blocks) > 0 ||
		request.OverrideModel != nil && *request.OverrideModel != ""
}

// system sets the transcript's system message, which is later compared with the trace of each send.
// The system message of a conversation comes from the trace of the last send. system returns false
// if this trace has no system message.
func (b *answers) system(last *send) bool {
	b.transcript.system = b.rollout.SystemText
	if b.rollout.Conversation == nil {
		return true
	}
	if last.witness == nil || len(last.witness.messages) == 0 || last.witness.messages[0].role != roleSystem {
		return false
	}
	b.transcript.system = last.witness.messages[0].content
	return true
}

// fetchProof fetches the records for the proof concurrently. If the parameter each is true, it
// fetches the trace of every send. Otherwise, it fetches the trace of the last send and the current
// agent. It also fetches the steps of every send with more than fewCalls calls.
func (b *answers) fetchProof(ctx context.Context, each bool) error {
	r, sends := b.rollout, b.transcript.sends
	var all []func(context.Context) error
	if !each {
		all = append(all, func(ctx context.Context) (err error) {
			b.now, err = r.AgentState(ctx)
			return err
		})
	}
	for i := range sends {
		if sends[i].calls > fewCalls {
			all = append(all, prefetch(r.Run(r.Sends[i].RunID).Steps))
		}
		if each || i == len(sends)-1 {
			all = append(all, prefetchTrace(r, sends[i].steps[sends[i].calls-1].ID))
		}
	}
	return b.lanes.together(ctx, all...)
}

// witness makes the trace of the send's last call the witness of the send. It returns false if
// there is no usable trace or if the trace contradicts the send.
func (b *answers) witness(ctx context.Context, s *send) (bool, error) {
	t, err := b.rollout.Trace(ctx, s.steps[s.calls-1].ID)
	if err != nil {
		return false, err
	}
	if t == nil {
		b.finish.untraced.Add(1)
		return false, nil
	}
	return b.hear(s, s.calls-1, t) && s.gap == nil, nil
}

// sameEnds reports whether the output of every send except the last ends with an id at which the
// engine stops. If so, the traces of these sends are not needed for the finish reasons.
func (b *answers) sameEnds(last *send) bool {
	for i := range b.transcript.sends {
		s := &b.transcript.sends[i]
		if out := b.calls[s.first+s.calls-1].OutputIDs; s != last && (len(out) == 0 || !b.finish.stopsAt(out[len(out)-1])) {
			return false
		}
	}
	return true
}

// count sets the number of prompt tokens of each call in the send, as doc.go explains. It returns
// false if a value is missing or two values disagree.
func (b *answers) count(ctx context.Context, s *send, of *record.Send) (bool, error) {
	usage, final := &of.Response.Usage, &s.steps[s.calls-1]
	var words []int64 // the reported values for the length of the last call's prompt
	if usage.ContextTokens != nil {
		words = append(words, *usage.ContextTokens-*final.CompletionTokens)
	}
	if s.witness != nil && s.witness.answer.PromptLength >= 0 {
		words = append(words, int64(s.witness.answer.PromptLength))
	}
	rest := usage.PromptTokens // the prompt tokens that are not yet assigned to a call
	if s.calls > fewCalls {
		steps, err := b.listed(ctx, s, of.RunID)
		if err != nil || steps == nil {
			return false, err
		}
		s.steps, final = steps, &steps[len(steps)-1]
		for k := range steps {
			rest -= *steps[k].PromptTokens
		}
		words, rest = append(words, *final.PromptTokens), rest+*final.PromptTokens
	}
	switch {
	case s.calls == 1:
		words = append(words, rest)
	case len(words) == 0:
		return false, nil
	}
	if slices.Min(words) != slices.Max(words) || words[0] <= 0 {
		return false, nil
	}
	rest -= words[0]
	if s.calls == fewCalls {
		s.steps[0].PromptTokens = new(rest)
	} else if rest != 0 {
		return false, nil
	}
	final.PromptTokens = new(words[0])
	return true, nil
}

// listed returns the steps of the send's calls from the server's list of steps. It returns nil if
// the list differs from the steps in the answer or lacks a prompt token count.
func (b *answers) listed(ctx context.Context, s *send, runID string) ([]letta.Step, error) {
	steps, err := b.rollout.Run(runID).Calls(ctx)
	if err != nil {
		return nil, err
	}
	same := slices.EqualFunc(steps, s.steps, func(listed, said letta.Step) bool {
		return listed.ID == said.ID && *listed.CompletionTokens == *said.CompletionTokens && listed.PromptTokens != nil
	})
	if !same {
		return nil, nil
	}
	return steps, nil
}
