package prompt_test

import (
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/collector/prompt"
)

// Both recipes return the prompt that the model saw, even if the server read the tools in another
// order than it showed at creation.
func TestExamine(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	for _, name := range []string{"tool-two", "multi"} {
		rec := recordingOf(t, name)
		reply := live(t, rec)
		reverseTools(reply.Evidence)
		examined, err := prompt.Examine(t.Context(), model, &reply.Reply, reply.Evidence)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range rec.truths() {
			if !slices.Equal(examined[i].Stored.IDs, want.prompt) || !slices.Equal(examined[i].Trace.IDs, want.prompt) {
				t.Errorf("%s: call %d: the model saw another prompt", name, i)
			}
		}
	}
}
