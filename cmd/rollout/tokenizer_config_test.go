package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/tokenize"
)

// rstripFolder returns a folder with the Qwen3 tokenizer. Only its tokenizer_config.json says that
// <tool_call> strips the white space after it.
func rstripFolder(t *testing.T) string {
	t.Helper()
	dir, qwen := t.TempDir(), filepath.Join("..", "..", "testdata", "tokenizers", "qwen3")
	for _, name := range []string{"tokenizer.json.zst", "tokenizer_config.json"} {
		b, err := os.ReadFile(filepath.Join(qwen, name))
		if err != nil {
			t.Fatal(err)
		}
		if name == "tokenizer_config.json" {
			var config map[string]any
			if err := json.Unmarshal(b, &config); err != nil {
				t.Fatal(err)
			}
			config["added_tokens_decoder"].(map[string]any)["151657"].(map[string]any)["rstrip"] = true
			if b, err = json.Marshal(config); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A flag of an added token that only tokenizer_config.json has can change ids without changing the
// length. The row has the ids of the server. A resume with another tokenizer_config.json is
// refused.
func TestTokenizerConfigMerged(t *testing.T) {
	t.Parallel()
	const dir, name = "../../testdata/cases", "added-token-flag"
	raw, err := os.ReadFile(filepath.Join(dir, name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var recorded struct {
		Exchanges []struct {
			ModelCalls []struct {
				InputIDs []int32 `json:"input_ids"`
			} `json:"model_calls"`
		}
	}
	if err := json.Unmarshal(raw, &recorded); err != nil {
		t.Fatal(err)
	}
	cases, err := lettasim.LoadCases(os.DirFS(dir), ".")
	if err != nil {
		t.Fatal(err)
	}
	sim, err := lettasim.New(lettasim.Config{Cases: slices.DeleteFunc(cases, func(c *lettasim.Case) bool { return c.Name != name })})
	if err != nil {
		t.Fatal(err)
	}
	out, tokenizer := filepath.Join(t.TempDir(), "run"), rstripFolder(t)
	tasks := writeFile(t, "tasks.jsonl", []byte(`{"id":"`+name+`","prompt":"Print <tool_call> now please [case:single]"}`+"\n"))
	args := []string{"collect", "--server", serveSim(t, sim), "--model", simModel, "--tasks", tasks, "--out", out, "--tokenizer"}
	mustRun(t, exit.OK, append(args, tokenizer)...)
	rows := readDataset(t, out).rows[sampleID{name, 0}]
	if len(rows) != 1 {
		t.Fatalf("%d rows, want 1", len(rows))
	}
	row, want := rows[0], recorded.Exchanges[0].ModelCalls[0].InputIDs
	if row.Verification != tokenize.CountVerified.String() || !slices.Equal(row.InputIDs[:row.PromptLength], want) {
		t.Errorf("%s, prompt %v\nwant %v", row.Verification, row.InputIDs[:row.PromptLength], want)
	}
	r := mustRun(t, exit.Folder, append(args, filepath.Join("..", "..", "testdata", "tokenizers", "qwen3"), "--resume")...)
	if !strings.Contains(r.stderr, "tokenizer") {
		t.Errorf("a resume with another tokenizer_config.json printed\n%s", r.stderr)
	}
}
