package decode

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/tokenizetest"
)

var update = flag.Bool("update", false, "write testdata/conversations.json")

// A conversation is one case of testdata/conversations.json. The tests of the Python package read this file: the
// messages must be the same there.
type conversation struct {
	Name string `json:"name"`
	// Special lists the special tokens of the tokenizer. Its other tokens are the 256 bytes, in the order of the
	// letters that stand for them.
	Special []string `json:"special"`
	// Template and Case name a text in testdata/chat-templates/expected.json.gz. It is the prompt. Replace has
	// the texts that stand for the template's own tokens.
	Template string            `json:"template,omitempty"`
	Case     string            `json:"case,omitempty"`
	Replace  map[string]string `json:"replace,omitempty"`
	// Spans are the other spans of the row: the role and the text of each.
	Spans    []spanText      `json:"spans"`
	Messages json.RawMessage `json:"messages"`
}

type spanText struct {
	Role tokenize.Role `json:"role"`
	Text string        `json:"text"`
}

// byteTokenizer returns a tokenizer with one token per byte, and special tokens.
func byteTokenizer(tb testing.TB, special []string) *bpe.Tokenizer {
	tb.Helper()
	vocab, added := map[string]int{}, []any{}
	var letters []rune
	more := rune(256)
	for b := range rune(256) { // as in GPT-2
		if b >= '!' && b <= '~' || b >= '\u00a1' && b <= '\u00ac' || b >= '\u00ae' && b <= '\u00ff' {
			letters = append(letters, b)
		} else {
			letters = append(letters, more)
			more++
		}
	}
	slices.Sort(letters)
	for id, letter := range letters {
		vocab[string(letter)] = id
	}
	for i, piece := range special {
		added = append(added, map[string]any{"id": 256 + i, "content": piece, "special": true, "normalized": false, "lstrip": false, "rstrip": false, "single_word": false})
	}
	bytelevel := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true}
	body, err := json.Marshal(map[string]any{
		"version": "1.0", "added_tokens": added, "pre_tokenizer": bytelevel, "decoder": bytelevel,
		"model": map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	tok, err := bpe.Load(fstest.MapFS{bpe.FileJSON: {Data: body}}, bpe.Options{Experimental: true})
	if err != nil {
		tb.Fatal(err)
	}
	return tok
}

// rendered returns the texts of the templates: by template and by case.
func rendered(tb testing.TB) map[string]map[string]struct{ Out *string } {
	tb.Helper()
	b, err := tokenizetest.Gunzip(filepath.Join("..", "..", "..", "..", "testdata", "chat-templates", "expected.json.gz"))
	var all map[string]map[string]struct{ Out *string }
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

// prompt returns the text that the template rendered.
func (c *conversation) prompt(texts map[string]map[string]struct{ Out *string }) string {
	text := *texts[c.Template][c.Case].Out
	for from, to := range c.Replace {
		text = strings.ReplaceAll(text, from, to)
	}
	return text
}

// rowCases returns the cases: the prompts of templates, and answers of the policy.
func rowCases(tb testing.TB) (all []conversation) {
	tb.Helper()
	texts := rendered(tb)
	for i := range forms {
		f := &forms[i]
		special := slices.Clone(f.needs)
		for piece := range f.marks {
			if !slices.Contains(special, piece) {
				special = append(special, piece)
			}
		}
		if f.harmony {
			special = append(special, "<|constrain|>")
		}
		slices.Sort(special)
		for _, of := range answers[f.name] {
			special := slices.Concat(special, of.special)
			for _, template := range of.templates {
				for _, name := range []string{"s1_user", "s2_multi", "s4b_tools_nofloat", "s5_tools_str", "s6_parallel", "s8_think_hist", "s12_long_agent"} {
					if texts[template][name].Out != nil {
						all = append(all, conversation{Name: template + " " + name, Special: special, Template: template, Case: name, Replace: of.replace, Spans: []spanText{{tokenize.RoleAssistant, "Bye."}}})
					}
				}
			}
			for k, spans := range of.spans {
				all = append(all, conversation{Name: f.name + " " + strconv.Itoa(k), Special: special, Spans: spans})
			}
		}
	}
	return all
}

// The messages of rows are those in testdata/conversations.json.
func TestConversations(t *testing.T) {
	t.Parallel()
	path := filepath.Join("testdata", "conversations.json")
	texts, cases := rendered(t), rowCases(t)
	for i := range cases {
		c := &cases[i]
		var spans []span
		if c.Template != "" {
			spans = append(spans, span{tokenize.RolePrompt, c.prompt(texts)})
		}
		for _, s := range c.Spans {
			spans = append(spans, span{s.Role, s.Text})
		}
		tok := byteTokenizer(t, c.Special)
		c.Messages = AppendJSON(nil, New(tok).Messages(rowOf(t, tok, spans...)))
	}
	var now bytes.Buffer
	e := json.NewEncoder(&now)
	e.SetEscapeHTML(false)
	for _, c := range cases {
		if err := e.Encode(c); err != nil {
			t.Fatal(err)
		}
	}
	if *update {
		if err := os.WriteFile(path, now.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	was, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(was) != now.String() {
		a, b := strings.Split(string(was), "\n"), strings.Split(now.String(), "\n")
		for i := range min(len(a), len(b)) {
			if a[i] != b[i] {
				t.Fatalf("line %d:\nhas  %s\nwant %s; after a change that is right, use -update", i+1, b[i], a[i])
			}
		}
		t.Fatalf("%d lines, want %d", len(b), len(a))
	}
}

// The published tokenizers give the same messages as the tokenizers with one token per byte.
func TestPublishedTokenizers(t *testing.T) {
	t.Parallel()
	texts, cases := rendered(t), rowCases(t)
	for template, name := range map[string]string{
		"cfg_qwen3.jinja": "qwen3", "openai-gpt-oss-120b.jinja": "gpt-oss", "cfg_mistral-nemo-tekken.jinja": "mistral-nemo-tekken",
		"meta-llama-Llama-3.1-8B-Instruct.jinja": "llama3.1", "deepseek-ai-DeepSeek-V3.1.jinja": "deepseek-v3", "GLM-4.6.jinja": "glm4.5", "google-gemma-2-2b-it.jinja": "gemma3",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tok, d := decoderOf(t, name)
			n := 0
			for i := range cases {
				c := &cases[i]
				var spans []span
				switch {
				case c.Template == template:
					spans = append(spans, span{tokenize.RolePrompt, c.prompt(texts)})
				case c.Template != "" || !strings.HasPrefix(c.Name, d.form.name+" ") || !d.hasAll(c.Special):
					continue
				}
				for _, s := range c.Spans {
					spans = append(spans, span{s.Role, s.Text})
				}
				simple := byteTokenizer(t, c.Special)
				got, want := d.Messages(rowOf(t, tok, spans...)), New(simple).Messages(rowOf(t, simple, spans...))
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%s:\ngot  %+v\nwant %+v", c.Name, got, want)
				}
				n++
			}
			if n == 0 {
				t.Errorf("%d cases", n)
			}
		})
	}
}
