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
	// Metadata has the reason of a failed run under error.
	Metadata   RawJSON
	StopReason StopReason
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
		case "metadata":
			r.Metadata = s.raw()
		case "stop_reason":
			orNoWord(s, &r.StopReason)
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
	ID                  string
	AgentID             string
	InContextMessageIDs []string
}

func (c *Conversation) read(s *scanner) {
	from := s.start()
	for name := range s.members {
		switch name {
		case "id":
			s.str(&c.ID)
		case "agent_id":
			s.orEmpty(&c.AgentID)
		case "in_context_message_ids":
			s.needTexts(&c.InContextMessageIDs)
		}
	}
	c.JSON = s.since(from)
}
