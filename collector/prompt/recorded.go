package prompt

import (
	"context"
	"errors"
	"regexp"

	"github.com/rollout-rl/rollout/tokenize"
)

// The prompts of a server run that another program drove come from traces alone: from each
// call's own, because what was said before the run is in no message of it, and what its
// request asked for is not stored. Two things could make a trace show another text of the
// same length:
//
//	what                                     excluded by
//	the request overrode the system message  compiled
//	or added skills to it
//	a tool was edited since                  shownTools: its content is compared with today's
//
// All else that a prompt is made of is in the trace as it was given, and has the length
// that the server counted.

// errToday is why the tools of a trace cannot be printed as the model was given them: a trace
// lists the members of a tool in an order of its own.
var errToday = errors.New("its trace shows a tool that the agent does not have today with the same content: it was the client's, or the agent was edited")

// fromOwn takes the prompt of each call of the send from its own trace.
func (b *rebuild) fromOwn(ctx context.Context, s *send) error {
	for k := range s.calls {
		if b.calls[s.first+k].Grade != tokenize.Quarantined {
			continue
		}
		own, err := b.trace(ctx, s, k)
		if err != nil {
			return err
		}
		switch {
		case own == nil:
		case !b.compiled(own):
			b.note(s.first+k, "trace of step %s: its system message is not the agent's, nor one that the server compiled: "+
				"the request overrode it, or the agent was edited since", s.steps[k].ID)
		default:
			_, _ = b.try(s, k, own.input(), tokenize.SourceTrace) // the note has the error
		}
	}
	return nil
}

// compiled reports whether the system message that a trace shows is the one that the model was
// given: it is the agent's own today, or ends with the block that the server writes when it
// compiles one. An override is shown as the request had it, and skills of a request stand
// behind the block.
//
// Source: agents/letta_agent_v2.py:795-811 (generate_request_system_prompt),
// prompts/prompt_generator.py:26-89.
func (b *rebuild) compiled(own *traced) bool {
	if len(own.messages) == 0 || own.messages[0].role != roleSystem {
		return false
	}
	text := own.messages[0].content
	return text != "" && text == b.transcript.system || compiledBlock.MatchString(text)
}

var compiledBlock = regexp.MustCompile(`<memory_metadata>\n- AGENT_ID: agent-[0-9a-f-]+\n- CONVERSATION_ID: [^\n]+\n- System prompt last recompiled: [^\n]+\n` +
	`- [0-9]+ previous messages between you and the user are stored in recall memory\n(?:- [^\n]+\n)*</memory_metadata>\s*$`)
