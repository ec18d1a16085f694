package letta

// A StopReason says why the loop of the agent ended. Words that this package does
// not know are kept; Known tells them apart.
type StopReason string

// The stop reasons. Source: schemas/letta_stop_reason.py:9-22. Those after
// StopCancelled are seen on server runs and steps rather than in an answer.
const (
	StopEndTurn            StopReason = "end_turn"            // the model spoke without calling a tool, or said nothing
	StopToolRule           StopReason = "tool_rule"           // a terminal tool was called
	StopMaxSteps           StopReason = "max_steps"           // the limit of the request
	StopMaxTokensExceeded  StopReason = "max_tokens_exceeded" // the engine's length limit, and no call was parsed
	StopRequiresApproval   StopReason = "requires_approval"   // calls wait for the client
	StopInvalidToolCall    StopReason = "invalid_tool_call"
	StopError              StopReason = "error" // swallowed after the step was finished
	StopCancelled          StopReason = "cancelled"
	StopInsufficientCredit StopReason = "insufficient_credits"
	StopNoToolCall         StopReason = "no_tool_call"
	StopInvalidLLMResponse StopReason = "invalid_llm_response"
	StopLLMAPIError        StopReason = "llm_api_error"
	StopContextOverflow    StopReason = "context_window_overflow_in_system_prompt"
)

// Known says that the word is one of the closed list of server 0.16.7.
func (s StopReason) Known() bool {
	switch s {
	case StopEndTurn, StopToolRule, StopMaxSteps, StopMaxTokensExceeded, StopRequiresApproval, StopInvalidToolCall,
		StopError, StopCancelled, StopInsufficientCredit, StopNoToolCall, StopInvalidLLMResponse, StopLLMAPIError,
		StopContextOverflow:
		return true
	}
	return false
}

// Completed says that the agent came to its own end, so that the next message of
// a task may be sent.
func (s StopReason) Completed() bool { return s == StopEndTurn || s == StopToolRule }
