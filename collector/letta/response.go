package letta

import "slices"

// A LettaResponse is the answer to a send without its turns, which tokenize.Decoder parses while
// the body streams in.
//
// Source: schemas/letta_response.py:52-88.
type LettaResponse struct { //nolint:revive // the name of the published schema
	// JSON is the answer without turns and logprobs.
	JSON RawJSON
	// Messages are chronological. They can lack text before a tool call; the turns have it.
	Messages   Messages        `letta:"messages"`
	StopReason StopReason      `letta:"stop_reason.stop_reason,loose"`
	Usage      UsageStatistics `letta:"usage,loose"`
}

// RunID returns the server run of the answer, or "": an answer without messages names none.
func (r *LettaResponse) RunID() string {
	for i := range slices.Backward(r.Messages) {
		if id := r.Messages[i].RunID; id != "" {
			return id
		}
	}
	return ""
}

// Pending returns the calls that wait for the client's answer.
func (r *LettaResponse) Pending() []ToolCall {
	if r.StopReason != StopRequiresApproval {
		return nil
	}
	var calls []ToolCall
	for i := range r.Messages {
		if m := &r.Messages[i]; m.Type == TypeApprovalRequest {
			calls = append(calls, m.ToolCalls...)
		}
	}
	return calls
}

// Output returns the text of the last assistant message, or "".
func (r *LettaResponse) Output() string {
	for i := range slices.Backward(r.Messages) {
		if m := &r.Messages[i]; m.Type == TypeAssistant {
			return m.Content.String()
		}
	}
	return ""
}

// UsageStatistics are sums over the steps of one send. Prompt and completion tokens are exact;
// ContextTokens is an estimate after a compaction.
type UsageStatistics struct {
	JSON             RawJSON
	CompletionTokens int64  `letta:"completion_tokens,loose"`
	PromptTokens     int64  `letta:"prompt_tokens,loose"`
	TotalTokens      int64  `letta:"total_tokens,loose"`
	StepCount        int32  `letta:"step_count,loose"`
	ContextTokens    *int64 `letta:"context_tokens,loose"`
}
