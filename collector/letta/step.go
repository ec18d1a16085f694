package letta

// A Step is one model call in the Steps API. For every successful step, CompletionTokens is the
// length of the turn's output_ids, and PromptTokens the length of the prompt.
//
// Source: the published Steps API; schemas/step.py of the server.
type Step struct {
	JSON               RawJSON
	ID                 string
	RunID              string
	AgentID            string
	Model              string
	ModelHandle        string
	ModelEndpoint      string
	ContextWindowLimit *int64
	PromptTokens       *int64
	CompletionTokens   *int64
	TotalTokens        *int64
	// StopReason is null on all steps except the last, and there too after max_steps.
	StopReason StopReason
	Tags       []string
	TraceID    string
	Feedback   string // positive, negative
	ProjectID  string
	ErrorType  string
	ErrorData  *StepError
	Status     string // pending, success, failed, cancelled
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
		case "run_id":
			s.orEmpty(&step.RunID)
		case "agent_id":
			s.orEmpty(&step.AgentID)
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
		case "stop_reason":
			orNoWord(s, &step.StopReason)
		case "tags":
			s.strs(&step.Tags)
		case "trace_id":
			s.orEmpty(&step.TraceID)
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

// A StepError is why a step failed. JSON also has a traceback, which is for people and must not get
// into rows.
type StepError struct {
	JSON    RawJSON
	Message string
}

func (e *StepError) read(s *scanner) {
	from := s.start()
	for name := range s.members {
		if name == "message" {
			s.orEmpty(&e.Message)
		}
	}
	e.JSON = s.since(from)
}

// StepMetrics are the times of a step.
type StepMetrics struct {
	JSON               RawJSON
	ID                 string
	RunID              string
	AgentID            string
	LLMRequestNanos    *int64
	ToolExecutionNanos *int64
	StepNanos          *int64
}

func (m *StepMetrics) read(s *scanner) {
	from := s.start()
	for name := range s.members {
		switch name {
		case "id":
			s.orEmpty(&m.ID)
		case "run_id":
			s.orEmpty(&m.RunID)
		case "agent_id":
			s.orEmpty(&m.AgentID)
		case "llm_request_ns":
			s.orNoInteger(&m.LLMRequestNanos)
		case "tool_execution_ns":
			s.orNoInteger(&m.ToolExecutionNanos)
		case "step_ns":
			s.orNoInteger(&m.StepNanos)
		}
	}
	m.JSON = s.since(from)
}

// A Feedback is a person's feedback on a step. A nil Feedback field withdraws it.
type Feedback struct {
	Feedback *string  `json:"feedback"` // positive, negative
	Tags     []string `json:"tags,omitempty"`
}
