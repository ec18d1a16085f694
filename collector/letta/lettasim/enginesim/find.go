package enginesim

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// A conversation is a position in a script, as the prompt of a call shows it.
type conversation struct {
	Script string            // name of the script; empty: no marker
	Params map[string]string // parameters of the marker, such as seed=7
	Step   int               // number of calls since the marker, from 0
	Agent  string            // AGENT_ID and CONVERSATION_ID of the system message, or empty
	Prompt uint64            // PromptSeed of the prompt
}

// int returns a parameter of the marker as a number, or other if it is not one.
func (c *conversation) int(name string, other int) int {
	if n, err := strconv.Atoi(c.Params[name]); err == nil {
		return n
	}
	return other
}

var (
	marker         = regexp.MustCompile(`\[script:([A-Za-z0-9_.-]+)((?: [a-z_]+=[A-Za-z0-9_.-]+)*)\]`)
	agentID        = regexp.MustCompile(`AGENT_ID: (agent-[0-9a-f-]+)`)
	conversationID = regexp.MustCompile(`CONVERSATION_ID: ([A-Za-z0-9-]+)`)
)

// find parses the conversation from the text of a prompt. result is a text that each tool result
// contains once.
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
	c.Params = map[string]string{}
	for param := range strings.FieldsSeq(text[last[4]:last[5]]) {
		name, value, _ := strings.Cut(param, "=")
		c.Params[name] = value
	}
	c.Step = strings.Count(text[last[1]:], result)
	return c
}

// A memory holds the latest conversation of each agent.
type memory struct {
	mu   sync.Mutex
	last map[string]conversation // by agent
}

// complete completes a conversation without a marker from the last conversation of its agent, and
// remembers it.
func (m *memory) complete(c *conversation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.Agent == "" {
		return
	}
	if last, ok := m.last[c.Agent]; c.Script == "" && ok {
		if last.Prompt != c.Prompt { // a repeated prompt is the same call
			last.Step++
		}
		c.Script, c.Params, c.Step = last.Script, last.Params, last.Step
	}
	if c.Script != "" {
		m.last[c.Agent] = *c
	}
}
