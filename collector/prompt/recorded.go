package prompt

import (
	"errors"
	"regexp"
)

// The prompts of a server run that another program drove come only from the trace of each call. No
// message of the run contains the history before it, and the request itself is not stored. Two
// things could make a trace show another text of the same length:
//
//	what                                     excluded by
//	the request overrode the system message  compiled
//	or added skills to it
//	a tool was edited later                  shownTools: compares its content with the current one
//
// The trace contains everything else in a prompt unchanged, and has the length that the server
// counted.

// errToday explains why the tools of a trace cannot be printed as the model received them. A trace
// lists the members of a tool in an order of its own.
var errToday = errors.New("the trace has a tool that the agent no longer has in this form: it was a client tool, or the agent was edited")

// compiled reports whether the model received the system message that a trace shows. That message
// must be the agent's current system message, or end with the block that the server writes when it
// compiles a system message. The trace shows an override instead of the compiled text, and the
// skills of a request after the block.
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
