package letta

// A StopReason is the reason why the agent's loop ended. Unknown values are kept: see Known.
type StopReason string

// The stop reasons. Source: schemas/letta_stop_reason.py:9-22. The stop reasons after StopCancelled
// appear on server runs and steps rather than in an answer.
const (
	StopEndTurn            StopReason = "end_turn"            // the model answered without a tool call, or with no text
	StopToolRule           StopReason = "tool_rule"           // a terminal tool was called
	StopMaxSteps           StopReason = "max_steps"           // the request's limit
	StopMaxTokensExceeded  StopReason = "max_tokens_exceeded" // the engine's length limit, without a parsed call
	StopRequiresApproval   StopReason = "requires_approval"   // calls wait for the client
	StopInvalidToolCall    StopReason = "invalid_tool_call"
	StopError              StopReason = "error" // set after a step with a suppressed error
	StopCancelled          StopReason = "cancelled"
	StopInsufficientCredit StopReason = "insufficient_credits"
	StopNoToolCall         StopReason = "no_tool_call"
	StopInvalidLLMResponse StopReason = "invalid_llm_response"
	StopLLMAPIError        StopReason = "llm_api_error"
	StopContextOverflow    StopReason = "context_window_overflow_in_system_prompt"
)

// Known reports whether the value is in the closed list of server 0.16.7.
func (s StopReason) Known() bool {
	switch s {
	case StopEndTurn, StopToolRule, StopMaxSteps, StopMaxTokensExceeded, StopRequiresApproval, StopInvalidToolCall,
		StopError, StopCancelled, StopInsufficientCredit, StopNoToolCall, StopInvalidLLMResponse, StopLLMAPIError,
		StopContextOverflow:
		return true
	}
	return false
}

// Completed reports whether the agent ended normally, so that the next message can be sent.
func (s StopReason) Completed() bool { return s == StopEndTurn || s == StopToolRule }
