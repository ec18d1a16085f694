package letta

import "encoding/json"

// A Run is a server run: what the server did for one send. Its status is no guide
// to the answer (a length stop is failed though its turns are good); read the
// stop reason.
type Run struct {
	ID             string  `json:"id"`
	Status         string  `json:"status"` // created, running, completed, failed, cancelled
	CreatedAt      *Time   `json:"created_at"`
	CompletedAt    *Time   `json:"completed_at"` // without a zone, meaning UTC
	AgentID        *string `json:"agent_id"`
	ConversationID *string `json:"conversation_id"`
	BaseTemplateID *string `json:"base_template_id"`
	Background     *bool   `json:"background"`
	// Metadata holds, under error, why a run failed.
	Metadata           json.RawMessage `json:"metadata"`
	RequestConfig      json.RawMessage `json:"request_config"`
	StopReason         *StopReason     `json:"stop_reason"`
	CallbackURL        *string         `json:"callback_url"`
	CallbackSentAt     *Time           `json:"callback_sent_at"`
	CallbackStatusCode *int            `json:"callback_status_code"`
	CallbackError      *string         `json:"callback_error"`
	TTFTNanos          *int64          `json:"ttft_ns"`
	TotalDurationNanos *int64          `json:"total_duration_ns"`
	Extra              Extra           `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (r *Run) UnmarshalJSON(b []byte) error {
	type plain Run
	return unmarshalKeeping(b, (*plain)(r), &r.Extra)
}

// MarshalJSON writes unknown fields as well.
func (r Run) MarshalJSON() ([]byte, error) {
	type plain Run
	return marshalKeeping(plain(r), r.Extra)
}

// Failure is the server's own text of why the run failed, or empty.
func (r *Run) Failure() string {
	var m struct {
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(r.Metadata, &m) != nil || isNull(m.Error) {
		return ""
	}
	var text string
	if json.Unmarshal(m.Error, &text) != nil {
		return string(m.Error)
	}
	return text
}

// A Conversation is a thread of its own on an agent.
type Conversation struct {
	CreatedByID         *string         `json:"created_by_id"`
	LastUpdatedByID     *string         `json:"last_updated_by_id"`
	CreatedAt           *Time           `json:"created_at"`
	UpdatedAt           *Time           `json:"updated_at"`
	ID                  string          `json:"id"`
	AgentID             string          `json:"agent_id"`
	Summary             *string         `json:"summary"`
	InContextMessageIDs []string        `json:"in_context_message_ids"`
	IsolatedBlockIDs    []string        `json:"isolated_block_ids"`
	Model               *string         `json:"model"`
	ModelSettings       json.RawMessage `json:"model_settings"`
	LastMessageAt       *Time           `json:"last_message_at"`
	Extra               Extra           `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (c *Conversation) UnmarshalJSON(b []byte) error {
	type plain Conversation
	return unmarshalKeeping(b, (*plain)(c), &c.Extra)
}

// MarshalJSON writes unknown fields as well.
func (c Conversation) MarshalJSON() ([]byte, error) {
	type plain Conversation
	return marshalKeeping(plain(c), c.Extra)
}
