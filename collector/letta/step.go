package letta

import "encoding/json"

// A Step is one call of the model, as the Steps API describes it.
// CompletionTokens equals the length of the turn's output_ids and PromptTokens
// that of the prompt, for every successful step.
//
// Source: the published Steps API; schemas/step.py of the server.
type Step struct {
	ID             string  `json:"id"`
	Origin         *string `json:"origin"`
	OrganizationID *string `json:"organization_id"`
	ProviderID     *string `json:"provider_id"`
	RunID          *string `json:"run_id"`
	AgentID        *string `json:"agent_id"`
	// ProviderName is the kind of the endpoint (openai), not the provider's name.
	ProviderName            *string         `json:"provider_name"`
	ProviderCategory        *string         `json:"provider_category"`
	Model                   *string         `json:"model"`
	ModelHandle             *string         `json:"model_handle"`
	ModelEndpoint           *string         `json:"model_endpoint"`
	ContextWindowLimit      *int64          `json:"context_window_limit"`
	PromptTokens            *int64          `json:"prompt_tokens"`
	CompletionTokens        *int64          `json:"completion_tokens"`
	TotalTokens             *int64          `json:"total_tokens"`
	CachedInputTokens       *int64          `json:"cached_input_tokens"`
	CacheWriteTokens        *int64          `json:"cache_write_tokens"`
	ReasoningTokens         *int64          `json:"reasoning_tokens"`
	CompletionTokensDetails json.RawMessage `json:"completion_tokens_details"`
	PromptTokensDetails     json.RawMessage `json:"prompt_tokens_details"`
	// StopReason is null on all steps but the last, and there too after max_steps.
	StopReason *StopReason `json:"stop_reason"`
	Tags       []string    `json:"tags"`
	TID        *string     `json:"tid"`
	TraceID    *string     `json:"trace_id"`
	// RequestID is the x-api-request-log-id of the request.
	RequestID *string `json:"request_id"`
	// Messages is deprecated and empty; ask for the step's messages.
	Messages  []InternalMessage `json:"messages"`
	Feedback  *string           `json:"feedback"` // positive, negative
	ProjectID *string           `json:"project_id"`
	ErrorType *string           `json:"error_type"`
	ErrorData *StepError        `json:"error_data"`
	Status    *string           `json:"status"` // pending, success, failed, cancelled
	Extra     Extra             `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (s *Step) UnmarshalJSON(b []byte) error {
	type plain Step
	return unmarshalKeeping(b, (*plain)(s), &s.Extra)
}

// MarshalJSON writes unknown fields as well.
func (s Step) MarshalJSON() ([]byte, error) {
	type plain Step
	return marshalKeeping(plain(s), s.Extra)
}

// A StepError is why a step failed. The traceback shows the server's own code and
// paths: for people, never for rows.
type StepError struct {
	Message   *string         `json:"message"`
	Traceback *string         `json:"traceback"`
	Details   json.RawMessage `json:"details"`
	Extra     Extra           `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (e *StepError) UnmarshalJSON(b []byte) error {
	type plain StepError
	return unmarshalKeeping(b, (*plain)(e), &e.Extra)
}

// MarshalJSON writes unknown fields as well.
func (e StepError) MarshalJSON() ([]byte, error) {
	type plain StepError
	return marshalKeeping(plain(e), e.Extra)
}

// StepMetrics are the times of a step. Server 0.16.7 leaves all of them null.
type StepMetrics struct {
	ID                   string  `json:"id"`
	OrganizationID       *string `json:"organization_id"`
	ProviderID           *string `json:"provider_id"`
	RunID                *string `json:"run_id"`
	AgentID              *string `json:"agent_id"`
	StepStartNanos       *int64  `json:"step_start_ns"`
	LLMRequestStartNanos *int64  `json:"llm_request_start_ns"`
	LLMRequestNanos      *int64  `json:"llm_request_ns"`
	ToolExecutionNanos   *int64  `json:"tool_execution_ns"`
	StepNanos            *int64  `json:"step_ns"`
	BaseTemplateID       *string `json:"base_template_id"`
	TemplateID           *string `json:"template_id"`
	ProjectID            *string `json:"project_id"`
	Extra                Extra   `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (m *StepMetrics) UnmarshalJSON(b []byte) error {
	type plain StepMetrics
	return unmarshalKeeping(b, (*plain)(m), &m.Extra)
}

// MarshalJSON writes unknown fields as well.
func (m StepMetrics) MarshalJSON() ([]byte, error) {
	type plain StepMetrics
	return marshalKeeping(plain(m), m.Extra)
}

// A Feedback is what a person thinks of a step. A nil word takes it back.
type Feedback struct {
	Feedback *string  `json:"feedback"` // positive, negative
	Tags     []string `json:"tags,omitempty"`
}
