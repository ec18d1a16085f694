package tokenize_test

import (
	"encoding/json"
	"testing"

	"github.com/rollout-rl/rollout/tokenize"
)

// TestBalance counts failures of every reason, and checks that each token is in one term and that a
// term of zero is not written.
func TestBalance(t *testing.T) {
	t.Parallel()
	var lost tokenize.LostTokens
	tokens, n := int64(0), 1
	for r := tokenize.ReasonNone; ; r++ {
		word, err := r.MarshalText()
		if err != nil {
			break // after the last reason
		}
		f := &tokenize.Failure{Reason: string(word), OutputIDs: make([]int32, n)}
		before := lost
		lost.Count(f.Reason, f.Call, len(f.OutputIDs))
		tokens += int64(n)
		untrained := r == tokenize.ReasonAuxiliary || r == tokenize.ReasonSuperseded || r == tokenize.ReasonCutAnswer
		if tokenize.Untrained(f.Reason, 0) != untrained || tokenize.Untrained(f.Reason, -1) || (lost.Quarantined == before.Quarantined) != untrained || lost.Sum() != tokens {
			t.Errorf("%s: untrained %v, counts %+v after %+v", r, tokenize.Untrained(f.Reason, 0), lost, before)
		}
		n *= 2
	}
	sum := lost
	sum.Count("superseded", -1, 10) // a failed sample
	sum.Add(lost)
	tokens += 5
	b := tokenize.NewBalance(3, 4, 5, sum)
	if b.Sampled != 3+4+5+2*tokens || b.Untrained() != 2*lost.Untrained() || b.Quarantined != 2*lost.Quarantined+10 || lost.Auxiliary == 0 || lost.Superseded == 0 || lost.CutAnswers == 0 {
		t.Errorf("%+v of twice %+v", b, lost)
	}
	text, err := json.Marshal(tokenize.NewBalance(3, 0, 0, tokenize.LostTokens{Superseded: 2}))
	if want := `{"sampled":5,"trained":3,"superseded":2}`; err != nil || string(text) != want {
		t.Errorf("%s, %v, want %s", text, err, want)
	}
}
