package tokenize

// CheckTurn applies the rules for one turn. A tool turn always passes. For an assistant turn it
// returns an *AlignError, with Turn -1, for
//
//	ErrNoTokens    ReasonHole            no output_ids: the tokens of the call are missing
//	ErrLogprob     ReasonNoLogprobs      no list of log-probabilities
//	ErrLength      ReasonLengthMismatch  fewer log-probabilities than ids
//	ErrIDMismatch  ReasonIDMismatch      a log-probability of another token
//
// Surplus log-probabilities are a known fault of speculative decoding. They pass if the first ones
// belong to the ids. Values are not checked: a bad value only unscores its token.
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

// CallsFromTurns appends one Call for each assistant turn. turns are the turns of one sample, from
// all its replies in order. The calls point into the turns' memory.
//
// A turn with input_ids gives an Exact call of SourceTurns. A turn without them gives a call that
// is Quarantined with ReasonNoPrompt. A caller that finds the prompt elsewhere sets PromptIDs,
// Source, Grade and Reason. Surplus log-probabilities set FlagSurplusLogprobs.
//
// The first turn that breaks a rule of CheckTurn gives an *AlignError with its index. No assistant
// turn gives ErrNoTokens with ReasonNoTurns. After an error dst is returned unchanged.
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
		if len(t.Logprobs) > len(t.OutputIDs) {
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
