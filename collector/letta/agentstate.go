package letta

import "strings"

// An AgentState is an agent on the server. Fields that this module does not parse are raw text.
//
// Source: the published AgentState schema; schemas/agent.py of the server.
type AgentState struct {
	JSON            RawJSON
	CreatedByID     string
	LastUpdatedByID string
	CreatedAt       Time
	UpdatedAt       Time
	ID              string
	Name            string
	ToolRules       []RawJSON
	// MessageIDs is the context. The first is the system message.
	MessageIDs []string
	// System is the system prompt without memory and metadata. The model saw MessageIDs[0].
	System    string
	AgentType string
	// LLMConfig is the effective configuration. ModelSettings can differ from it.
	LLMConfig          LLMConfig
	EmbeddingConfig    RawJSON
	Model              string
	Embedding          string
	ModelSettings      RawJSON
	CompactionSettings RawJSON
	ResponseFormat     RawJSON
	Description        string
	Metadata           RawJSON
	// Memory is deprecated in favor of Blocks.
	Memory RawJSON
	Blocks []RawJSON
	// Tools are in random order: the server queries them without an order for every request, so a
	// prompt can have another order, and neither is the requested one. The list is empty for a
	// client without a User-Agent.
	Tools []Tool
	// Sources is deprecated.
	Sources []RawJSON
	Tags    []string
	// ToolExecEnvironmentVariables is deprecated in favor of Secrets. Both can contain secrets of
	// the agent's tools: never print them.
	ToolExecEnvironmentVariables []RawJSON
	Secrets                      []RawJSON
	ProjectID                    string
	TemplateID                   string
	BaseTemplateID               string
	DeploymentID                 string
	EntityID                     string
	// IdentityIDs is deprecated in favor of Identities.
	IdentityIDs            []string
	Identities             []RawJSON
	PendingApproval        RawJSON
	MessageBufferAutoclear bool
	EnableSleeptime        bool
	// MultiAgentGroup is deprecated in favor of ManagedGroup.
	MultiAgentGroup            RawJSON
	ManagedGroup               RawJSON
	LastRunCompletion          Time
	LastRunDurationMS          *int64
	LastStopReason             StopReason
	Timezone                   string
	MaxFilesOpen               *int64
	PerFileViewWindowCharLimit *int64
	Hidden                     bool
}

