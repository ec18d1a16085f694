package tokenize

// A Balance splits the sampled tokens of samples into terms. Each sampled token is counted in exactly
// one of the terms on the right:
//
//	Sampled == Trained + Unscored + Trimmed + Auxiliary + Superseded + CutAnswers + Quarantined
//
// A Balance does not include tokens that are in neither a row nor a failure: the tokens beyond
// AlignConfig.MaxRowTokens, and the tokens of dropped rows.
type Balance struct {
	Sampled  int64 `json:"sampled"`
	Trained  int64 `json:"trained"`            // mask 1
	Unscored int64 `json:"unscored,omitempty"` // mask 0; see Row.Unscored
	Trimmed  int64 `json:"trimmed,omitempty"`  // see Row.Trimmed
	LostTokens
}

// NewBalance returns the Balance of these terms.
func NewBalance(trained, unscored, trimmed int64, lost LostTokens) Balance {
	return Balance{Sampled: trained + unscored + trimmed + lost.Sum(), Trained: trained, Unscored: unscored, Trimmed: trimmed, LostTokens: lost}
}

// LostTokens counts the sampled tokens of failures by the reason why the tokens are in no row.
type LostTokens struct {
	Auxiliary   int64 `json:"auxiliary,omitempty"`   // ReasonAuxiliary
	Superseded  int64 `json:"superseded,omitempty"`  // ReasonSuperseded
	CutAnswers  int64 `json:"cut_answers,omitempty"` // ReasonCutAnswer
	Quarantined int64 `json:"quarantined,omitempty"` // every other reason, and failed samples
}

// Count adds the tokens of a failure. The arguments are Failure.Reason, Failure.Call and the length of
// Failure.OutputIDs.
func (t *LostTokens) Count(reason string, call int32, tokens int) {
	n := int64(tokens)
	if call < 0 {
		reason = "" // a failed sample
	}
	switch reason {
	case ReasonAuxiliary.String():
		t.Auxiliary += n
	case ReasonSuperseded.String():
		t.Superseded += n
	case ReasonCutAnswer.String():
		t.CutAnswers += n
	default:
		t.Quarantined += n
	}
}

// Add adds the counts of o.
func (t *LostTokens) Add(o LostTokens) {
	t.Auxiliary += o.Auxiliary
	t.Superseded += o.Superseded
	t.CutAnswers += o.CutAnswers
	t.Quarantined += o.Quarantined
}

// Sum returns the number of tokens of all reasons.
func (t LostTokens) Sum() int64 { return t.Untrained() + t.Quarantined }

// Untrained returns the number of tokens in calls that are valid but not trained on: the
// function Untrained returns true for their reason.
func (t LostTokens) Untrained() int64 { return t.Auxiliary + t.Superseded + t.CutAnswers }

// Untrained reports whether a failure is a call that is valid but not trained on. No check failed: the
// call is in an auxiliary chain, or its answer was superseded or cut. The arguments are Failure.Reason
// and Failure.Call.
func Untrained(reason string, call int32) bool {
	var lost LostTokens
	lost.Count(reason, call, 1)
	return lost.Untrained() > 0
}
