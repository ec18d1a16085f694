package continuity

import (
	"testing"

	"github.com/rollout-rl/rollout/collector/prompt/prompttest"
	"github.com/rollout-rl/rollout/collector/tap"
)

// TestCollision proves that two prompts with equal hashes are not confused.
func TestCollision(t *testing.T) {
	t.Parallel()
	m := prompttest.Qwen3(t)
	table, err := New(Config{Tokenizer: m.Tokenizer, Template: m.Template})
	if err != nil {
		t.Fatal(err)
	}
	ids := func(text string) []int32 {
		all, err := m.Tokenizer.AppendTokens(nil, text)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	const header = "<|im_end|>\n<|im_start|>assistant\n"
	x, y := ids("<|im_start|>user\nx"+header), ids("<|im_start|>user\ny"+header)
	const call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call><|im_end|>"
	output, printed := ids("a\n"+call), ids(call+"\n<|im_start|>user\n<tool_response>\nz\n</tool_response>"+header)
	table.Answered(&tap.Call{Status: 200, Prompt: x, Output: output})
	if sent, n := table.Prompt(append(x, printed...)); sent == nil || n != 1 {
		t.Fatal("the prompt is not spliced")
	}
	s := table.sites[table.m.places(nil, table.seed, x)[0].hash]
	s.hash = table.m.places(nil, table.seed, y)[0].hash
	table.sites[s.hash] = s // as if y had the hash of x
	if sent, _ := table.Prompt(append(y, printed...)); sent != nil {
		t.Errorf("a prompt is spliced with the call of another one: %v", sent)
	}
	table.Answered(&tap.Call{Status: 200, Prompt: y, Output: output})
	if got := table.Stats(); got.Calls != 1 {
		t.Errorf("a call is in the site of another prompt: %+v", got)
	}
}
