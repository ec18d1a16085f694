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
	CompletionTokens int64
	PromptTokens     int64
	TotalTokens      int64
	StepCount        int32
	RunIDs           []string
	ContextTokens    *int64
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
		case "context_tokens":
			s.orNoInteger(&u.ContextTokens)
		}
	}
	u.JSON = s.since(from)
}
