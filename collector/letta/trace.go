package letta

import "encoding/json"

// A ProviderTrace is what the server kept of one call of the model. RequestJSON
// is the OpenAI-style body that the native path did not send, without input_ids;
// ResponseJSON is the engine's own answer, with output_ids.
//
// There is none, for good, where the call failed, where a log-probability was
// not finite, and where a compaction ran in the step; and it may be late.
//
// Source: the published Steps API; schemas/provider_trace.py of the server.
type ProviderTrace struct {
	CreatedByID     *string         `json:"created_by_id"`
	LastUpdatedByID *string         `json:"last_updated_by_id"`
	CreatedAt       *Time           `json:"created_at"`
	UpdatedAt       *Time           `json:"updated_at"`
	ID              *string         `json:"id"`
	RequestJSON     json.RawMessage `json:"request_json"`
	ResponseJSON    json.RawMessage `json:"response_json"`
	StepID          *string         `json:"step_id"`
	AgentID         *string         `json:"agent_id"`
	AgentTags       []string        `json:"agent_tags"`
	CallType        *string         `json:"call_type"` // agent_step, summarization, …
	RunID           *string         `json:"run_id"`
	Source          *string         `json:"source"`
	OrgID           *string         `json:"org_id"`
	UserID          *string         `json:"user_id"`
	// CompactionSettings is set for summarization, LLMConfig for all other calls.
	CompactionSettings json.RawMessage `json:"compaction_settings"`
	LLMConfig          json.RawMessage `json:"llm_config"`
	LatencyMS          *int64          `json:"latency_ms,omitempty"`
	BillingContext     *BillingContext `json:"billing_context"`
	Extra              Extra           `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (t *ProviderTrace) UnmarshalJSON(b []byte) error {
	type plain ProviderTrace
	return unmarshalKeeping(b, (*plain)(t), &t.Extra)
}

// MarshalJSON writes unknown fields as well.
func (t ProviderTrace) MarshalJSON() ([]byte, error) {
	type plain ProviderTrace
	return marshalKeeping(plain(t), t.Extra)
}

// A BillingContext says who pays for a call; hosted servers only.
type BillingContext struct {
	PlanType   *string `json:"plan_type"`
	CostSource *string `json:"cost_source"` // quota, credits
	CustomerID *string `json:"customer_id"`
	Extra      Extra   `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (b *BillingContext) UnmarshalJSON(data []byte) error {
	type plain BillingContext
	return unmarshalKeeping(data, (*plain)(b), &b.Extra)
}

// MarshalJSON writes unknown fields as well.
func (b BillingContext) MarshalJSON() ([]byte, error) {
	type plain BillingContext
	return marshalKeeping(plain(b), b.Extra)
}
