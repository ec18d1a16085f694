package tokenize

import "fmt"

// Counts holds the server's own sums over the calls of a sample, from the reply's usage. -1 means
// that the server did not report the sum.
type Counts struct {
	PromptTokens, CompletionTokens int64
	Steps                          int32
}

// CheckCounts compares calls with the server's sums. It returns an *AlignError with ErrCounts and
//
//	ReasonHole           if Σ len(OutputIDs) ≠ CompletionTokens, or len(calls) ≠ Steps
//	ReasonCountMismatch  if Σ len(PromptIDs) ≠ PromptTokens and every prompt is known
//
// The server silently drops a turn without output ids. Only these sums show that a call is missing
// between two turns. The text around such a gap must not be used as a tool result. A step without
// output adds nothing to CompletionTokens, so only Steps shows that its call is missing. That call
// counts as a hole too: PromptTokens includes its prompt, and the position of the call among the
// turns is unknown. None of the sums includes the model calls of a compaction.
func CheckCounts(calls []Call, want Counts) error {
	var prompts, outputs int64
	known := true
	for k := range calls {
		c := &calls[k]
		outputs += int64(len(c.OutputIDs))
		prompts += int64(len(c.PromptIDs))
		known = known && len(c.PromptIDs) > 0
	}
	switch {
	case want.CompletionTokens >= 0 && outputs != want.CompletionTokens:
		return countError(ReasonHole, "turns have %d output ids, but usage.completion_tokens is %d", outputs, want.CompletionTokens)
	case want.Steps >= 0 && int64(len(calls)) != int64(want.Steps):
		return countError(ReasonHole, "turns have %d calls, but usage.step_count is %d", int64(len(calls)), int64(want.Steps))
	case want.PromptTokens >= 0 && known && prompts != want.PromptTokens:
		return countError(ReasonCountMismatch, "prompts have %d ids, but usage.prompt_tokens is %d", prompts, want.PromptTokens)
	}
	return nil
}

func countError(reason Reason, format string, got, want int64) error {
	return &AlignError{Turn: -1, Token: -1, Reason: reason, Err: &detailError{ErrCounts, fmt.Sprintf(format, got, want)}}
}
