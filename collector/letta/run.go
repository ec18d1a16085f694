package letta

// A Run is a server run: the server's work on one send. Do not use Status to judge the answer. If a
// run reached the token limit, its status is failed, but its turns are valid. Use StopReason
// instead.
type Run struct {
	JSON        RawJSON
	ID          string `letta:"id"`
	Status      string `letta:"status"` // created, running, completed, failed, cancelled
	CreatedAt   Time   `letta:"created_at,loose"`
	CompletedAt Time   `letta:"completed_at,loose"` // in UTC, without a zone
	AgentID     string `letta:"agent_id,loose"`
	// Metadata is the run's metadata. If the run failed, the member error of Metadata contains the
	// reason.
	Metadata   RawJSON    `letta:"metadata"`
	StopReason StopReason `letta:"stop_reason,loose"`
}

// Ended reports whether the run has ended. If the run belongs to a conversation, use StepsEnded
// instead.
func (r *Run) Ended() bool {
	switch r.Status {
	case "created", "running":
		return false
	}
	return true
}

// Failure returns the reason that the server recorded for the failure of the run, or "".
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
