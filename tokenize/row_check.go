package tokenize

import (
	"fmt"
	"math"
)

// Check verifies every invariant of a finished row. If positive, the parameter vocab is the
// vocabulary size. If an invariant does not hold, Check returns an *AlignError with the index of
// the span and the position of the token in the row. The error wraps ErrLength, ErrVocab,
// ErrLogprob, ErrNoTokens or ErrInvariant.
//
// The same check runs before a row is written and when a dataset is verified.
func (r *Row) Check(vocab int) error {
	n := len(r.InputIDs)
	if len(r.LossMask) != n || len(r.Logprobs) != n || r.Versions != nil && len(r.Versions) != n {
		return rowError(-1, -1, ErrLength, "%d ids, %d masks, %d log-probabilities, %d versions", n, len(r.LossMask), len(r.Logprobs), len(r.Versions))
	}
	if int64(n) > math.MaxInt32 {
		return rowError(-1, -1, ErrInvariant, "%d tokens do not fit in int32 offsets", n)
	}
	if err := r.checkSpans(n); err != nil {
		return err
	}
	limit := lastID(vocab)
	trained := 0
	for i, m := range r.LossMask {
		v := r.Logprobs[i]
		switch {
		case uint32(r.InputIDs[i]) > limit:
			return rowError(r.spanOf(i), i, ErrVocab, "id %d, vocabulary size %d", r.InputIDs[i], vocab)
		case m == 1:
			trained++
			if !UsableLogprob(v) {
				return rowError(r.spanOf(i), i, ErrLogprob, "mask 1 with log-probability %v", v)
			}
		case m != 0:
			return rowError(r.spanOf(i), i, ErrInvariant, "mask %d, want 0 or 1", m)
		case math.Float32bits(v) != 0:
			return rowError(r.spanOf(i), i, ErrInvariant, "mask 0 with log-probability %v, not 0", v)
		}
	}
	if trained == 0 {
		return rowError(-1, -1, ErrNoTokens, "no token has mask 1")
	}
	if err := r.checkProvenance(trained); err != nil {
		return err
	}
	if err := r.checkInside(); err != nil {
		return err
	}
	return r.checkFacts()
}

func (r *Row) checkSpans(n int) error {
	k := len(r.TurnRoles)
	if len(r.TurnOffsets) != k+1 {
		return rowError(-1, -1, ErrLength, "%d offsets for %d spans", len(r.TurnOffsets), k)
	}
	if r.TurnOffsets[0] != 0 || int(r.TurnOffsets[k]) != n {
		return rowError(-1, -1, ErrInvariant, "spans cover tokens %d to %d of %d", r.TurnOffsets[0], r.TurnOffsets[k], n)
	}
	for i, role := range r.TurnRoles {
		if r.TurnOffsets[i] > r.TurnOffsets[i+1] {
			return rowError(i, -1, ErrInvariant, "span ends before it begins")
		}
		if role < 0 || int(role) >= len(roles.Words) {
			return rowError(i, -1, ErrInvariant, "unknown role %d", role)
		}
	}
	return nil
}

// checkProvenance verifies that the mask and the versions match the spans: only assistant spans
// contain sampled tokens, and Unscored is the number of sampled tokens with mask 0.
func (r *Row) checkProvenance(trained int) error {
	first, sampled := len(r.InputIDs), 0
	for k, role := range r.TurnRoles {
		lo, hi := int(r.TurnOffsets[k]), int(r.TurnOffsets[k+1])
		if Role(role) == RoleAssistant {
			if hi > lo {
				first = min(first, lo)
			}
			sampled += hi - lo
			for i := lo; i < hi && r.Versions != nil; i++ {
				if r.Versions[i] < -1 {
					return rowError(k, i, ErrInvariant, "version %d, want ≥ -1", r.Versions[i])
				}
			}
			continue
		}
		for i := lo; i < hi; i++ {
			if r.LossMask[i] != 0 {
				return rowError(k, i, ErrInvariant, "mask 1 in a %s span", Role(role))
			}
			if r.Versions != nil && r.Versions[i] != -1 {
				return rowError(k, i, ErrInvariant, "version %d on a token that was not sampled", r.Versions[i])
			}
		}
	}
	if int(r.PromptLength) != first {
		return rowError(-1, -1, ErrInvariant, "prompt length is %d, but the first sampled token is at %d", r.PromptLength, first)
	}
	if sampled-trained != int(r.Unscored) {
		return rowError(-1, -1, ErrInvariant, "the row has %d sampled tokens, but %d with mask 1 and %d unscored", sampled, trained, r.Unscored)
	}
	return nil
}

