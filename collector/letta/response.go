package letta

import "slices"

// A LettaResponse is the answer to a send, without its turns: these are read by
// tokenize.Decoder while the body streams in, and only the rest comes here.
//
// Source: schemas/letta_response.py:52-88.
type LettaResponse struct { //nolint:revive // the name of the published schema
	// JSON is the answer without turns and logprobs.
	JSON RawJSON
	// Messages are chronological. Text that the model wrote together with a call
	// may be missing here although the turns have it.
	Messages   Messages
	StopReason StopReason
	Usage      UsageStatistics
}

func (r *LettaResponse) read(s *scanner) {
	from := s.start()
	for name := range s.members {
		switch name {
		case "messages":
			r.Messages = nil
			listOf(s, (*[]Message)(&r.Messages))
		case "stop_reason":
			for name := range s.orMembers {
				if name == "stop_reason" {
					orNoWord(s, &r.StopReason)
				}
			}
		case "usage":
			r.Usage.read(s)
		}
	}
	r.JSON = s.since(from)
}

// RunID is the server run that made the answer, or empty: an answer without
// messages names none.
func (r *LettaResponse) RunID() string {
	for i := range slices.Backward(r.Messages) {
		if id := r.Messages[i].RunID; id != "" {
			return id
		}
	}
	return ""
}

// Pending are the calls that wait for an answer of the client.
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

// Output is the text of the last assistant message, or empty.
func (r *LettaResponse) Output() string {
	for i := range slices.Backward(r.Messages) {
		if m := &r.Messages[i]; m.Type == TypeAssistant {
			return m.Content.String()
		}
	}
	return ""
}

// UsageStatistics are the sums over the steps of one send. Prompt and completion
// tokens are exact; ContextTokens is an estimate after a compaction.
type UsageStatistics struct {
	JSON              RawJSON
	CompletionTokens  int64
	PromptTokens      int64
	TotalTokens       int64
	StepCount         int32
	RunIDs            []string
	CachedInputTokens *int64
	CacheWriteTokens  *int64
	ReasoningTokens   *int64
	ContextTokens     *int64
}

func (u *UsageStatistics) read(s *scanner) {
	from := s.start()
	for name := range s.orMembers {
		switch name {
		case "completion_tokens":
			s.orZero(&u.CompletionTokens)
		case "prompt_tokens":
			s.orZero(&u.PromptTokens)
		case "total_tokens":
			s.orZero(&u.TotalTokens)
		case "step_count":
			var n int64
			s.orZero(&n)
			if u.StepCount = int32(n); int64(u.StepCount) != n {
				u.StepCount = 0
			}
		case "run_ids":
			s.strs(&u.RunIDs)
		case "cached_input_tokens":
			s.orNoInteger(&u.CachedInputTokens)
		case "cache_write_tokens":
			s.orNoInteger(&u.CacheWriteTokens)
		case "reasoning_tokens":
			s.orNoInteger(&u.ReasoningTokens)
		case "context_tokens":
			s.orNoInteger(&u.ContextTokens)
		}
	}
	u.JSON = s.since(from)
}
