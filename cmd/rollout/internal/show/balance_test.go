package show

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// TestSummaryBalance checks that the summary shows the terms of the sampled tokens if any token is
// not trained, and that calls that were left untrained on purpose do not count as quarantined.
func TestSummaryBalance(t *testing.T) {
	t.Parallel()
	failure := func(reason string, call int32, tokens int) tokenize.Failure {
		return tokenize.Failure{Class: "untrained", Reason: reason, Call: call, OutputIDs: make([]int32, tokens)}
	}
	plain := collector.Yield{Sampled: 17, Trained: 10, UnscoredTokens: 3, Lost: tokenize.LostTokens{Quarantined: 4}, LostCalls: 1}
	chains := plain
	chains.Sampled, chains.UntrainedCalls = 17+1900, 3
	chains.Lost.Auxiliary, chains.Lost.Superseded = 1500, 400
	for _, tt := range []struct {
		name     string
		yield    collector.Yield
		failures []tokenize.Failure
		text     []string // lines; none of the words in not
		not      []string
		json     string
	}{
		{
			"a Letta run", plain,
			[]tokenize.Failure{failure("no_prompt", 1, 4)},
			[]string{"             10 trained + 3 unscored + 4 quarantined\n", "  quarantine no_prompt 1\n", "  lost       1 calls are quarantined"},
			[]string{"untrained"},
			`"balance":{"sampled":17,"trained":10,"unscored":3,"quarantined":4},`,
		},
		{
			"all tokens are trained",
			collector.Yield{Sampled: 10, Trained: 10},
			nil,
			nil,
			[]string{"untrained", " + ", `"balance"`},
			`"sampled":10`,
		},
		{
			"several conversations", chains,
			[]tokenize.Failure{failure("no_prompt", 1, 4), failure("auxiliary", 2, 700), failure("auxiliary", 3, 800), failure("superseded", 4, 400)},
			[]string{
				"             10 trained + 1,500 auxiliary + 400 superseded + 3 unscored + 4 quarantined\n",
				"  untrained  calls: auxiliary 2, superseded 1; rollout failures --all lists them\n",
				"  quarantine no_prompt 1\n", "  lost       1 calls are quarantined",
			},
			nil,
			`"balance":{"sampled":1917,"trained":10,"unscored":3,"auxiliary":1500,"superseded":400,"quarantined":4},"untrained_calls":3,`,
		},
	} {
		tally := new(Tally)
		tally.Add(&tokenize.Sample{Rows: make([]tokenize.Row, 1), Failures: tt.failures})
		s := Summarize(collector.Stats{Yield: tt.yield}, sink.Stats{}, prompt.Stats{}, tally, 0)
		body, err := json.Marshal(s)
		if err != nil || !strings.Contains(string(body), tt.json) {
			t.Errorf("%s: JSON lacks %s: %s, %v", tt.name, tt.json, body, err)
		}
		text := s.text()
		for _, line := range tt.text {
			if !strings.Contains(text, line) {
				t.Errorf("%s: %q is not in\n%s", tt.name, line, text)
			}
		}
		for _, word := range tt.not {
			if strings.Contains(text+string(body), word) {
				t.Errorf("%s: %q is in\n%s%s", tt.name, word, text, body)
			}
		}
	}
}
