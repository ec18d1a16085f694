package proxy

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
)

// agentHeaders contains the headers that name the agent that sends a request, and the agent that
// started it. The rows are for Codex, Claude Code and opencode. The main agent of Claude Code has no
// name.
var agentHeaders = [...][2]string{
	{"Thread-Id", "X-Codex-Parent-Thread-Id"},
	{"X-Claude-Code-Agent-Id", "X-Claude-Code-Parent-Agent-Id"},
	{"X-Session-Id", "X-Parent-Session-Id"},
}

// agentsOf returns session.Call.Agent and session.Call.ParentAgent. They are only hints.
func agentsOf(h http.Header) (agent, parent string) {
	for _, names := range agentHeaders {
		if agent = hashOf(h.Get(names[0])); agent != "" {
			return agent, hashOf(h.Get(names[1]))
		}
	}
	return "", ""
}

// hashOf returns a short hash of a header. A header can contain a secret, so the session must not
// contain the header itself.
func hashOf(value string) string {
	if value == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:8])
}
