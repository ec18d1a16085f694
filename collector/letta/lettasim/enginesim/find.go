package enginesim

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// A conversation is a position in a script, as found in the prompt of a call.
type conversation struct {
	Script string            // name of the script; empty if there is no marker
	Params map[string]string // the parameters in the marker, such as seed=7
	Step   int               // number of calls since the marker, from 0
	Agent  string            // AGENT_ID and CONVERSATION_ID from the system message, or empty
	Prompt uint64            // result of PromptSeed for the prompt
}

// int returns a parameter in the marker as a number, or the value other if the parameter is not a
// number.
func (c *conversation) int(name string, other int) int {
	if n, err := strconv.Atoi(c.Params[name]); err == nil {
		return n
	}
	return other
}

var (
	marker         = regexp.MustCompile(`\[script:([A-Za-z0-9_.-]+)((?: [a-z_]+(?:=[A-Za-z0-9_.-]+)?)*)\]`)
	markerParam    = regexp.MustCompile(` ([a-z_]+)(?:=([A-Za-z0-9_.-]+))?`)
	agentID        = regexp.MustCompile(`AGENT_ID: (agent-[0-9a-f-]+)`)
	conversationID = regexp.MustCompile(`CONVERSATION_ID: ([A-Za-z0-9-]+)`)
)

// find determines the conversation from the text of a prompt. The parameter result is a string that
// occurs once in each tool result.
func find(text, result string) conversation {
	var c conversation
	if m := agentID.FindStringSubmatch(text); m != nil {
		c.Agent = m[1]
		if m := conversationID.FindStringSubmatch(text); m != nil {
			c.Agent += " " + m[1]
		}
	}
	at := marker.FindAllStringSubmatchIndex(text, -1)
	if len(at) == 0 {
		return c
	}
	last := at[len(at)-1]
	c.Script = text[last[2]:last[3]]
	c.Params = params(text[last[4]:last[5]])
	c.Step = strings.Count(text[last[1]:], result)
	return c
}

// A memory contains the latest conversation of each agent.
type memory struct {
	mu   sync.Mutex
	last map[string]conversation // keyed by agent
}

// complete records the conversation as the latest one of its agent. If the conversation has no
// marker, complete first treats it as a continuation of the agent's last conversation.
func (m *memory) complete(c *conversation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.Agent == "" {
		return
	}
	if last, ok := m.last[c.Agent]; c.Script == "" && ok {
		if last.Prompt != c.Prompt { // a repeated prompt counts as the same call
			last.Step++
		}
		c.Script, c.Params, c.Step = last.Script, last.Params, last.Step
	}
	if c.Script != "" {
		m.last[c.Agent] = *c
	}
}
