package prompt

import (
	"bytes"
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// fromTap sets missing prompts from the calls that the tap recorded. It makes no request to the
// server. If it does not find a call, the call stays quarantined and its note states the cause.
func (p *Prompter) fromTap(ctx context.Context, r *collector.Reply, rollout *record.Rollout, calls []tokenize.Call) {
	if r.AgentID == "" || len(r.Sends) == 0 {
		return
	}
	all := tap.Rollout{ID: r.AgentID + "/" + r.Sends[0].RunID, Foreign: p.foreign(rollout)}
	if rollout.Recorded { // another program drove the agent, so several rollouts can share it
		all.ID = rollout.Sends[0].RunID
	}
	r.Unshown = tokenize.Unshown{}
	k := 0
	for i := range r.Sends {
		of := &rollout.Sends[i]
		s := tap.Send{From: of.Began, To: of.Ended, PromptTokens: countedPrompts(&r.Sends[i]), Summaries: len(answered(of).alerts())}
		for range min(tokenize.AssistantTurns(r.Sends[i].Turns), len(calls)-k) {
			s.Calls = append(s.Calls, tap.Sampled{Output: calls[k].OutputIDs, Logprobs: calls[k].Logprobs})
			k++
		}
		all.Sends = append(all.Sends, s)
	}
	for k, m := range p.tap.Join(ctx, &all) {
		r.Unshown = r.Unshown.Plus(m.Unshown)
		switch c := &calls[k]; {
		case c.Grade != tokenize.Quarantined:
		case m.Call == nil:
			c.Note = noted(c.Note, "tap: "+m.Refusal.String())
		default:
			m.Call.CopyTo(c)
		}
	}
}

// countedPrompts returns the number of prompt tokens that the server counted in all calls of a
// send, or -1 if a step produced no turn. The number does not include the prompt of a compaction.
func countedPrompts(s *collector.Send) int64 {
	if n := s.Usage.PromptTokens; n > 0 && int(s.Usage.Steps) == tokenize.AssistantTurns(s.Turns) {
		return n
	}
	return -1
}

// foreign returns a function that reports whether a prompt belongs to another agent, or nil if this
// cannot be known. The server writes the agent's id into its system message. Messages after the
// system message can contain other agent ids, for example if they come from an agent file.
func (p *Prompter) foreign(rollout *record.Rollout) func(head func(n int) []int32) bool {
	if p.model == nil || rollout.Agent == nil || rollout.Agent.ID == "" || !strings.Contains(rollout.SystemText, rollout.Agent.ID) {
		return nil
	}
	var text []byte
	own := []byte(rollout.Agent.ID)
	return func(head func(n int) []int32) bool {
		// The agent's own id is near the beginning, before any other id.
		for n := firstLook; ; n *= 4 {
			ids := head(n)
			tok := p.model.Tokenizer
			named := slices.DeleteFunc(slices.Clone(ids), func(id int32) bool { return int(id) >= tok.VocabSize() }) // ids outside the vocabulary have no text
			var err error
			text, err = tok.AppendText(text[:0], named, bpe.DecodeOptions{})
			switch agent := agentNamed.FindSubmatch(text); {
			case err != nil:
				return true // not a prompt of this model
			case agent != nil && !bytes.Equal(agent[1], own):
				return true
			case bytes.Contains(text, own):
				return false
			case len(ids) < n:
				return true
			}
		}
	}
}

// agentNamed matches the agent id in the form that the server writes into the system message
// (prompt_generator.py:71).
var agentNamed = regexp.MustCompile(`AGENT_ID: (agent-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})`)

// firstLook is the number of prompt tokens that foreign searches in its first round.
const firstLook = 1024

func noted(note, more string) string {
	if note == "" {
		return more
	}
	return note + "; " + more
}
