package letta

import (
	"encoding/json"
	"strings"
)

// An AgentState is an agent as the server describes it. Fields whose own schema
// matters to nobody here are kept as raw text.
//
// Source: the published AgentState schema; schemas/agent.py of the server.
type AgentState struct {
	CreatedByID     *string           `json:"created_by_id"`
	LastUpdatedByID *string           `json:"last_updated_by_id"`
	CreatedAt       *Time             `json:"created_at"`
	UpdatedAt       *Time             `json:"updated_at"`
	ID              string            `json:"id"`
	Name            string            `json:"name"`
	ToolRules       []json.RawMessage `json:"tool_rules"`
	// MessageIDs is the context; the first is the system message.
	MessageIDs []string `json:"message_ids"`
	// System is the system prompt without memory and metadata: not what the model
	// saw, which is the text of message MessageIDs[0].
	System    string `json:"system"`
	AgentType string `json:"agent_type"`
	// LLMConfig is what is in force; ModelSettings is no guide to it.
	LLMConfig          LLMConfig       `json:"llm_config"`
	EmbeddingConfig    json.RawMessage `json:"embedding_config"`
	Model              *string         `json:"model"`
	Embedding          *string         `json:"embedding"`
	ModelSettings      json.RawMessage `json:"model_settings"`
	CompactionSettings json.RawMessage `json:"compaction_settings"`
	ResponseFormat     json.RawMessage `json:"response_format"`
	Description        *string         `json:"description"`
	Metadata           json.RawMessage `json:"metadata"`
	// Memory is deprecated in favour of Blocks.
	Memory json.RawMessage   `json:"memory"`
	Blocks []json.RawMessage `json:"blocks"`
	// Tools are in no order: the server reads them without one, anew for every request,
	// so that a prompt may have them in another. Neither is it the order asked for.
	// The list is empty for a client without a User-Agent.
	Tools []Tool `json:"tools"`
	// Sources is deprecated.
	Sources []json.RawMessage `json:"sources"`
	Tags    []string          `json:"tags"`
	// ToolExecEnvironmentVariables is deprecated in favour of Secrets. Both may hold
	// secrets of the agent's tools: never print them.
	ToolExecEnvironmentVariables []json.RawMessage `json:"tool_exec_environment_variables"`
	Secrets                      []json.RawMessage `json:"secrets"`
	ProjectID                    *string           `json:"project_id"`
	TemplateID                   *string           `json:"template_id"`
	BaseTemplateID               *string           `json:"base_template_id"`
	DeploymentID                 *string           `json:"deployment_id"`
	EntityID                     *string           `json:"entity_id"`
	// IdentityIDs is deprecated in favour of Identities.
	IdentityIDs            []string                `json:"identity_ids"`
	Identities             []json.RawMessage       `json:"identities"`
	PendingApproval        *ApprovalRequestMessage `json:"pending_approval"`
	MessageBufferAutoclear bool                    `json:"message_buffer_autoclear"`
	EnableSleeptime        *bool                   `json:"enable_sleeptime"`
	// MultiAgentGroup is deprecated in favour of ManagedGroup.
	MultiAgentGroup            json.RawMessage `json:"multi_agent_group"`
	ManagedGroup               json.RawMessage `json:"managed_group"`
	LastRunCompletion          *Time           `json:"last_run_completion"`
	LastRunDurationMS          *int64          `json:"last_run_duration_ms"`
	LastStopReason             *StopReason     `json:"last_stop_reason"`
	Timezone                   *string         `json:"timezone"`
	MaxFilesOpen               *int            `json:"max_files_open"`
	PerFileViewWindowCharLimit *int            `json:"per_file_view_window_char_limit"`
	Hidden                     *bool           `json:"hidden"`

	Extra Extra `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (a *AgentState) UnmarshalJSON(b []byte) error {
	type plain AgentState
	return unmarshalKeeping(b, (*plain)(a), &a.Extra)
}

// MarshalJSON writes unknown fields as well.
func (a AgentState) MarshalJSON() ([]byte, error) {
	type plain AgentState
	return marshalKeeping(plain(a), a.Extra)
}

// CheckTurns says why the agent will never answer with turns, or nil. The server
// itself says nothing: such an agent answers 200 with turns null.
//
// Source: agents/agent_loop.py:20 (kinds of agents), letta_agent_v3.py:292-297.
func (a *AgentState) CheckTurns() error {
	switch a.AgentType {
	case "letta_v1_agent", "sleeptime_agent":
	default:
		return &NoTurnsError{AgentID: a.ID, Why: "its type is " + quote(a.AgentType) + "; only letta_v1_agent gives token data"}
	}
	c := &a.LLMConfig
	if c.ReturnTokenIDs == nil || !*c.ReturnTokenIDs {
		return &NoTurnsError{AgentID: a.ID, Model: c.HandleText(), Why: "llm_config.return_token_ids is not true: the model's provider is not of type sglang, or its models were not synced when the agent was made"}
	}
	if c.HandleText() == "" || !strings.HasPrefix(c.HandleText(), "sglang/") && !strings.Contains(strings.ToLower(deref(c.ProviderName)), "sglang") {
		return &NoTurnsError{AgentID: a.ID, Model: c.HandleText(), Why: "neither does the model's handle begin with sglang/ nor does the name of its provider contain sglang"}
	}
	return nil
}

// An LLMConfig is what is in force for the calls of an agent.
type LLMConfig struct {
	// Model is the engine's own name of the model, without the provider.
	Model             string  `json:"model"`
	DisplayName       *string `json:"display_name"`
	ModelEndpointType string  `json:"model_endpoint_type"`
	ModelEndpoint     *string `json:"model_endpoint"`
	ProviderName      *string `json:"provider_name"`
	ProviderCategory  *string `json:"provider_category"`
	ModelWrapper      *string `json:"model_wrapper"`
	ContextWindow     int64   `json:"context_window"`
	// PutInnerThoughtsInKwargs, EnableReasoner and MaxReasoningTokens all off make
	// the server delete the text before tool calls from every later prompt.
	PutInnerThoughtsInKwargs *bool           `json:"put_inner_thoughts_in_kwargs"`
	Handle                   *string         `json:"handle"`
	Temperature              *float64        `json:"temperature"`
	MaxTokens                *int64          `json:"max_tokens"`
	EnableReasoner           *bool           `json:"enable_reasoner"`
	ReasoningEffort          *string         `json:"reasoning_effort"`
	MaxReasoningTokens       *int64          `json:"max_reasoning_tokens"`
	Effort                   *string         `json:"effort"`
	FrequencyPenalty         *float64        `json:"frequency_penalty"`
	CompatibilityType        *string         `json:"compatibility_type"`
	Verbosity                *string         `json:"verbosity"`
	Tier                     *string         `json:"tier"`
	ParallelToolCalls        *bool           `json:"parallel_tool_calls"`
	ResponseFormat           json.RawMessage `json:"response_format"`
	Strict                   *bool           `json:"strict"`
	ReturnLogprobs           *bool           `json:"return_logprobs"`
	TopLogprobs              *int            `json:"top_logprobs"`
	ReturnTokenIDs           *bool           `json:"return_token_ids"`
	ToolCallParser           *string         `json:"tool_call_parser"`

	Extra Extra `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (c *LLMConfig) UnmarshalJSON(b []byte) error {
	type plain LLMConfig
	return unmarshalKeeping(b, (*plain)(c), &c.Extra)
}

// MarshalJSON writes unknown fields as well.
func (c LLMConfig) MarshalJSON() ([]byte, error) {
	type plain LLMConfig
	return marshalKeeping(plain(c), c.Extra)
}

// HandleText is the handle of the model, or empty.
func (c *LLMConfig) HandleText() string { return deref(c.Handle) }

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
