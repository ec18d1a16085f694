package letta

import "encoding/json"

// A SummaryMessage stands for what a compaction removed from the context.
type SummaryMessage struct {
	MessageHead
	Summary         string           `json:"summary"`
	CompactionStats *CompactionStats `json:"compaction_stats"`
	Extra           Extra            `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (m *SummaryMessage) UnmarshalJSON(b []byte) error {
	type plain SummaryMessage
	return unmarshalKeeping(b, (*plain)(m), &m.Extra)
}

// MarshalJSON writes unknown fields as well.
func (m SummaryMessage) MarshalJSON() ([]byte, error) {
	type plain SummaryMessage
	return marshalKeeping(plain(m), m.Extra)
}

// CompactionStats says what a compaction did.
type CompactionStats struct {
	Trigger             string `json:"trigger"`
	ContextTokensBefore *int64 `json:"context_tokens_before"`
	ContextTokensAfter  *int64 `json:"context_tokens_after"`
	ContextWindow       int64  `json:"context_window"`
	MessagesCountBefore int64  `json:"messages_count_before"`
	MessagesCountAfter  int64  `json:"messages_count_after"`
	Extra               Extra  `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (s *CompactionStats) UnmarshalJSON(b []byte) error {
	type plain CompactionStats
	return unmarshalKeeping(b, (*plain)(s), &s.Extra)
}

// MarshalJSON writes unknown fields as well.
func (s CompactionStats) MarshalJSON() ([]byte, error) {
	type plain CompactionStats
	return marshalKeeping(plain(s), s.Extra)
}

// An EventMessage tells of an event, such as a compaction. It is not part of the
// context.
type EventMessage struct {
	MessageHead
	EventType string          `json:"event_type"` // compaction
	EventData json.RawMessage `json:"event_data"`
	Extra     Extra           `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (m *EventMessage) UnmarshalJSON(b []byte) error {
	type plain EventMessage
	return unmarshalKeeping(b, (*plain)(m), &m.Extra)
}

// MarshalJSON writes unknown fields as well.
func (m EventMessage) MarshalJSON() ([]byte, error) {
	type plain EventMessage
	return marshalKeeping(plain(m), m.Extra)
}
