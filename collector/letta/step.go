package letta

// A Step is one model call in the Steps API. In a successful step, CompletionTokens is the number
// of output_ids in the turn. PromptTokens is the number of ids in the prompt.
//
// Source: the published Steps API; schemas/step.py of the server.
type Step struct {
	JSON               RawJSON
	ID                 string `letta:"id,loose"`
	RunID              string `letta:"run_id,loose"`
	AgentID            string `letta:"agent_id,loose"`
	Model              string `letta:"model,loose"`
	ModelHandle        string `letta:"model_handle,loose"`
	ModelEndpoint      string `letta:"model_endpoint,loose"`
	ContextWindowLimit *int64 `letta:"context_window_limit,loose"`
	PromptTokens       *int64 `letta:"prompt_tokens,loose"`
	CompletionTokens   *int64 `letta:"completion_tokens,loose"`
	TotalTokens        *int64 `letta:"total_tokens,loose"`
	// StopReason is empty in all steps except the last step. If the run ended with max_steps,
	// StopReason is empty even in the last step.
	StopReason StopReason `letta:"stop_reason,loose"`
	Feedback   string     `letta:"feedback,loose"` // positive, negative
	ErrorType  string     `letta:"error_type,loose"`
	ErrorData  *StepError `letta:"error_data,loose"`
	Status     string     `letta:"status,loose"` // pending, success, failed, cancelled
}

// StepsEnded reports whether the server run ended with the last step in the list.
func StepsEnded(steps []Step) bool {
	if len(steps) == 0 {
		return false
	}
	last := &steps[len(steps)-1]
	return last.StopReason != "" || last.Status == "failed" || last.Status == "cancelled"
}

// A StepError is the reason why a step failed. JSON also contains a traceback, which must not be
// written to rows.
type StepError struct {
	JSON    RawJSON
	Message string `letta:"message,loose"`
}

// StepMetrics contains the durations that the server measured for a step.
type StepMetrics struct {
	JSON               RawJSON
	ID                 string `letta:"id,loose"`
	RunID              string `letta:"run_id,loose"`
	AgentID            string `letta:"agent_id,loose"`
	LLMRequestNanos    *int64 `letta:"llm_request_ns,loose"`
	ToolExecutionNanos *int64 `letta:"tool_execution_ns,loose"`
	StepNanos          *int64 `letta:"step_ns,loose"`
}

// A Feedback is a person's feedback on a step. If the field Feedback is nil, earlier feedback is
// withdrawn.
type Feedback struct {
	Feedback *string  `json:"feedback"` // positive, negative
	Tags     []string `json:"tags,omitempty"`
}
