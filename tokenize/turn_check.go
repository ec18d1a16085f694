package tokenize

// CheckTurn applies the rules for one turn. A tool turn always passes the check. For an assistant
// turn, CheckTurn returns an *AlignError with Turn -1 in these cases:
//
//	ErrNoTokens    ReasonHole            no output_ids: the tokens of the call are missing
//	ErrLogprob     ReasonNoLogprobs      no list of log-probabilities
//	ErrLength      ReasonLengthMismatch  fewer log-probabilities than ids
//	ErrIDMismatch  ReasonIDMismatch      a log-probability belongs to another token
//
// Surplus log-probabilities come from a known bug in speculative decoding. CheckTurn accepts them
// if the turn has ids and the log-probabilities before the surplus belong to these ids. It does not
// check the values, because a token with a bad value only gets mask 0.
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

// CallsFromTurns appends one Call for each assistant turn. The parameter turns must hold the turns
// of one sample, from all its replies in order. The calls point into the turns' memory.
//
// A turn with input_ids becomes a call with SourceTurns and grade Exact. A turn without input_ids
// becomes a call with grade Quarantined and ReasonNoPrompt. A caller that finds the prompt
// elsewhere sets PromptIDs, Source, Grade and Reason. A turn with surplus log-probabilities becomes
// a call with FlagSurplusLogprobs.
//
// For the first turn that breaks a rule of CheckTurn, CallsFromTurns returns an *AlignError with
// the turn's index. If there is no assistant turn, it returns an *AlignError with ErrNoTokens and
// ReasonNoTurns. After an error, dst is returned unchanged.
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
			e := *err.(*AlignError) //nolint:errorlint,forcetypeassert // CheckTurn returns no other type
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
