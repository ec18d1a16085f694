package continuity_test

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta/lettatest"
	"github.com/rollout-rl/rollout/collector/prompt/prompttest"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/collector/tap/continuity"
	"github.com/rollout-rl/rollout/collector/tap/continuity/continuitytest"
	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
	"github.com/rollout-rl/rollout/tokenize/tokenizetest"
)

// Qwen3's tokens that end and begin a turn.
const (
	imStart = 151644
	imEnd   = 151645
)

func qwen3(tb testing.TB) continuity.Config {
	tb.Helper()
	m := prompttest.Qwen3(tb)
	return continuity.Config{Tokenizer: m.Tokenizer, Template: m.Template}
}

func newTable(tb testing.TB, cfg continuity.Config) *continuity.Table {
	tb.Helper()
	table, err := continuity.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return table
}

func encode(tb testing.TB, tok *bpe.Tokenizer, text string) []int32 {
	tb.Helper()
	ids, err := tok.AppendTokens(nil, text)
	if err != nil {
		tb.Fatal(err)
	}
	return ids
}

func decode(tb testing.TB, tok *bpe.Tokenizer, ids []int32) string {
	tb.Helper()
	text, err := tok.AppendText(nil, ids, bpe.DecodeOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// decide asks for one prompt, and finds its reason by the counters.
func decide(tb testing.TB, table *continuity.Table, asked []int32) (sent []int32, reason continuity.Reason) {
	tb.Helper()
	before := table.Stats().Prompts
	sent, spliced := table.Prompt(asked)
	if n := changedTurns(asked, sent); n != spliced {
		tb.Fatalf("%d turns differ, but Prompt returned %d", n, spliced)
	}
	found := false
	for r, n := range table.Stats().Prompts {
		switch {
		case n == before[r]:
		case n == before[r]+1 && !found:
			found, reason = true, r
		default:
			tb.Fatalf("one prompt was counted as %v from %d to %d", r, before[r], n)
		}
	}
	if !found || reason.Spliced() != (sent != nil) {
		tb.Fatalf("counted as %v (%v), and sent is %v", reason, found, sent)
	}
	return sent, reason
}

// changedTurns counts the turns of a spliced prompt that differ from asked.
func changedTurns(asked, sent []int32) (n int) {
	if sent == nil {
		return 0
	}
	split := func(ids []int32) (turns [][]int32) {
		for i := slices.Index(ids, imStart); i >= 0; {
			next := slices.Index(ids[i+1:], imStart)
			if next < 0 {
				return append(turns, ids[i:])
			}
			turns, ids, i = append(turns, ids[i:i+1+next]), ids[i+1+next:], 0
		}
		return turns
	}
	a, s := split(asked), split(sent)
	for i := range min(len(a), len(s)) {
		if !slices.Equal(a[i], s[i]) {
			n++
		}
	}
	return n
}

func answered(table *continuity.Table, asked, sent, output []int32) {
	c := &tap.Call{Status: 200, Prompt: asked, Output: output}
	if sent != nil {
		c.Prompt, c.Asked = sent, asked
	}
	table.Answered(c)
}

type generation struct {
	Asked  []int32
	Output []int32
	Status int
}

func recorded(tb testing.TB, name string) []generation {
	tb.Helper()
	raw, err := tokenizetest.Recording(filepath.Join(lettatest.Dir(tb), name+".json.gz"))
	if err != nil {
		tb.Fatal(err)
	}
	var file struct {
		Exchanges []struct {
			Calls []struct {
				Path     string  `json:"path"`
				InputIDs []int32 `json:"input_ids"`
				Status   int     `json:"status"`
				Response json.RawMessage
			} `json:"model_calls"`
		}
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	var all []generation
	for _, e := range file.Exchanges {
		for _, c := range e.Calls {
			if c.Path != "/generate" {
				continue
			}
			var answer struct {
				OutputIDs []int32 `json:"output_ids"`
			}
			if c.Status == 200 {
				if err := json.Unmarshal(c.Response, &answer); err != nil {
					tb.Fatalf("%s: %v", name, err)
				}
			}
			all = append(all, generation{c.InputIDs, answer.OutputIDs, c.Status})
		}
	}
	return all
}

func checkSplice(tb testing.TB, name string, asked, sent []int32, outputs [][]int32) {
	tb.Helper()
	if err := continuitytest.Check(bpetest.Tokenizer(tb, "qwen3"), asked, sent, outputs); err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
}

var callPattern = regexp.MustCompile(`(?s)<tool_call>(.*?)</tool_call>`)
