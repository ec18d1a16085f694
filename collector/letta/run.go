package letta

// A Run is a server run: the server's work on one send. Its status does not describe the answer
// (a run stopped by length is failed, but its turns are valid). Use the stop reason.
type Run struct {
	JSON           RawJSON
	ID             string
	Status         string // created, running, completed, failed, cancelled
	CreatedAt      Time
	CompletedAt    Time // UTC, without a zone
	AgentID        string
	ConversationID string
	BaseTemplateID string
	Background     bool
	// Metadata has the reason of a failed run under error.
	Metadata           RawJSON
	RequestConfig      RawJSON
	StopReason         StopReason
	CallbackURL        string
	CallbackSentAt     Time
	CallbackStatusCode *int64
	CallbackError      string
	TTFTNanos          *int64
	TotalDurationNanos *int64
}

func (r *Run) read(s *scanner) {
	from := s.start()
	for name := range s.members {
		switch name {
		case "id":
			s.str(&r.ID)
		case "status":
			s.str(&r.Status)
		case "created_at":
			orNoWord(s, &r.CreatedAt)
		case "completed_at":
			orNoWord(s, &r.CompletedAt)
		case "agent_id":
			s.orEmpty(&r.AgentID)
		case "conversation_id":
			s.orEmpty(&r.ConversationID)
		case "base_template_id":
			s.orEmpty(&r.BaseTemplateID)
		case "background":
			s.orFalse(&r.Background)
		case "metadata":
			r.Metadata = s.raw()
		case "request_config":
			r.RequestConfig = s.raw()
		case "stop_reason":
			orNoWord(s, &r.StopReason)
		case "callback_url":
			s.orEmpty(&r.CallbackURL)
		case "callback_sent_at":
			orNoWord(s, &r.CallbackSentAt)
		case "callback_status_code":
			s.orNoInteger(&r.CallbackStatusCode)
		case "callback_error":
			s.orEmpty(&r.CallbackError)
		case "ttft_ns":
			s.orNoInteger(&r.TTFTNanos)
		case "total_duration_ns":
			s.orNoInteger(&r.TotalDurationNanos)
		}
	}
	r.JSON = s.since(from)
}

// Ended reports whether the run has ended. For a run of a conversation, use StepsEnded.
func (r *Run) Ended() bool {
	switch r.Status {
	case "created", "running":
		return false
	}
	return true
}

// Failure returns the server's reason why the run failed, or "".
func (r *Run) Failure() string {
	raw := r.Metadata.Member("error")
	if raw.IsNull() {
		return ""
	}
	var text string
	if raw.Decode(&text) != nil {
		return string(raw)
	}
	return text
}

// A Conversation is a separate thread of an agent.
type Conversation struct {
	JSON                RawJSON
	CreatedByID         string
	LastUpdatedByID     string
	CreatedAt           Time
	UpdatedAt           Time
	ID                  string
	AgentID             string
	Summary             string
	InContextMessageIDs []string
	IsolatedBlockIDs    []string
	Model               string
	ModelSettings       RawJSON
	LastMessageAt       Time
}

func (c *Conversation) read(s *scanner) {
	from := s.start()
	for name := range s.members {
		switch name {
		case "created_by_id":
			s.orEmpty(&c.CreatedByID)
		case "last_updated_by_id":
			s.orEmpty(&c.LastUpdatedByID)
		case "created_at":
			orNoWord(s, &c.CreatedAt)
		case "updated_at":
			orNoWord(s, &c.UpdatedAt)
		case "id":
			s.str(&c.ID)
		case "agent_id":
			s.orEmpty(&c.AgentID)
		case "summary":
			s.orEmpty(&c.Summary)
		case "in_context_message_ids":
			s.needTexts(&c.InContextMessageIDs)
		case "isolated_block_ids":
			s.strs(&c.IsolatedBlockIDs)
		case "model":
			s.orEmpty(&c.Model)
		case "model_settings":
			c.ModelSettings = s.raw()
		case "last_message_at":
			orNoWord(s, &c.LastMessageAt)
		}
	}
	c.JSON = s.since(from)
}