func (r *Row) checkFacts() error {
	switch calls := int(r.LastCall - r.FirstCall); {
	case r.SegmentIndex < 0 || r.SegmentIndex >= r.SegmentCount:
		return rowError(-1, -1, ErrInvariant, "segment index %d is out of range for %d segments", r.SegmentIndex, r.SegmentCount)
	case r.Chain < 0 || int(r.ChainKind) >= len(chainKinds.Words):
		return rowError(-1, -1, ErrInvariant, "the row belongs to chain %d of kind %s", r.Chain, r.ChainKind)
	case r.Chain == 0 && r.ChainKind != ChainMain:
		return rowError(-1, -1, ErrInvariant, "chain 0 has kind %s, want %s", r.ChainKind, ChainMain)
	case r.Parent != Parent{} && (r.ChainKind != ChainSubagent || r.Parent.Step < 1 || r.Parent.Chain < 0 || r.Parent.Chain >= r.Chain):
		return rowError(-1, -1, ErrInvariant, "%s chain %d cannot be started by step %d of chain %d", r.ChainKind, r.Chain, r.Parent.Step, r.Parent.Chain)
	case r.FirstCall < 0 || calls <= 0:
		return rowError(-1, -1, ErrInvariant, "the range of calls, %d to %d, is empty or negative", r.FirstCall, r.LastCall)
	case len(r.FinishReasons) != calls || len(r.StepIDs) != calls:
		return rowError(-1, -1, ErrLength, "%d calls, %d finish reasons, %d step ids", calls, len(r.FinishReasons), len(r.StepIDs))
	case r.Grade >= Quarantined:
		return rowError(-1, -1, ErrInvariant, "a row cannot have grade %s", r.Grade)
	case !r.Source.proves(r.Grade):
		return rowError(-1, -1, ErrInvariant, "prompt source %s does not prove grade %s", r.Source, r.Grade)
	case r.Trimmed < 0 || (r.Trimmed > 0) != (r.Flags&FlagRealigned != 0):
		return rowError(-1, -1, ErrInvariant, "%d tokens are trimmed, but the flags are %q", r.Trimmed, r.Flags)
	case r.Flags&FlagCut != 0 && !r.Truncated:
		return rowError(-1, -1, ErrInvariant, "flag \"cut\" is set, but truncated is false")
	case r.Flags&FlagLength != 0 && (!r.Truncated || r.FinishReasons[calls-1] != FinishLength):
		return rowError(-1, -1, ErrInvariant, "flag \"length\" is set, but truncated is %v and the last finish reason is %q", r.Truncated, r.FinishReasons[calls-1])
	case r.Flags>>len(flagWords) != 0:
		return rowError(-1, -1, ErrInvariant, "unknown bits in flags %#x", uint16(r.Flags))
	}
	return r.checkRealigned()
}

// checkRealigned verifies Realigned. Realigned can be empty even for a realigned row, because a
// dataset does not have to store it.
func (r *Row) checkRealigned() error {
	if len(r.Realigned) == 0 {
		return nil
	}
	if r.Flags&FlagRealigned == 0 || r.Trimmed == 0 {
		return rowError(-1, -1, ErrInvariant, "the row has %d realigned positions, but %d trimmed tokens and flags %q", len(r.Realigned), r.Trimmed, r.Flags)
	}
	if calls := int(r.LastCall - r.FirstCall); len(r.Realigned) >= calls {
		return rowError(-1, -1, ErrInvariant, "the row has %d realigned positions and %d calls, but must have fewer realigned positions than calls", len(r.Realigned), calls)
	}
	for i := range r.Realigned {
		d := &r.Realigned[i]
		at := int(d.Offset)
		switch {
		case at < 0 || at >= len(r.InputIDs):
			return rowError(-1, at, ErrInvariant, "realigned past the end of the row (%d tokens)", len(r.InputIDs))
		case i > 0 && (d.Offset <= r.Realigned[i-1].Offset || d.Call <= r.Realigned[i-1].Call):
			return rowError(r.spanOf(at), at, ErrInvariant, "realigned by call %d after token %[3]d was realigned by call %[2]d: tokens and calls must be in ascending order", d.Call, r.Realigned[i-1].Call, r.Realigned[i-1].Offset)
		case d.Kind != DivergedInLast:
			return rowError(r.spanOf(at), at, ErrInvariant, "realigned with kind %q, want last_output", d.Kind)
		case len(d.Row) == 0 || len(d.Row) > DivergenceWindow || len(d.Prompt) == 0 || len(d.Prompt) > DivergenceWindow:
			return rowError(r.spanOf(at), at, ErrInvariant, "realigned with %d ids from the row and %d from the prompt, want 1 to %d each", len(d.Row), len(d.Prompt), DivergenceWindow)
		case r.LossMask[at] != 0 || d.Prompt[0] != r.InputIDs[at] || d.Row[0] == d.Prompt[0]:
			return rowError(r.spanOf(at), at, ErrInvariant, "realigned from id %d to id %d, but the row has id %d with mask %d", d.Row[0], d.Prompt[0], r.InputIDs[at], r.LossMask[at])
		}
	}
	return nil
}

// spanOf returns the index of the span that contains token i, or -1.
func (r *Row) spanOf(i int) int {
	for k := range r.TurnRoles {
		if i < int(r.TurnOffsets[k+1]) {
			return k
		}
	}
	return -1
}

// proves reports whether prompts from s can have grade g.
func (s PromptSource) proves(g Grade) bool {
	switch s {
	case SourceTurns, SourceTap:
		return g >= Exact
	case SourceStored, SourceTrace:
		return g >= CountVerified
	case SourceLiteral:
		return g >= Unverified
	case SourceNone:
	}
	return false
}

func rowError(span, token int, err error, format string, args ...any) error {
	return &AlignError{Turn: span, Token: token, Err: &detailError{err, fmt.Sprintf(format, args...)}}
}
