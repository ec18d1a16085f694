package letta

// A ProviderTrace is the server's record of one model call. RequestJSON is an OpenAI-style body
// without input_ids that the native path did not send. ResponseJSON is the engine's answer with
// output_ids.
//
// The trace can be late. There is no trace if the call failed, a log-probability was not finite,
// or a compaction ran in the step.
//
// Source: the published Steps API; schemas/provider_trace.py of the server.
type ProviderTrace struct {
	JSON            RawJSON
	CreatedByID     string
	LastUpdatedByID string
	CreatedAt       Time
	UpdatedAt       Time
	ID              string
	// RequestJSON and ResponseJSON are the two bodies; see Request and Response.
	RequestJSON  RawJSON
	ResponseJSON RawJSON
	StepID       string
	AgentID      string
	AgentTags    []string
	CallType     string // agent_step, summarization, …
	RunID        string
	Source       string
	OrgID        string
	UserID       string
	// CompactionSettings is set for summarization, LLMConfig for all other calls.
	CompactionSettings RawJSON
	LLMConfig          RawJSON
	LatencyMS          *int64
	BillingContext     *BillingContext

	request     TraceRequest
	requestErr  error
	response    TraceResponse
	responseErr error
}

func (t *ProviderTrace) read(s *scanner) {
	from := s.start()
	for name := range s.members {
		switch name {
		case "created_by_id":
			s.orEmpty(&t.CreatedByID)
		case "last_updated_by_id":
			s.orEmpty(&t.LastUpdatedByID)
		case "created_at":
			orNoWord(s, &t.CreatedAt)
		case "updated_at":
			orNoWord(s, &t.UpdatedAt)
		case "id":
			s.orEmpty(&t.ID)
		case "request_json":
			t.RequestJSON = s.aside(func() { t.request, t.requestErr = TraceRequest{}, nil; t.request.read(s) }, &t.requestErr)
		case "response_json":
			t.ResponseJSON = s.aside(func() { t.response, t.responseErr = TraceResponse{}, nil; t.response.read(s) }, &t.responseErr)
		case "step_id":
			s.orEmpty(&t.StepID)
		case "agent_id":
			s.orEmpty(&t.AgentID)
		case "agent_tags":
			s.strs(&t.AgentTags)
		case "call_type":
			s.orEmpty(&t.CallType)
		case "run_id":
			s.orEmpty(&t.RunID)
		case "source":
			s.orEmpty(&t.Source)
		case "org_id":
			s.orEmpty(&t.OrgID)
		case "user_id":
			s.orEmpty(&t.UserID)
		case "compaction_settings":
			t.CompactionSettings = s.raw()
		case "llm_config":
			t.LLMConfig = s.raw()
		case "latency_ms":
			s.orNoInteger(&t.LatencyMS)
		case "billing_context":
			object(s, &t.BillingContext)
		}
	}
	t.JSON = s.since(from)
}

// A BillingContext is who pays for a call; hosted servers only.
type BillingContext struct {
	JSON       RawJSON
	PlanType   string
	CostSource string // quota, credits
	CustomerID string
}

func (b *BillingContext) read(s *scanner) {
	from := s.start()
	for name := range s.members {
		switch name {
		case "plan_type":
			s.orEmpty(&b.PlanType)
		case "cost_source":
			s.orEmpty(&b.CostSource)
		case "customer_id":
			s.orEmpty(&b.CustomerID)
		}
	}
	b.JSON = s.since(from)
}
