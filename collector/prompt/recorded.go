package prompt

import (
	"errors"
	"regexp"
)

// If another program drove a server run, each prompt comes only from the trace of its own call. The
// run's messages do not contain the history before the run, and the server does not store the
// request itself. In two cases, a trace could show text that differs from the prompt but has the
// same length:
//
//	case                                     excluded by
//	the request overrode the system message  compiled
//	or added skills to it
//	a tool was edited later                  shownTools, which compares the tool's content
//	                                         with the current content
//
// The trace contains everything else in a prompt unchanged. The prompt rebuilt from the trace must
// have the length that the server counted.

// errToday means that the tools in a trace cannot be rendered as the model received them. A trace
// does not keep the order of a tool's members, so the original order must come from the agent.
var errToday = errors.New("a tool in the trace does not match the agent's tools: it was a client tool, or the agent was edited")

// compiled reports whether a trace shows the system message that the model received. The message
// must equal the agent's current system message, or end with the block that the server writes when
// it compiles a system message. If the request overrides the system message, the trace shows the
// override instead. If the request adds skills, the trace shows the skills after the block.
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
