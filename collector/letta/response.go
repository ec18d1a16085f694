package letta

import "slices"

// A LettaResponse is the answer to a send, except the turns. A tokenize.Decoder parses the turns
// while the body streams in.
//
// Source: schemas/letta_response.py:52-88.
type LettaResponse struct { //nolint:revive // the name of the published schema
	// JSON is the JSON text of the answer without turns and logprobs.
	JSON RawJSON
	// Messages are in chronological order. The text before a tool call can be missing here, but
	// turns always contains it.
	Messages   Messages        `letta:"messages"`
	StopReason StopReason      `letta:"stop_reason.stop_reason,loose"`
	Usage      UsageStatistics `letta:"usage,loose"`
}

// RunID returns the id of the server run, or "" if no message names it.
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

// UsageStatistics contains totals over the steps of one send. PromptTokens and CompletionTokens are
// exact. After a compaction, ContextTokens is an estimate.
type UsageStatistics struct {
	JSON             RawJSON
	CompletionTokens int64  `letta:"completion_tokens,loose"`
	PromptTokens     int64  `letta:"prompt_tokens,loose"`
	TotalTokens      int64  `letta:"total_tokens,loose"`
	StepCount        int32  `letta:"step_count,loose"`
	ContextTokens    *int64 `letta:"context_tokens,loose"`
}
