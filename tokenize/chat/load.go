package chat

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/tokenize/internal/modelfile"
)

// A Set contains the named chat templates of one model.
type Set struct {
	byName map[string]*Template
}

// DefaultName is Hugging Face's name for the template for conversations without tools.
const DefaultName = "default"

// toolUseName is Hugging Face's name for the template for conversations with tools.
const toolUseName = "tool_use"

// Names returns the sorted names of the templates.
func (s *Set) Names() []string { return slices.Sorted(maps.Keys(s.byName)) }

// Named returns the template with the given name, or nil.
func (s *Set) Named(name string) *Template { return s.byName[name] }

// For returns the template that Hugging Face uses for a conversation. For a conversation with
// tools, this is the template named "tool_use", if it exists. Otherwise it is the template named
// "default". For returns nil if the model has only templates with other names.
func (s *Set) For(tools bool) *Template {
	if tools {
		if t := s.byName[toolUseName]; t != nil {
			return t
		}
	}
	return s.byName[DefaultName]
}

// maxConfigBytes limits the size of tokenizer_config.json. The largest known file is smaller than 1
// MiB.
const maxConfigBytes = 32 << 20

// Load reads a model's chat templates from its folder. Like the transformers library, it uses the
// first of these sources that exists: chat_template.jinja and additional_chat_templates/*.jinja;
// chat_template in tokenizer_config.json (a string or a list of {name, template});
// chat_template.json.
//
// The special tokens in tokenizer_config.json or special_tokens_map.json become variables of the
// templates, unless opts sets those variables. If the model has no template, the error wraps
// fs.ErrNotExist.
func Load(fsys fs.FS, opts Options) (*Set, error) {
	config, err := readConfig(fsys, "tokenizer_config.json")
	if err != nil {
		return nil, err
	}
	special, err := readConfig(fsys, "special_tokens_map.json")
	if err != nil {
		return nil, err
	}
	opts.Tokens = maps.Clone(opts.Tokens)
	if opts.Tokens == nil {
		opts.Tokens = map[string]string{}
	}
	addTokens(&opts, config)
	addTokens(&opts, special)

	srcs, err := sources(fsys, config, opts)
	if err != nil {
		return nil, err
	}
	s := &Set{byName: map[string]*Template{}}
	for name, src := range srcs {
		if s.byName[name], err = Parse(name, src, opts); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func sources(fsys fs.FS, config *Map, opts Options) (map[string]string, error) {
	out := map[string]string{}
	text, err := readLimited(fsys, "chat_template.jinja", maxSource(opts))
	switch {
	case err == nil:
		out[DefaultName] = string(text)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("chat: %w", err)
	}
	const folder = "additional_chat_templates"
	more, err := fs.ReadDir(fsys, folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("chat: %w", err)
	}
	for _, f := range more {
		name, ok := strings.CutSuffix(f.Name(), ".jinja")
		if !ok {
			continue
		}
		if text, err = readLimited(fsys, path.Join(folder, f.Name()), maxSource(opts)); err != nil {
			return nil, fmt.Errorf("chat: %w", err)
		}
		out[name] = string(text)
	}
	if len(out) > 0 {
		return out, nil
	}
	for _, from := range []string{"tokenizer_config.json", "chat_template.json"} {
		m := config
		if from != "tokenizer_config.json" {
			if m, err = readConfig(fsys, from); err != nil {
				return nil, err
			}
		}
		if m == nil {
			continue
		}
		v, ok := m.Get("chat_template")
		if !ok || v.Kind() == None {
			continue
		}
		if err := namedTemplates(out, v); err != nil {
			return nil, fmt.Errorf("chat: %s: chat_template: %w", from, err)
		}
		if len(out) > 0 {
			return out, nil
		}
	}
	return nil, fmt.Errorf("chat: no chat_template.jinja, and no chat_template in tokenizer_config.json: %w", fs.ErrNotExist)
}

// namedTemplates reads both forms of chat_template: a string, or a list of named templates.
func namedTemplates(out map[string]string, v Value) error {
	if s, ok := v.Text(); ok {
		out[DefaultName] = s
		return nil
	}
	if v.Kind() != List {
		return fmt.Errorf("must be a string or a list")
	}
	for i, x := range v.Items() {
		m := x.Map()
		if m == nil {
			return fmt.Errorf("element %d must be an object", i)
		}
		n, _ := m.Get("name")
		t, _ := m.Get("template")
		name, ok1 := n.Text()
		text, ok2 := t.Text()
		if !ok1 || !ok2 {
			return fmt.Errorf("element %d: name and template must be strings", i)
		}
		out[name] = text
	}
	return nil
}

func maxSource(opts Options) int64 { return int64(opts.withDefaults().MaxSourceBytes) }

// readLimited reads a file of at most limit bytes. If the file does not exist, the error wraps
// fs.ErrNotExist.
func readLimited(fsys fs.FS, name string, limit int64) ([]byte, error) {
	b, err := modelfile.Read(fsys, name, limit)
	if bad, ok := errors.AsType[*modelfile.Error](err); ok && bad.TooLarge {
		return nil, fmt.Errorf("%w: %w", ErrLimit, err)
	}
	return b, err
}

// readConfig reads a JSON object. It returns nil if the file does not exist.
func readConfig(fsys fs.FS, name string) (*Map, error) {
	b, err := readLimited(fsys, name, maxConfigBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("chat: %w", err)
	}
	v, err := parseJSON(string(b))
	if err != nil {
		return nil, fmt.Errorf("chat: %s: %w", name, err)
	}
	if v.Map() == nil {
		return nil, fmt.Errorf("chat: %s: must be an object", name)
	}
	return v.Map(), nil
}

// addTokens adds the special tokens in m to opts. A token is a string, or an object whose member
// content is the string.
func addTokens(opts *Options, m *Map) {
	if m == nil {
		return
	}
	for i := range m.Len() {
		k, v := m.At(i)
		name, _ := k.Text()
		if !strings.HasSuffix(name, "_token") {
			continue
		}
		if o := v.Map(); o != nil {
			v, _ = o.Get("content")
		}
		text, ok := v.Text()
		if !ok || text == "" {
			continue
		}
		switch name {
		case "bos_token":
			if opts.BOSToken == "" {
				opts.BOSToken = text
			}
		case "eos_token":
			if opts.EOSToken == "" {
				opts.EOSToken = text
			}
		default:
			if _, ok := opts.Tokens[name]; !ok {
				opts.Tokens[name] = text
			}
		}
	}
}
