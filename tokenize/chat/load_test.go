package chat_test

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rollout-rl/rollout/tokenize/chat"
)

func file(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }

func TestLoad(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		files fstest.MapFS
		names []string
		plain string // output of the template for plain conversations
		tools string // output of the template for conversations with tools
		err   string
	}{
		{
			name:  "text in tokenizer_config.json",
			files: fstest.MapFS{"tokenizer_config.json": file(`{"chat_template": "{{ bos_token }}x{{ eos_token }}", "bos_token": "<s>", "eos_token": {"content": "</s>"}}`)},
			names: []string{"default"}, plain: "<s>x</s>", tools: "<s>x</s>",
		},
		{
			name: "named templates",
			files: fstest.MapFS{"tokenizer_config.json": file(`{"chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"},
				{"name": "rag", "template": "R"}]}`)},
			names: []string{"default", "rag", "tool_use"}, plain: "D", tools: "T",
		},
		{
			name: "jinja file wins",
			files: fstest.MapFS{
				"chat_template.jinja":   file("J{{ unk_token }}{{ cls_token is defined }}\n"),
				"tokenizer_config.json": file(`{"chat_template": "C", "unk_token": "<unk>", "cls_token": null}`),
			},
			names: []string{"default"}, plain: "J<unk>False", tools: "J<unk>False",
		},
		{
			name:  "additional templates",
			files: fstest.MapFS{"chat_template.jinja": file("J"), "additional_chat_templates/tool_use.jinja": file("A")},
			names: []string{"default", "tool_use"}, plain: "J", tools: "A",
		},
		{
			name:  "chat_template.json and special_tokens_map.json",
			files: fstest.MapFS{"chat_template.json": file(`{"chat_template": "{{ bos_token }}"}`), "special_tokens_map.json": file(`{"bos_token": "<b>"}`)},
			names: []string{"default"}, plain: "<b>", tools: "<b>",
		},
		{name: "nothing", files: fstest.MapFS{}, err: "no chat_template.jinja, and no"},
		{name: "bad JSON", files: fstest.MapFS{"tokenizer_config.json": file("{")}, err: "chat: tokenizer_config.json: the text ends where a name is expected (byte 1)"},
		{name: "no object", files: fstest.MapFS{"tokenizer_config.json": file("[]")}, err: "must be an object"},
		{name: "number", files: fstest.MapFS{"tokenizer_config.json": file(`{"chat_template": 1}`)}, err: "must be a string or a list"},
		{name: "element", files: fstest.MapFS{"tokenizer_config.json": file(`{"chat_template": [{"name": "x"}]}`)}, err: "element 0: name and template must be strings"},
		{name: "syntax", files: fstest.MapFS{"chat_template.jinja": file("a\n{% if %}")}, err: "default:2: syntax error"},
		{name: "huge", files: fstest.MapFS{"chat_template.jinja": file(strings.Repeat("x", 2<<20))}, err: "limit reached"},
	} {
		s, err := chat.Load(c.files, chat.Options{})
		if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) || c.name == "nothing" && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: Load = %v, want an error with %q", c.name, err, c.err)
		}
		if err != nil {
			continue
		}
		if got := s.Names(); !slices.Equal(got, c.names) {
			t.Errorf("%s: Names = %q, want %q", c.name, got, c.names)
		}
		for tools, want := range map[bool]string{false: c.plain, true: c.tools} {
			out, err := s.For(tools).Render(nil, chat.Input{})
			if err != nil || string(out) != want {
				t.Errorf("%s: For(%v).Render = %q, %v, want %q", c.name, tools, out, err, want)
			}
		}
	}
}
