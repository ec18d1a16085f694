package letta

// A Run is a server run: the server's work on one send. Its status does not describe the answer
// (a run stopped by length is failed, but its turns are valid). Use the stop reason.
type Run struct {
	JSON        RawJSON
	ID          string `letta:"id"`
	Status      string `letta:"status"` // created, running, completed, failed, cancelled
	CreatedAt   Time   `letta:"created_at,loose"`
	CompletedAt Time   `letta:"completed_at,loose"` // UTC, without a zone
	AgentID     string `letta:"agent_id,loose"`
	// Metadata has the reason of a failed run under error.
	Metadata   RawJSON    `letta:"metadata"`
	StopReason StopReason `letta:"stop_reason,loose"`
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
	ID                  string   `letta:"id"`
	AgentID             string   `letta:"agent_id,loose"`
	InContextMessageIDs []string `letta:"in_context_message_ids"`
}
