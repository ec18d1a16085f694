package tokenize

// CheckTurn applies the rules for one turn. A tool turn always passes. Of an
// assistant turn it returns an *AlignError, with Turn -1, for
//
//	ErrNoTokens    ReasonHole            no output_ids: the call has left no trace
//	ErrLogprob     ReasonNoLogprobs      no list of log-probabilities
//	ErrLength      ReasonLengthMismatch  fewer log-probabilities than ids
//	ErrIDMismatch  ReasonIDMismatch      a log-probability of another token
//
// More log-probabilities than ids are a known fault of speculative decoding: they
// pass where the first ones belong to the ids, and Surplus tells. Values are not
// looked at: a single bad one only unscores its token.
func CheckTurn(t *Turn) error {
	if t.Role != RoleAssistant {
		return nil
	}
	switch {
	case t.OutputIDs == nil:
		return &AlignError{Turn: -1, Token: -1, Reason: ReasonHole, Err: ErrNoTokens}
	case t.Logprobs == nil:
		return &AlignError{Turn: -1, Token: -1, Reason: ReasonNoLogprobs, Err: ErrLogprob}
	case t.IDMismatch >= 0:
		return &AlignError{Turn: -1, Token: t.IDMismatch, Reason: ReasonIDMismatch, Err: ErrIDMismatch}
	case len(t.Logprobs) < len(t.OutputIDs):
		return &AlignError{Turn: -1, Token: len(t.Logprobs), Reason: ReasonLengthMismatch, Err: ErrLength}
	case len(t.OutputIDs) == 0 && len(t.Logprobs) > 0:
		return &AlignError{Turn: -1, Token: 0, Reason: ReasonLengthMismatch, Err: ErrLength}
	}
	return nil
}

// Surplus returns how many log-probabilities t has beyond its ids.
func (t *Turn) Surplus() int { return max(0, len(t.Logprobs)-len(t.OutputIDs)) }

// CallsFromTurns appends one Call for each assistant turn: the turns of one sample,
// of all its replies in order. The calls point into the turns' memory.
//
// A turn with input_ids gives an Exact call of SourceTurns. One without is
// Quarantined with ReasonNoPrompt; a caller that finds the prompt elsewhere sets
// PromptIDs, Source, Grade and Reason. A surplus of log-probabilities sets
// FlagSurplusLogprobs.
//
// The first turn that breaks a rule of CheckTurn makes an *AlignError with its
// index; without any assistant turn that is ErrNoTokens with ReasonNoTurns. Then
// dst is returned as it came.
func CallsFromTurns(dst []Call, turns []Turn) ([]Call, error) {
	base := len(dst)
	after := RoleUser
	for i := range turns {
		t := &turns[i]
		if t.Role != RoleAssistant {
			after = RoleTool
			continue
		}
		if err := CheckTurn(t); err != nil {
			e := *err.(*AlignError) //nolint:errorlint,forcetypeassert // CheckTurn makes no other
			e.Turn = i
			return dst[:base], &e
		}
		c := Call{
			OutputIDs: t.OutputIDs,
			Logprobs:  t.Logprobs[:len(t.OutputIDs)],
			After:     after,
			Version:   -1,
		}
		if t.Surplus() > 0 {
			c.Flags |= FlagSurplusLogprobs
		}
		if len(t.PromptIDs) > 0 {
			c.PromptIDs, c.Source, c.Grade = t.PromptIDs, SourceTurns, Exact
		} else {
			c.Grade, c.Reason = Quarantined, ReasonNoPrompt
		}
		dst = append(dst, c)
		after = RoleUser
	}
	if len(dst) == base {
		return dst, &AlignError{Turn: -1, Token: -1, Reason: ReasonNoTurns, Err: ErrNoTokens}
	}
	return dst, nil
}
