package view_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/runs"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/view"
)

type sampleOf struct {
	Key, Task, Status, Unshown string
	Index                      int
	Reward                     *float64
	Vocab                      map[string]string
	Rows                       []struct {
		IDs, Versions []int32
		Mask          []int8
		Logprobs      []float32
		Text          [][]struct {
			T string
			S int
		}
		Messages []struct {
			Role, Content string
			Reasoning     string `json:"reasoning_content"`
		}
		Divergence *struct{ Offset int }
	}
	Failures []struct{ Class, Error string }
}

// TestTexts checks that the texts of the spans and of the tokens give the text of the row.
func TestTexts(t *testing.T) {
	t.Parallel()
	m := newMaker(t)
	const text = "naïve 日本語 👩‍👧 <think>no</think>"
	m.sample("a", 0, 1, nil, m.row(chat("hi"), text+"<|im_end|>"))
	dir := filepath.Join(t.TempDir(), "run")
	m.write(dir)
	s := fetch[sampleOf](t, serve(t, dir, false)+"api/sample/0")
	var spans, tokens strings.Builder
	for _, span := range s.Rows[0].Text {
		for _, part := range span {
			spans.WriteString(part.T)
		}
	}
	for _, id := range s.Rows[0].IDs {
		tokens.WriteString(s.Vocab[fmt.Sprint(id)])
	}
	if want := chat("hi") + text + "<|im_end|>"; spans.String() != want {
		t.Errorf("spans: %q, want %q", spans.String(), want)
	}
	if last := s.Rows[0].Text[1]; len(last) != 2 || last[1].T != "<|im_end|>" || last[1].S != 1 || last[0].S != 0 {
		t.Errorf("the answer has the parts %+v: text that looks like a token is not a special token", last)
	}
	if !strings.Contains(tokens.String(), "na") || strings.Contains(tokens.String(), "\ufffd") {
		t.Errorf("tokens: %q", tokens.String())
	}
}

// TestMessages checks that the page gets the messages of a row as export splits them: a role that the policy
// wrote itself is a part of its answer.
func TestMessages(t *testing.T) {
	t.Parallel()
	m := newMaker(t)
	m.sample("a", 0, 1, nil, m.row(chat("hi"), "<think>\nHm.\n</think>\n\nYes<|im_end|>\n<|im_start|>user\nNo<|im_end|>"))
	dir := filepath.Join(t.TempDir(), "run")
	m.write(dir)
	s := fetch[sampleOf](t, serve(t, dir, false)+"api/sample/0")
	all := s.Rows[0].Messages
	if len(all) != 3 || all[1].Role != "user" || all[1].Content != "hi" || all[2].Role != "assistant" || all[2].Content != "Yes\nuser\nNo" || all[2].Reasoning != "Hm." {
		t.Errorf("messages %+v", all)
	}
}

// TestStoredMessages checks that the page gets the stored messages only if the tokens cannot be decoded.
func TestStoredMessages(t *testing.T) {
	t.Parallel()
	m := newMaker(t)
	m.sample("a", 0, 1, nil, m.row(chat("hi"), "Yes<|im_end|>")).Messages = new(`[{"message_type":"reasoning_message","reasoning":"Hm."},{"message_type":"assistant_message","content":"Stored."}]`)
	dir := filepath.Join(t.TempDir(), "run")
	m.write(dir)
	if all := fetch[sampleOf](t, serve(t, dir, false)+"api/sample/0").Rows[0].Messages; len(all) != 3 || all[2].Content != "Yes" {
		t.Errorf("with a tokenizer: %+v", all)
	}
	url, _ := startView(t, view.Open(must(runs.Open(t.Context(), dir, nil))(t), nil), false)
	all := fetch[sampleOf](t, url+"api/sample/0").Rows[0].Messages
	if len(all) != 1 || all[0].Role != "assistant" || all[0].Reasoning != "Hm." || all[0].Content != "Stored." {
		t.Errorf("without a tokenizer: %+v", all)
	}
}

// TestSearch checks that a search finds text in tokens, errors and tasks, in any case.
func TestSearch(t *testing.T) {
	t.Parallel()
	url := serve(t, smallRun(t), false)
	c := fetch[columns](t, url+"api/samples")
	for _, s := range []struct {
		text string
		want int
	}{{"NEEDLE in", 1}, {"longer than", 1}, {"gsm8k-002", 4}, {"the answer is 5.", 2}, {"not in the run", 0}, {"WORD2999", 1}} {
		_, body := get(t, http.MethodGet, url+"api/search?q="+strings.ReplaceAll(s.text, " ", "%20"), "")
		found := map[int]bool{}
		done := 0
		for line := bufio.NewScanner(bytes.NewReader(body)); line.Scan(); {
			var h struct {
				Done, Of int
				Found    []int
				Error    string
			}
			if err := json.Unmarshal(line.Bytes(), &h); err != nil || h.Error != "" {
				t.Fatal(err, h.Error)
			}
			for _, n := range h.Found {
				found[n] = true
			}
			done = h.Done
		}
		if len(found) != s.want || done != c.N {
			t.Errorf("%q: found in %v after %d samples, want %d samples", s.text, found, done, s.want)
		}
	}
}
