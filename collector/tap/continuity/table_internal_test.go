package continuity

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// TestCollision proves that two prompts with equal hashes are not confused.
func TestCollision(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(bpetest.Path("qwen3", bpe.FileConfig))
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		ChatTemplate string `json:"chat_template"`
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		t.Fatal(err)
	}
	template, err := chat.Parse("qwen3", config.ChatTemplate, chat.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tok := bpetest.Tokenizer(t, "qwen3")
	table, err := New(Config{Tokenizer: tok, Template: template})
	if err != nil {
		t.Fatal(err)
	}
	ids := func(text string) []int32 {
		all, err := tok.AppendTokens(nil, text)
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