func (a *AgentState) read(s *scanner) {
	from := s.start()
	for name := range s.members {
		switch name {
		case "created_by_id":
			s.orEmpty(&a.CreatedByID)
		case "last_updated_by_id":
			s.orEmpty(&a.LastUpdatedByID)
		case "created_at":
			orNoWord(s, &a.CreatedAt)
		case "updated_at":
			orNoWord(s, &a.UpdatedAt)
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
		case "embedding_config":
			a.EmbeddingConfig = s.raw()
		case "model":
			s.orEmpty(&a.Model)
		case "embedding":
			s.orEmpty(&a.Embedding)
		case "model_settings":
			a.ModelSettings = s.raw()
		case "compaction_settings":
			a.CompactionSettings = s.raw()
		case "response_format":
			a.ResponseFormat = s.raw()
		case "description":
			s.orEmpty(&a.Description)
		case "metadata":
			a.Metadata = s.raw()
		case "memory":
			a.Memory = s.raw()
		case "blocks":
			s.raws(&a.Blocks)
		case "tools":
			listOf(s, &a.Tools)
		case "sources":
			s.orNoRaws(&a.Sources)
		case "tags":
			s.strs(&a.Tags)
		case "tool_exec_environment_variables":
			s.orNoRaws(&a.ToolExecEnvironmentVariables)
		case "secrets":
			s.orNoRaws(&a.Secrets)
		case "project_id":
			s.orEmpty(&a.ProjectID)
		case "template_id":
			s.orEmpty(&a.TemplateID)
		case "base_template_id":
			s.orEmpty(&a.BaseTemplateID)
		case "deployment_id":
			s.orEmpty(&a.DeploymentID)
		case "entity_id":
			s.orEmpty(&a.EntityID)
		case "identity_ids":
			s.strs(&a.IdentityIDs)
		case "identities":
			s.orNoRaws(&a.Identities)
		case "pending_approval":
			a.PendingApproval = s.raw()
		case "message_buffer_autoclear":
			s.boolean(&a.MessageBufferAutoclear)
		case "enable_sleeptime":
			s.orFalse(&a.EnableSleeptime)
		case "multi_agent_group":
			a.MultiAgentGroup = s.raw()
		case "managed_group":
			a.ManagedGroup = s.raw()
		case "last_run_completion":
			orNoWord(s, &a.LastRunCompletion)
		case "last_run_duration_ms":
			s.orNoInteger(&a.LastRunDurationMS)
		case "last_stop_reason":
			orNoWord(s, &a.LastStopReason)
		case "timezone":
			s.needText(&a.Timezone)
		case "max_files_open":
			s.orNoInteger(&a.MaxFilesOpen)
		case "per_file_view_window_char_limit":
			s.orNoInteger(&a.PerFileViewWindowCharLimit)
		case "hidden":
			s.orFalse(&a.Hidden)
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
	Model             string
	DisplayName       string
	ModelEndpointType string
	ModelEndpoint     string
	ProviderName      string
	ProviderCategory  string
	ModelWrapper      string
	ContextWindow     int64
	// If PutInnerThoughtsInKwargs, EnableReasoner and MaxReasoningTokens are all off, the server
	// deletes the text before tool calls from every later prompt.
	PutInnerThoughtsInKwargs *bool
	Handle                   string
	Temperature              *float64
	MaxTokens                *int64
	EnableReasoner           *bool
	ReasoningEffort          string
	MaxReasoningTokens       *int64
	Effort                   string
	FrequencyPenalty         *float64
	CompatibilityType        string
	Verbosity                string
	Tier                     string
	ParallelToolCalls        bool
	ResponseFormat           RawJSON
	Strict                   bool
	ReturnLogprobs           bool
	TopLogprobs              *int64
	ReturnTokenIDs           bool
	ToolCallParser           string
}

func (c *LLMConfig) read(s *scanner) {
	from := s.start()
	for name := range s.members {
		switch name {
		case "model":
			s.orEmpty(&c.Model)
		case "display_name":
			s.orEmpty(&c.DisplayName)
		case "model_endpoint_type":
			s.orEmpty(&c.ModelEndpointType)
		case "model_endpoint":
			s.orEmpty(&c.ModelEndpoint)
		case "provider_name":
			s.needText(&c.ProviderName)
		case "provider_category":
			s.orEmpty(&c.ProviderCategory)
		case "model_wrapper":
			s.orEmpty(&c.ModelWrapper)
		case "context_window":
			s.orZero(&c.ContextWindow)
		case "put_inner_thoughts_in_kwargs":
			s.needBool(&c.PutInnerThoughtsInKwargs)
		case "handle":
			s.needText(&c.Handle)
		case "temperature":
			s.orNoFloat(&c.Temperature)
		case "max_tokens":
			s.orNoInteger(&c.MaxTokens)
		case "enable_reasoner":
			s.needBool(&c.EnableReasoner)
		case "reasoning_effort":
			s.orEmpty(&c.ReasoningEffort)
		case "max_reasoning_tokens":
			s.needInteger(&c.MaxReasoningTokens)
		case "effort":
			s.orEmpty(&c.Effort)
		case "frequency_penalty":
			s.orNoFloat(&c.FrequencyPenalty)
		case "compatibility_type":
			s.orEmpty(&c.CompatibilityType)
		case "verbosity":
			s.orEmpty(&c.Verbosity)
		case "tier":
			s.orEmpty(&c.Tier)
		case "parallel_tool_calls":
			s.needFalse(&c.ParallelToolCalls)
		case "response_format":
			c.ResponseFormat = s.raw()
		case "strict":
			s.needFalse(&c.Strict)
		case "return_logprobs":
			s.orFalse(&c.ReturnLogprobs)
		case "top_logprobs":
			s.orNoInteger(&c.TopLogprobs)
		case "return_token_ids":
			s.needFalse(&c.ReturnTokenIDs)
		case "tool_call_parser":
			s.orEmpty(&c.ToolCallParser)
		}
	}
	c.JSON = s.since(from)
}
