package letta

// A StopReason is the reason why the agent's loop ended. A newer server can send unknown reasons.
// See Known.
type StopReason string

// The stop reasons. Source: schemas/letta_stop_reason.py:9-22. The stop reasons after StopCancelled
// appear in server runs and steps, not in answers.
const (
	StopEndTurn            StopReason = "end_turn"            // the model made no tool call
	StopToolRule           StopReason = "tool_rule"           // a terminal tool was called
	StopMaxSteps           StopReason = "max_steps"           // the request's limit was reached
	StopMaxTokensExceeded  StopReason = "max_tokens_exceeded" // the engine's token limit was reached, and no tool call was parsed
	StopRequiresApproval   StopReason = "requires_approval"   // calls wait for the client
	StopInvalidToolCall    StopReason = "invalid_tool_call"
	StopError              StopReason = "error" // a step failed, and the server suppressed its error
	StopCancelled          StopReason = "cancelled"
	StopInsufficientCredit StopReason = "insufficient_credits"
	StopNoToolCall         StopReason = "no_tool_call"
	StopInvalidLLMResponse StopReason = "invalid_llm_response"
	StopLLMAPIError        StopReason = "llm_api_error"
	StopContextOverflow    StopReason = "context_window_overflow_in_system_prompt"
)

// Known reports whether s is a stop reason of server 0.16.7.
func (s StopReason) Known() bool {
	switch s {
	case StopEndTurn, StopToolRule, StopMaxSteps, StopMaxTokensExceeded, StopRequiresApproval, StopInvalidToolCall,
		StopError, StopCancelled, StopInsufficientCredit, StopNoToolCall, StopInvalidLLMResponse, StopLLMAPIError,
		StopContextOverflow:
		return true
	}
	return false
}

// Completed reports whether the agent ended normally and the next message can be sent.
func (s StopReason) Completed() bool { return s == StopEndTurn || s == StopToolRule }
