package letta

import "strings"

// An AgentState is an agent on the server, with the members that this module uses. JSON has all.
//
// Source: the published AgentState schema; schemas/agent.py of the server.
type AgentState struct {
	JSON      RawJSON
	CreatedAt Time
	ID        string
	Name      string
	ToolRules []RawJSON
	// MessageIDs is the context. The first is the system message.
	MessageIDs []string
	// System is the system prompt without memory and metadata. The model saw MessageIDs[0].
	System    string
	AgentType string
	// LLMConfig is the effective configuration. ModelSettings can differ from it.
	LLMConfig      LLMConfig
	ResponseFormat RawJSON
	Metadata       RawJSON
	Blocks         []RawJSON
	// Tools are in random order: the server queries them without an order for every request, so a
	// prompt can have another order, and neither is the requested one. The list is empty for a
	// client without a User-Agent.
	Tools    []Tool
	Tags     []string
	Timezone string
}

func (a *AgentState) read(s *scanner) {
	from := s.start()
	for name := range s.members {
		switch name {
		case "created_at":
			orNoWord(s, &a.CreatedAt)
		case "id":
			s.str(&a.ID)
		case "name":
			s.orEmpty(&a.Name)
		case "tool_rules":
			s.raws(&a.ToolRules)
		case "message_ids":
			s.needTexts(&a.MessageIDs)
		case "system":
			s.str(&a.System)
		case "agent_type":
			s.str(&a.AgentType)
		case "llm_config":
			a.LLMConfig.read(s)
		case "response_format":
			a.ResponseFormat = s.raw()
		case "metadata":
			a.Metadata = s.raw()
		case "blocks":
			s.raws(&a.Blocks)
		case "tools":
			listOf(s, &a.Tools)
		case "tags":
			s.strs(&a.Tags)
		case "timezone":
			s.needText(&a.Timezone)
		}
	}
	a.JSON = s.since(from)
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
	Model         string
	ModelEndpoint string
	ProviderName  string
	ContextWindow int64
	// If PutInnerThoughtsInKwargs, EnableReasoner and MaxReasoningTokens are all off, the server
	// deletes the text before tool calls from every later prompt.
	PutInnerThoughtsInKwargs *bool
	Handle                   string
	EnableReasoner           *bool
	ReasoningEffort          string
	MaxReasoningTokens       *int64
	Strict                   bool
	ReturnTokenIDs           bool
}

func (c *LLMConfig) read(s *scanner) {
	from := s.start()
	for name := range s.members {
		switch name {
		case "model":
			s.orEmpty(&c.Model)
		case "model_endpoint":
			s.orEmpty(&c.ModelEndpoint)
		case "provider_name":
			s.needText(&c.ProviderName)
		case "context_window":
			s.orZero(&c.ContextWindow)
		case "put_inner_thoughts_in_kwargs":
			s.needBool(&c.PutInnerThoughtsInKwargs)
		case "handle":
			s.needText(&c.Handle)
		case "enable_reasoner":
			s.needBool(&c.EnableReasoner)
		case "reasoning_effort":
			s.orEmpty(&c.ReasoningEffort)
		case "max_reasoning_tokens":
			s.needInteger(&c.MaxReasoningTokens)
		case "strict":
			s.needFalse(&c.Strict)
		case "return_token_ids":
			s.needFalse(&c.ReturnTokenIDs)
		}
	}
	c.JSON = s.since(from)
}
