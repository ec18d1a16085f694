package prompttest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// A Model contains the tokenizer and the chat template that are used to generate a life.
type Model struct {
	Tokenizer *bpe.Tokenizer
	Template  *chat.Template
}

var template = sync.OnceValues(func() (*chat.Template, error) {
	raw, err := os.ReadFile(bpetest.Path("qwen3", bpe.FileConfig))
	if err != nil {
		return nil, err
	}
	var config struct {
		ChatTemplate string `json:"chat_template"`
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		return nil, err
	}
	return chat.Parse("qwen3", config.ChatTemplate, chat.Options{})
})

// Qwen3 returns the model of the recorded exchanges. All callers share one tokenizer and template.
func Qwen3(tb testing.TB) Model {
	tb.Helper()
	t, err := template()
	if err != nil {
		tb.Fatal(err)
	}
	return Model{Tokenizer: bpetest.Tokenizer(tb, "qwen3"), Template: t}
}

// Lives returns n different lives for the Qwen3 model, keyed by name: long-00, long-01 and so on.
func Lives(tb testing.TB, n int) map[string][]byte {
	tb.Helper()
	m := Qwen3(tb)
	all := make(map[string][]byte, n)
	for i := range n {
		name := fmt.Sprintf("long-%02d", i)
		life, err := m.Life(name, uint64(i))
		if err != nil {
			tb.Fatal(err)
		}
		all[name] = life
	}
	return all
}

// Write writes n lives to a new folder and returns the folder, which can be passed to rollout
// simulate --exchanges.
func Write(tb testing.TB, n int) (dir string) {
	tb.Helper()
	dir = tb.TempDir()
	for name, life := range Lives(tb, n) {
		if err := os.WriteFile(filepath.Join(dir, name+".json"), life, 0o666); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

// Question returns the user message of a life.
func Question(tb testing.TB, life []byte) string {
	tb.Helper()
	var l struct {
		Exchanges []struct {
			Request struct {
				Body struct{ Messages []struct{ Content string } }
			}
		}
	}
	if err := json.Unmarshal(life, &l); err != nil {
		tb.Fatal(err)
	}
	return l.Exchanges[0].Request.Body.Messages[0].Content
}
