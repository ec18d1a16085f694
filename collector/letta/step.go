package letta

// A Step is one model call in the Steps API. For every successful step, CompletionTokens is the
// length of the turn's output_ids, and PromptTokens the length of the prompt.
//
// Source: the published Steps API; schemas/step.py of the server.
type Step struct {
	JSON           RawJSON
	ID             string
	Origin         string
	OrganizationID string
	ProviderID     string
	RunID          string
	AgentID        string
	// ProviderName is the endpoint type (openai), not the provider's name.
	ProviderName            string
	ProviderCategory        string
	Model                   string
	ModelHandle             string
	ModelEndpoint           string
	ContextWindowLimit      *int64
	PromptTokens            *int64
	CompletionTokens        *int64
	TotalTokens             *int64
	CachedInputTokens       *int64
	CacheWriteTokens        *int64
	ReasoningTokens         *int64
	CompletionTokensDetails RawJSON
	PromptTokensDetails     RawJSON
	// StopReason is null on all steps except the last, and there too after max_steps.
	StopReason StopReason
	Tags       []string
	TID        string
	TraceID    string
	// RequestID is the x-api-request-log-id of the request.
	RequestID string
	// Messages is deprecated and empty; use StepMessages.
	Messages  []RawJSON
	Feedback  string // positive, negative
	ProjectID string
	ErrorType string
	ErrorData *StepError
	Status    string // pending, success, failed, cancelled
}

// StepsEnded reports whether the last of the steps ended its server run.
func StepsEnded(steps []Step) bool {
	if len(steps) == 0 {
		return false
	}
	last := &steps[len(steps)-1]
	return last.StopReason != "" || last.Status == "failed" || last.Status == "cancelled"
}

func (step *Step) read(s *scanner) {
	from := s.start()
	for name := range s.members {
		switch name {
		case "id":
			s.orEmpty(&step.ID)
		case "origin":
			s.orEmpty(&step.Origin)
		case "organization_id":
			s.orEmpty(&step.OrganizationID)
		case "provider_id":
			s.orEmpty(&step.ProviderID)
		case "run_id":
			s.orEmpty(&step.RunID)
		case "agent_id":
			s.orEmpty(&step.AgentID)
		case "provider_name":
			s.orEmpty(&step.ProviderName)
		case "provider_category":
			s.orEmpty(&step.ProviderCategory)
		case "model":
			s.orEmpty(&step.Model)
		case "model_handle":
			s.orEmpty(&step.ModelHandle)
		case "model_endpoint":
			s.orEmpty(&step.ModelEndpoint)
		case "context_window_limit":
			s.orNoInteger(&step.ContextWindowLimit)
		case "prompt_tokens":
			s.orNoInteger(&step.PromptTokens)
		case "completion_tokens":
			s.orNoInteger(&step.CompletionTokens)
		case "total_tokens":
			s.orNoInteger(&step.TotalTokens)
		case "cached_input_tokens":
			s.orNoInteger(&step.CachedInputTokens)
		case "cache_write_tokens":
			s.orNoInteger(&step.CacheWriteTokens)
		case "reasoning_tokens":
			s.orNoInteger(&step.ReasoningTokens)
		case "completion_tokens_details":
			step.CompletionTokensDetails = s.raw()
		case "prompt_tokens_details":
			step.PromptTokensDetails = s.raw()
		case "stop_reason":
			orNoWord(s, &step.StopReason)
		case "tags":
			s.strs(&step.Tags)
		case "tid":
			s.orEmpty(&step.TID)
		case "trace_id":
			s.orEmpty(&step.TraceID)
		case "request_id":
			s.orEmpty(&step.RequestID)
		case "messages":
			s.orNoRaws(&step.Messages)
		case "feedback":
			s.orEmpty(&step.Feedback)
		case "project_id":
			s.orEmpty(&step.ProjectID)
		case "error_type":
			s.orEmpty(&step.ErrorType)
		case "error_data":
			object(s, &step.ErrorData)
		case "status":
			s.orEmpty(&step.Status)
		}
	}
	step.JSON = s.since(from)
}

// A StepError is why a step failed. The traceback is for people and must not get into rows.
type StepError struct {
	JSON      RawJSON
	Message   string
	Traceback string
	Details   RawJSON
}

func (e *StepError) read(s *scanner) {
	from := s.start()
	for name := range s.members {
		switch name {
		case "message":
			s.orEmpty(&e.Message)
		case "traceback":
			s.orEmpty(&e.Traceback)
		case "details":
			e.Details = s.raw()
		}
	}
	e.JSON = s.since(from)
}

// StepMetrics are the times of a step. In servers 0.16.7 and 0.16.8 the two starts are null.
type StepMetrics struct {
	JSON                 RawJSON
	ID                   string
	OrganizationID       string
	ProviderID           string
	RunID                string
	AgentID              string
	StepStartNanos       *int64
	LLMRequestStartNanos *int64
	LLMRequestNanos      *int64
	ToolExecutionNanos   *int64
	StepNanos            *int64
	BaseTemplateID       string
	TemplateID           string
	ProjectID            string
}

func (m *StepMetrics) read(s *scanner) {
	from := s.start()
	for name := range s.members {
		switch name {
		case "id":
			s.orEmpty(&m.ID)
		case "organization_id":
			s.orEmpty(&m.OrganizationID)
		case "provider_id":
			s.orEmpty(&m.ProviderID)
		case "run_id":
			s.orEmpty(&m.RunID)
		case "agent_id":
			s.orEmpty(&m.AgentID)
		case "step_start_ns":
			s.orNoInteger(&m.StepStartNanos)
		case "llm_request_start_ns":
			s.orNoInteger(&m.LLMRequestStartNanos)
		case "llm_request_ns":
			s.orNoInteger(&m.LLMRequestNanos)
		case "tool_execution_ns":
			s.orNoInteger(&m.ToolExecutionNanos)
		case "step_ns":
			s.orNoInteger(&m.StepNanos)
		case "base_template_id":
			s.orEmpty(&m.BaseTemplateID)
		case "template_id":
			s.orEmpty(&m.TemplateID)
		case "project_id":
			s.orEmpty(&m.ProjectID)
		}
	}
	m.JSON = s.since(from)
}

// A Feedback is a person's feedback on a step. A nil Feedback field withdraws it.
type Feedback struct {
	Feedback *string  `json:"feedback"` // positive, negative
	Tags     []string `json:"tags,omitempty"`
}
