package letta

import (
	"encoding/json"
	"slices"
)

// A LettaResponse is the answer to a send, without its turns: these are read by
// tokenize.Decoder while the body streams in, and only the rest comes here.
//
// Source: schemas/letta_response.py:52-88.
type LettaResponse struct { //nolint:revive // the name of the published schema
	// Messages are chronological. Text that the model wrote together with a call
	// may be missing here although the turns have it.
	Messages   Messages          `json:"messages"`
	StopReason StopReasonMessage `json:"stop_reason"`
	Usage      UsageStatistics   `json:"usage"`

	// Logprobs repeats the last call: the larger half of a body. It is skipped when
	// a body is streamed, and kept as text where a LettaResponse is decoded whole.
	Logprobs json.RawMessage `json:"logprobs"`
	// Turns is set only where a LettaResponse is decoded whole.
	Turns []TurnTokenData `json:"turns"`

	Extra Extra `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (r *LettaResponse) UnmarshalJSON(b []byte) error {
	type plain LettaResponse
	return unmarshalKeeping(b, (*plain)(r), &r.Extra)
}

// MarshalJSON writes unknown fields as well.
func (r LettaResponse) MarshalJSON() ([]byte, error) {
	type plain LettaResponse
	return marshalKeeping(plain(r), r.Extra)
}

// RunID is the server run that made the answer, or empty: an answer without
// messages names none.
func (r *LettaResponse) RunID() string {
	for _, m := range slices.Backward(r.Messages) {
		if id := m.Head().RunID; id != nil && *id != "" {
			return *id
		}
	}
	return ""
}

// Pending are the calls that wait for an answer of the client.
func (r *LettaResponse) Pending() []ToolCall {
	if r.StopReason.StopReason != StopRequiresApproval {
		return nil
	}
	var calls []ToolCall
	for _, m := range r.Messages {
		if a, ok := m.(*ApprovalRequestMessage); ok {
			calls = append(calls, a.Calls()...)
		}
	}
	return calls
}

// Output is the text of the last assistant message, or empty.
func (r *LettaResponse) Output() string {
	for _, m := range slices.Backward(r.Messages) {
		if a, ok := m.(*AssistantMessage); ok {
			return a.Content.String()
		}
	}
	return ""
}

// A TurnTokenData is one turn as the schema has it. Rollouts are not read through
// this type but by tokenize.Decoder; it is for small tools and tests.
//
// Source: schemas/letta_response.py:33-49.
type TurnTokenData struct {
	Role      string  `json:"role"` // assistant, tool
	OutputIDs []int32 `json:"output_ids"`
	// OutputTokenLogprobs are triples: log-probability or null, id, and null or a
	// text.
	OutputTokenLogprobs []json.RawMessage `json:"output_token_logprobs"`
	Content             *string           `json:"content"`
	ToolName            *string           `json:"tool_name"`
	// InputIDs is the prompt, where a newer server sends it.
	InputIDs []int32 `json:"input_ids,omitempty"`
	Extra    Extra   `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (t *TurnTokenData) UnmarshalJSON(b []byte) error {
	type plain TurnTokenData
	return unmarshalKeeping(b, (*plain)(t), &t.Extra)
}

// MarshalJSON writes unknown fields as well.
func (t TurnTokenData) MarshalJSON() ([]byte, error) {
	type plain TurnTokenData
	return marshalKeeping(plain(t), t.Extra)
}

// A ChoiceLogprobs is what the logprobs field of an answer holds: the last call
// only. On the native path Token is the id as decimal text.
type ChoiceLogprobs struct {
	Content []TokenLogprob `json:"content"`
	Refusal []TokenLogprob `json:"refusal"`
	Extra   Extra          `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (l *ChoiceLogprobs) UnmarshalJSON(b []byte) error {
	type plain ChoiceLogprobs
	return unmarshalKeeping(b, (*plain)(l), &l.Extra)
}

// MarshalJSON writes unknown fields as well.
func (l ChoiceLogprobs) MarshalJSON() ([]byte, error) {
	type plain ChoiceLogprobs
	return marshalKeeping(plain(l), l.Extra)
}

// A TokenLogprob is one token of a ChoiceLogprobs.
type TokenLogprob struct {
	Token       string          `json:"token"`
	Bytes       []int           `json:"bytes"`
	Logprob     *float64        `json:"logprob"` // nil where the engine's number was not finite
	TopLogprobs json.RawMessage `json:"top_logprobs"`
	Extra       Extra           `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (l *TokenLogprob) UnmarshalJSON(b []byte) error {
	type plain TokenLogprob
	return unmarshalKeeping(b, (*plain)(l), &l.Extra)
}

// MarshalJSON writes unknown fields as well.
func (l TokenLogprob) MarshalJSON() ([]byte, error) {
	type plain TokenLogprob
	return marshalKeeping(plain(l), l.Extra)
}

// UsageStatistics are the sums over the steps of one send. Prompt and completion
// tokens are exact; ContextTokens is an estimate after a compaction.
type UsageStatistics struct {
	MessageType       string   `json:"message_type,omitempty"` // usage_statistics
	CompletionTokens  int64    `json:"completion_tokens"`
	PromptTokens      int64    `json:"prompt_tokens"`
	TotalTokens       int64    `json:"total_tokens"`
	StepCount         int32    `json:"step_count"`
	RunIDs            []string `json:"run_ids"`
	CachedInputTokens *int64   `json:"cached_input_tokens"`
	CacheWriteTokens  *int64   `json:"cache_write_tokens"`
	ReasoningTokens   *int64   `json:"reasoning_tokens"`
	ContextTokens     *int64   `json:"context_tokens"`
	Extra             Extra    `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (u *UsageStatistics) UnmarshalJSON(b []byte) error {
	type plain UsageStatistics
	return unmarshalKeeping(b, (*plain)(u), &u.Extra)
}

// MarshalJSON writes unknown fields as well.
func (u UsageStatistics) MarshalJSON() ([]byte, error) {
	type plain UsageStatistics
	return marshalKeeping(plain(u), u.Extra)
}
