package letta

import "strings"

// An AgentState is the state of an agent on the server. JSON contains all members. The other fields
// contain the members that this module uses.
//
// Source: the published AgentState schema; schemas/agent.py of the server.
type AgentState struct {
	JSON      RawJSON
	CreatedAt Time      `letta:"created_at,loose"`
	ID        string    `letta:"id"`
	Name      string    `letta:"name,loose"`
	ToolRules []RawJSON `letta:"tool_rules"`
	// MessageIDs are the ids of the messages in the context. The first id is the id of the system
	// message.
	MessageIDs []string `letta:"message_ids"`
	// System is the system prompt without memory and metadata. The model saw the system message in
	// the context instead.
	System    string `letta:"system"`
	AgentType string `letta:"agent_type"`
	// LLMConfig is the effective configuration. ModelSettings can differ from it.
	LLMConfig      LLMConfig `letta:"llm_config"`
	ResponseFormat RawJSON   `letta:"response_format"`
	Metadata       RawJSON   `letta:"metadata"`
	Blocks         []RawJSON `letta:"blocks"`
	// Tools contains the agent's tools in arbitrary order, because the server's database query
	// specifies no order. The order can differ from the order in a prompt and from the order in the
	// create request. The list is empty if the client sends no User-Agent.
	Tools    []Tool   `letta:"tools"`
	Tags     []string `letta:"tags,loose"`
	Timezone string   `letta:"timezone"`
}

// CheckTurns returns an error if the agent will never answer with turns. The server itself reports
// no error. It answers a send to such an agent with status 200 and turns set to null.
//
// Source: agents/agent_loop.py:20 (kinds of agents), letta_agent_v3.py:292-297.
func (a *AgentState) CheckTurns() error {
	switch a.AgentType {
	case "letta_v1_agent", "sleeptime_agent":
	default:
		return &NoTurnsError{AgentID: a.ID, Why: "its type is " + quote(a.AgentType) + "; only letta_v1_agent and sleeptime_agent return token data"}
	}
	c := &a.LLMConfig
	if !c.ReturnTokenIDs {
		return &NoTurnsError{AgentID: a.ID, Model: c.Handle, Why: "llm_config.return_token_ids is not true (the model's provider is not of type sglang, or its models were not synced when the agent was created)"}
	}
	if c.Handle == "" || !strings.HasPrefix(c.Handle, "sglang/") && !strings.Contains(strings.ToLower(c.ProviderName), "sglang") {
		return &NoTurnsError{AgentID: a.ID, Model: c.Handle, Why: "the model's handle does not begin with sglang/, and its provider's name does not contain sglang"}
	}
	return nil
}

// An LLMConfig is the effective configuration of an agent's model calls.
type LLMConfig struct {
	JSON RawJSON
	// Model is the engine's name for the model, without the provider.
	Model         string `letta:"model,loose"`
	ModelEndpoint string `letta:"model_endpoint,loose"`
	ProviderName  string `letta:"provider_name"`
	ContextWindow int64  `letta:"context_window,loose"`
	// If PutInnerThoughtsInKwargs and EnableReasoner are false and MaxReasoningTokens is 0, the
	// server deletes the text before tool calls from every later prompt.
	PutInnerThoughtsInKwargs *bool  `letta:"put_inner_thoughts_in_kwargs"`
	Handle                   string `letta:"handle"`
	EnableReasoner           *bool  `letta:"enable_reasoner"`
	MaxReasoningTokens       *int64 `letta:"max_reasoning_tokens"`
	Strict                   bool   `letta:"strict"`
	ReturnTokenIDs           bool   `letta:"return_token_ids"`
}
