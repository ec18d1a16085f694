package letta

import "strings"

// An AgentState is an agent on the server, with the members that this module uses. JSON has all.
//
// Source: the published AgentState schema; schemas/agent.py of the server.
type AgentState struct {
	JSON      RawJSON
	CreatedAt Time      `letta:"created_at,loose"`
	ID        string    `letta:"id"`
	Name      string    `letta:"name,loose"`
	ToolRules []RawJSON `letta:"tool_rules"`
	// MessageIDs is the context. The first is the system message.
	MessageIDs []string `letta:"message_ids"`
	// System is the system prompt without memory and metadata. The model saw MessageIDs[0].
	System    string `letta:"system"`
	AgentType string `letta:"agent_type"`
	// LLMConfig is the effective configuration. ModelSettings can differ from it.
	LLMConfig      LLMConfig `letta:"llm_config"`
	ResponseFormat RawJSON   `letta:"response_format"`
	Metadata       RawJSON   `letta:"metadata"`
	Blocks         []RawJSON `letta:"blocks"`
	// Tools are in random order: the server queries them without an order for every request, so a
	// prompt can have another order, and neither is the order of the create request. The list is
	// empty for a client without a User-Agent.
	Tools    []Tool   `letta:"tools"`
	Tags     []string `letta:"tags,loose"`
	Timezone string   `letta:"timezone"`
}

// CheckTurns returns why the agent will never answer with turns, or nil. The server does not
// report it: such an agent answers 200 with turns null.
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
		return &NoTurnsError{AgentID: a.ID, Model: c.Handle, Why: "llm_config.return_token_ids is not true: the model's provider is not of type sglang, or its models were not synced when the agent was created"}
	}
	if c.Handle == "" || !strings.HasPrefix(c.Handle, "sglang/") && !strings.Contains(strings.ToLower(c.ProviderName), "sglang") {
		return &NoTurnsError{AgentID: a.ID, Model: c.Handle, Why: "the model's handle does not begin with sglang/, and its provider's name does not contain sglang"}
	}
	return nil
}

// An LLMConfig is the effective configuration of an agent's model calls.
type LLMConfig struct {
	JSON RawJSON
	// Model is the engine's name of the model, without the provider.
	Model         string `letta:"model,loose"`
	ModelEndpoint string `letta:"model_endpoint,loose"`
	ProviderName  string `letta:"provider_name"`
	ContextWindow int64  `letta:"context_window,loose"`
	// If PutInnerThoughtsInKwargs, EnableReasoner and MaxReasoningTokens are all off, the server
	// deletes the text before tool calls from every later prompt.
	PutInnerThoughtsInKwargs *bool  `letta:"put_inner_thoughts_in_kwargs"`
	Handle                   string `letta:"handle"`
	EnableReasoner           *bool  `letta:"enable_reasoner"`
	MaxReasoningTokens       *int64 `letta:"max_reasoning_tokens"`
	Strict                   bool   `letta:"strict"`
	ReturnTokenIDs           bool   `letta:"return_token_ids"`
}
