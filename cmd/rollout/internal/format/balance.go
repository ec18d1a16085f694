package format

import (
	"strings"

	"github.com/rollout-rl/rollout/tokenize"
)

// Balance formats the terms of the sampled tokens that are not zero, such as
// "900 trained + 90 auxiliary + 10 unscored".
func Balance(b *tokenize.Balance) string {
	terms := []string{Count(b.Trained) + " trained"}
	add := func(n int64, name string) {
		if n != 0 {
			terms = append(terms, Count(n)+" "+name)
		}
	}
	add(b.Auxiliary, "auxiliary")
	add(b.Superseded, "superseded")
	add(b.CutAnswers, "cut")
	add(b.Unscored, "unscored")
	add(b.Trimmed, "trimmed")
	add(b.Quarantined, "quarantined")
	return strings.Join(terms, " + ")
}
