package tokenizetest_test

import (
	"encoding/json"
	"testing"

	"github.com/rollout-rl/rollout/tokenize/tokenizetest"
)

// TestText checks that replies with Text are JSON and that a fifth of their bytes are messages.
func TestText(t *testing.T) {
	t.Parallel()
	all, messages := 0, 0
	for _, body := range tokenizetest.Corpus(1, 8<<20, tokenizetest.Options{Text: true, Logprobs: true}) {
		var reply struct{ Messages json.RawMessage }
		if err := json.Unmarshal(body, &reply); err != nil {
			t.Fatal(err)
		}
		all, messages = all+len(body), messages+len(reply.Messages)
	}
	if share := float64(messages) / float64(all); share < 0.18 || share > 0.25 {
		t.Errorf("messages are %.1f %% of the bytes, want 18 to 25", 100*share)
	}
}
