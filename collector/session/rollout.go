package session

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/rollout-rl/rollout/tokenize"
)

// rollout returns the result of Build.
func (b *builder) rollout() *Rollout {
	out := &Rollout{Failed: len(b.requests) - len(b.calls), Main: Main{Call: -1}}
	add := func(c *call, reason tokenize.Reason) {
		c.place = len(out.Calls)
		out.Calls = append(out.Calls, b.tokens(c, reason))
		out.Number = append(out.Number, c.Number)
		out.Tally.add(reason, len(c.Output))
	}
	for _, x := range b.chains {
		for _, c := range x.calls {
			if c.reason = b.reasonFor(c); c.reason == tokenize.ReasonNone {
				add(c, c.reason)
			}
		}
	}
	for _, c := range b.calls {
		if c.reason != tokenize.ReasonNone {
			add(c, c.reason)
		}
	}
	for _, x := range b.chains {
		y := Chain{Kind: x.kind, From: -1, Parent: -1}
		if x.start != nil {
			y.Parent = x.start.place
		}
		if x.from != nil {
			y.From = x.from.place
		}
		for _, c := range x.calls {
			y.Calls = append(y.Calls, c.place)
		}
		out.Chains = append(out.Chains, y)
	}
	if last := b.chains[0].last; last != nil {
		out.Main = Main{Call: last.place, Text: last.answer.text, Finish: last.Finish, Model: b.modelOf(last.Call), Messages: b.conversation(last)}
	}
	return out
}

// reasonFor returns the reason why a call is left out, or ReasonNone.
func (b *builder) reasonFor(c *call) tokenize.Reason {
	switch {
	case c.chain.kind == tokenize.ChainAuxiliary && (!b.cfg.TrainAuxiliary || c.chain.other):
		return tokenize.ReasonAuxiliary
	case len(c.Logprobs) != len(c.Output), c.Unread == UnreadExperts, c.Unread == UnreadMask:
		return tokenize.ReasonLengthMismatch
	case !c.Cut && !counted(c.Call):
		return tokenize.ReasonNoIDs
	}
	return c.fate
}

// counted reports whether the ids of a complete answer are usable: the numbers of ids are the
// engine's counts.
func counted(c *Call) bool {
	return c.Unread == "" && len(c.Prompt) > 0 && len(c.Prompt) == int(c.PromptTokens) && len(c.Output) == int(c.OutputTokens)
}

// tokens returns the call in the form that the aligner needs.
func (b *builder) tokens(c *call, reason tokenize.Reason) tokenize.Call {
	t := tokenize.Call{
		OutputIDs: c.Output, Logprobs: c.Logprobs, Chain: c.chain.number, ChainKind: c.chain.kind, Parent: c.chain.parent(),
		After: tokenize.RoleUser, StepID: strconv.Itoa(c.Number),
	}
	for p := c.lastReply + 1; p < len(c.Messages); p++ {
		if b.message(c.Messages[p]).role == "tool" {
			t.After = tokenize.RoleTool
		}
	}
	c.CopyTo(&t)
	if c.Spliced {
		t.Flags |= tokenize.FlagSpliced
	}
	if reason != tokenize.ReasonNone {
		t.Grade, t.Reason, t.Note = tokenize.Quarantined, reason, c.note(reason)
	}
	return t
}

// note explains why the call is left out.
func (c *call) note(reason tokenize.Reason) string {
	why := ""
	switch {
	case reason == tokenize.ReasonAuxiliary && c.chain.other:
		why = "comes from another model than the answers of the main conversation"
	case reason == tokenize.ReasonAuxiliary:
		why = "belongs to an auxiliary conversation"
	case c.Unread == UnreadExperts:
		why = fmt.Sprintf("does not have routed experts for %d tokens in the shape of output.routed_experts", len(c.Prompt)+len(c.Output)-1)
	case c.Unread == UnreadMask:
		why = fmt.Sprintf("has sampling masks that do not belong to its %d sampled tokens", len(c.Output))
	case reason == tokenize.ReasonLengthMismatch:
		why = fmt.Sprintf("has %d ids, but %d log-probabilities", len(c.Output), len(c.Logprobs))
	case reason == tokenize.ReasonNoIDs && c.Unread != "":
		why = "has no usable ids: " + c.Unread
	case reason == tokenize.ReasonNoIDs:
		why = fmt.Sprintf("has %d+%d ids, but the engine counted %d+%d", len(c.Prompt), len(c.Output), c.PromptTokens, c.OutputTokens)
	case c.repeat != nil:
		why = fmt.Sprintf("was not read, and request %d repeats it", c.repeat.Number)
	case c.changed != nil:
		why = fmt.Sprintf("is not in request %d, which continues the conversation", c.changed.Number)
	default:
		why = "is incomplete or was not delivered, and no later prompt contains it"
	}
	return fmt.Sprintf("session: the answer to request %d %s", c.Number, why)
}

// conversation returns the messages of the request and the answer as a JSON array, or nil if one of
// them is not JSON.
func (b *builder) conversation(c *call) json.RawMessage {
	all := make([][]byte, 0, len(c.Messages)+1)
	for _, i := range c.Messages {
		all = append(all, b.record.Texts[i])
	}
	if c.Answer != nil {
		all = append(all, c.Answer)
	}
	array := slices.Concat([]byte{'['}, bytes.Join(all, []byte{','}), []byte{']'})
	if !json.Valid(array) {
		return nil
	}
	return array
}

func (t *Tally) add(reason tokenize.Reason, tokens int) {
	t.Sampled += tokens
	switch reason {
	case tokenize.ReasonNone:
		t.Trained += tokens
	case tokenize.ReasonAuxiliary:
		t.Auxiliary += tokens
	case tokenize.ReasonSuperseded:
		t.Superseded += tokens
	case tokenize.ReasonCutAnswer:
		t.Cut += tokens
	default:
		t.Quarantined += tokens
	}
}
