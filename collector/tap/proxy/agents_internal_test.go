package proxy

import (
	"net/http"
	"testing"
)

// TestAgentsOf checks the headers of each program, whose values are hashed.
func TestAgentsOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		header        []string
		agent, parent string
	}{
		{"none", nil, "", ""},
		{"Codex, main", []string{"session-id", "s", "thread-id", "m"}, "m", ""},
		{"Codex, subagent", []string{"session-id", "s", "thread-id", "a", "x-codex-parent-thread-id", "m", "x-openai-subagent", "collab_spawn"}, "a", "m"},
		{"Claude Code, main", []string{"x-claude-code-session-id", "s"}, "", ""},
		{"Claude Code, subagent", []string{"x-claude-code-agent-id", "a"}, "a", ""},
		{"Claude Code, nested", []string{"x-claude-code-agent-id", "b", "x-claude-code-parent-agent-id", "a"}, "b", "a"},
		{"opencode, main", []string{"x-session-id", "m", "x-session-affinity", "m"}, "m", ""},
		{"opencode, subagent", []string{"x-session-id", "a", "x-parent-session-id", "m"}, "a", "m"},
		{"only a parent", []string{"x-parent-session-id", "m"}, "", ""},
	} {
		h := http.Header{}
		for i := 0; i < len(c.header); i += 2 {
			h.Set(c.header[i], c.header[i+1])
		}
		agent, parent := agentsOf(h)
		if agent != hashOf(c.agent) || parent != hashOf(c.parent) {
			t.Errorf("%s: %q, %q, want the hashes of %q, %q", c.name, agent, parent, c.agent, c.parent)
		}
	}
	if got := hashOf("m"); len(got) != 16 || got == hashOf("a") {
		t.Errorf("hashOf(m) = %q, want 16 digits that differ from the hash of a", got)
	}
}
