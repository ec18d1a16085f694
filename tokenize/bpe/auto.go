package bpe

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/tokenize/chat"
)

// A server loads a model's folder with AutoTokenizer from the transformers library. AutoTokenizer
// merges tokenizer_config.json and other files into tokenizer.json. This file does the same. It
// follows the rules of each transformers release.

// autoFiles contains the files other than tokenizer.json. If a file is missing, its field is nil.
type autoFiles struct {
	config, model, special, added *jsonValue
	byteLevel                     bool   // tokenizer.json contains the word "ByteLevel"
	older                         string // the name of a vocabulary file in an older format than tokenizer.json
}

// classHint is the advice in the error for a tokenizer class that rollout does not support.
const classHint = "set tokenizer_class to PreTrainedTokenizerFast here and on the server"

// An autoError reports a field that cannot be merged. The text names the field and the file.
type autoError struct {
	text  string
	fails bool // AutoTokenizer cannot load the folder either
}

func (e *autoError) Error() string { return e.text }
func (e *autoError) Unwrap() error { return ErrUnsupported }

// badField returns the error for a field that rollout does not merge.
func badField(at, format string, args ...any) error {
	return &autoError{text: fmt.Sprintf("%v: %s %s", ErrUnsupported, at, fmt.Sprintf(format, args...))}
}

// fails returns an error for a field that the transformers releases in r refuse, so they cannot
// load the folder.
func fails(r reading, at, format string, args ...any) error {
	return &autoError{fails: true, text: fmt.Sprintf("%v: transformers %s cannot load the folder: %s %s", ErrUnsupported, r, at, fmt.Sprintf(format, args...))}
}

func isFails(err error) bool {
	bad, ok := errors.AsType[*autoError](err)
	return ok && bad.fails
}

// unmerged contains the fields that rollout does not merge, each with the reason for the error.
// Such a field causes an error unless it is false, null, empty or missing.
var unmerged = map[string]string{
	"split_special_tokens":          "would encode the special tokens of the chat template as text",
	"fast_tokenizer_files":          "selects files other than tokenizer.json",
	"init_inputs":                   "is not supported",
	"model_specific_special_tokens": "is not supported",
	"tokenizer_object":              "is not supported",
	"post_processor":                "is not supported",
	"tokenizer_padding":             "is not supported",
	"tokenizer_truncation":          "is not supported",
}

// readAuto reads the files other than tokenizer.json. It returns nil if none of these files
// exists.
func readAuto(folder fs.FS) (*autoFiles, error) {
	a := &autoFiles{}
	for _, f := range []struct {
		name   string
		to     **jsonValue
		wanted func(key string) bool
	}{
		{FileConfig, &a.config, func(key string) bool {
			return strings.HasSuffix(key, "_token") || unmerged[key] != "" || slices.Contains([]string{
				"tokenizer_class", "auto_map", "added_tokens_decoder", "additional_special_tokens", "extra_special_tokens",
				"add_prefix_space", "legacy", "from_slow", "fix_mistral_regex", "tokenizer_file",
			}, key)
		}},
		{fileModelConfig, &a.model, func(key string) bool {
			return slices.Contains([]string{"model_type", "model_name", "tokenizer_class", "auto_map"}, key)
		}},
		{fileSpecialMap, &a.special, func(string) bool { return true }},
		{fileAddedTokens, &a.added, func(string) bool { return true }},
	} {
		if f.name != fileModelConfig && f.name != FileConfig && a.config.get("added_tokens_decoder") != nil {
			continue // AutoTokenizer does not read this file
		}
		var err error
		if *f.to, err = readObject(folder, f.name, f.wanted); err != nil {
			return nil, err
		}
	}
	if *a == (autoFiles{}) {
		return nil, nil
	}
	for _, name := range []string{"vocab.json", "vocab.txt", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model"} {
		if _, err := fs.Stat(folder, name); err == nil {
			a.older = name
			break
		}
	}
	return a, nil
}

type merged struct {
	class  *autoClass // if not nil, the field parts replaces the parts in tokenizer.json
	parts  jsonFile   // the parts that the class creates
	added  []Added
	passes []pass
	// digest distinguishes folders with the same tokenizer.json but different other files. It is
	// empty if the other files do not change the ids.
	digest string
}

func (a *autoFiles) merge(f *jsonFile, r reading) (*merged, error) {
	if err := a.check(f, r); err != nil {
		return nil, err
	}
	name, err := a.class(r)
	if err != nil {
		return nil, err
	}
	class := autoClasses[name]
	if err := a.checkPrefix(f, r, name); err != nil {
		return nil, err
	}
	m := &merged{}
	engine := newAddedEngine(&f.pieces, r <= reading53)
	if r == reading457 {
		engine.add(f.added)
		if err := a.add4(f, engine, name, class); err != nil {
			return nil, err
		}
	} else {
		if name == "generic" {
			engine.add(f.added)
		}
		unk, err := a.add5(f, engine, r, name, class)
		if err != nil {
			return nil, err
		}
		if name != "generic" {
			m.class = class
			if m.parts, err = a.parts(name, class, unk); err != nil {
				return nil, err
			}
		}
	}
	m.added, m.passes = engine.added()
	if len(m.added) > maxAdded {
		return nil, badField(FileConfig+": added_tokens_decoder", "creates %d added tokens (limit %d)", len(m.added), maxAdded)
	}
	if n := len(m.added); n > 0 && m.added[n-1].ID > maxID {
		return nil, badField(FileConfig+": added_tokens_decoder", "creates token id %d (limit %d)", m.added[n-1].ID, maxID)
	}
	return m, nil
}

// check returns an error if the files have a field that cannot be merged.
func (a *autoFiles) check(f *jsonFile, r reading) error {
	for field, why := range unmerged {
		if v := a.config.get(field); v.truthy() {
			return badField(FileConfig+": "+field, "%s: remove the field here and on the server", why)
		}
	}
	maps := []struct {
		file string
		v    *jsonValue
	}{{FileConfig, a.config.get("auto_map")}}
	if r == reading457 && !a.config.get("tokenizer_class").is() {
		maps = append(maps, struct {
			file string
			v    *jsonValue
		}{fileModelConfig, a.model.get("auto_map")})
	}
	for _, m := range maps {
		if v := m.v; v.is() && (v.kind != '{' || v.get("AutoTokenizer").is()) {
			return badField(m.file+": auto_map", "makes the server run code from the model's folder: remove its AutoTokenizer entry here and on the server")
		}
	}
	if a.config.get("fix_mistral_regex").truthy() && f.pieces.len()+len(f.added) > 100_000 {
		return badField(FileConfig+": fix_mistral_regex", "changes the pre_tokenizer pattern of some models: put the correct pattern in tokenizer.json and remove the field, here and on the server")
	}
	switch file := a.config.get("tokenizer_file"); {
	case file.is():
		return badField(FileConfig+": tokenizer_file", "selects a file other than tokenizer.json: remove the field here and on the server")
	case r == reading457 && file != nil && a.older != "":
		return badField(FileConfig+": tokenizer_file", "is null, so transformers 4.57 reads %s instead of tokenizer.json: remove the field here and on the server", a.older)
	case r == reading457 && file != nil:
		return fails(r, FileConfig+": tokenizer_file", "is null")
	}
	return nil
}

// checkPrefix returns an error if the files have a field that would add a space before the text.
func (a *autoFiles) checkPrefix(f *jsonFile, r reading, class string) error {
	prefix := a.config.get("add_prefix_space")
	bad := prefix.truthy()
	switch {
	case r == reading457 && a.config.get("from_slow").truthy():
		return badField(FileConfig+": from_slow", "changes the tokenizer in tokenizer.json: remove the field here and on the server")
	case r == reading457 && class == "LlamaTokenizer":
		bad = prefix.is() // transformers then reads tokenizer.model
	case r == reading457:
		bad = bad && (f.preTokenizer.Type == "ByteLevel" || class == "CohereTokenizer")
	case class == "generic", class == "LlamaTokenizer", class == "GemmaTokenizer":
		bad = false
	}
	if bad {
		return badField(FileConfig+": add_prefix_space", "changes the tokenizer in tokenizer.json: remove the field here and on the server")
	}
	return nil
}

// parts returns the parts that a class creates in transformers 5 and later, instead of using the
// parts in tokenizer.json.
func (a *autoFiles) parts(name string, class *autoClass, unk *special) (jsonFile, error) {
	pre, decoder := class.preTokenizer, class.decoder
	p := jsonFile{model: class.model}
	switch name {
	case "LlamaTokenizer":
		prefix, scheme := a.config.get("add_prefix_space"), "first"
		switch {
		case prefix.is() && !prefix.truthy():
			scheme = "never"
		case a.config.get("legacy").truthy():
			scheme = "always"
		}
		pre = `{"type":"Metaspace","replacement":"▁","prepend_scheme":"` + scheme + `","split":false}`
		decoder = spacesDecoder
		if scheme != "never" {
			decoder += `,{"type":"Strip","content":" ","start":1,"stop":0}`
		}
		decoder = `{"type":"Sequence","decoders":[` + decoder + `]}`
	case "GemmaTokenizer":
		if unk == nil {
			return p, badField(FileConfig+": unk_token", "is null, but GemmaTokenizer needs it")
		}
		p.model.UnkToken = &unk.content
	}
	err := errors.Join(
		strict([]byte(class.normalizer), "normalizer", &p.normalizer),
		strict([]byte(pre), "pre_tokenizer", &p.preTokenizer),
		strict([]byte(decoder), "decoder", &p.decoder),
	)
	return p, err
}

func readings(releases []chat.Transformers) []reading {
	var out []reading
	for _, release := range releases {
		switch release {
		case chat.Transformers457:
			out = append(out, reading457)
		case chat.Transformers50:
			out = append(out, reading53, reading520)
		case chat.Transformers521:
			out = append(out, reading521)
		case chat.Transformers5222:
			out = append(out, reading522)
		case chat.Transformers523:
			out = append(out, reading523)
		}
	}
	if len(releases) == 0 {
		for r := range allReadings {
			out = append(out, r)
		}
	}
	return out
}

// use modifies f so that f describes the tokenizer that AutoTokenizer loads from the folder.
func (a *autoFiles) use(f *jsonFile, releases []chat.Transformers) (*merged, error) {
	own, err := f.state(nil)
	if err != nil {
		return nil, err
	}
	ownChars, _ := f.spellsChars()
	var first *merged
	var firstReading reading
	var state string
	var failed error
	all := readings(releases)
	for _, r := range all {
		m, err := a.merge(f, r)
		if err == nil && m.class != nil && len(all) > 1 {
			// The class is for a vocabulary of characters, but the file has a vocabulary of
			// bytes, or vice versa. Skip these releases, because their ids differ so much that
			// every token count would show the difference.
			if chars, charsErr := m.parts.spellsChars(); charsErr == nil && chars != ownChars {
				continue
			}
		}
		var got string
		if err == nil {
			got, err = f.state(m)
		}
		switch {
		case isFails(err):
			failed = err // the server must be using another release, because this release cannot load the folder
			continue
		case err != nil:
			return nil, err
		case first == nil:
			first, firstReading, state = m, r, got
		case got != state:
			remedy := ": set tokens.transformers to the server's release, or change the field here and on the server"
			if len(releases) == 1 { // the user selected this release
				remedy = fmt.Sprintf(", although tokens.transformers %s covers both: change the field here and on the server", releases[0])
			}
			remedy = fmt.Sprintf("makes transformers %s and %s load different tokenizers%s", firstReading, r, remedy)
			return nil, badField(a.different(first, m), "%s", remedy)
		}
	}
	if first == nil {
		if failed == nil {
			failed = badField(FileConfig+": tokenizer_class", "selects a different kind of tokenizer than the one in tokenizer.json; %s", classHint)
		}
		return nil, failed
	}
	if state != own {
		first.digest = state
	}
	if first.class != nil {
		f.normalizer, f.preTokenizer, f.decoder, f.model = first.parts.normalizer, first.parts.preTokenizer, first.parts.decoder, first.parts.model
	}
	return first, nil
}

// specs returns the added tokens in the format of tokenizer.json.
func (m *merged) specs() []Added {
	out := slices.Clone(m.added)
	for i := range out {
		out[i].Normalized = m.passes[i]&passNormalized != 0
	}
	return out
}

// pipelineState returns a description of how f converts text to ids. The description excludes the
// vocabulary and the added tokens.
func (f *jsonFile) pipelineState() (string, error) {
	t := &Tokenizer{}
	if err := f.pipeline(t); err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "normalizer %q\nstages", t.norm)
	for _, s := range t.stages {
		fmt.Fprintf(&b, " %q %q %s %t", s.expr, s.text, s.gaps, s.invert)
	}
	fmt.Fprintf(&b, "\nignore_merges %t\n", f.model.IgnoreMerges)
	if t.decoder != nil {
		unk := ""
		if f.model.UnkToken != nil {
			unk = *f.model.UnkToken
		}
		fmt.Fprintf(&b, "characters %q %t %t", unk, f.model.FuseUnk, f.model.ByteFallback)
		if t.space != nil {
			fmt.Fprintf(&b, " %q %s %t", t.space.mark, t.space.prepend, t.space.split)
		}
		b.WriteByte('\n')
	}
	return b.String(), nil
}

// state returns a description of everything that affects ids, except the vocabulary and the
// merges. If two tokenizers have the same vocabulary, merges and state, they encode every text to
// the same ids. If m is nil, the description covers only tokenizer.json.
func (f *jsonFile) state(m *merged) (string, error) {
	if m == nil {
		e := newAddedEngine(&f.pieces, false)
		e.add(f.added)
		m = &merged{}
		m.added, m.passes = e.added()
	}
	parts := jsonFile{model: f.model, normalizer: f.normalizer, preTokenizer: f.preTokenizer, decoder: f.decoder}
	if m.class != nil {
		parts = m.parts
	}
	parts.added = m.specs()
	state, err := parts.pipelineState()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(state)
	for i, t := range m.added {
		fmt.Fprintf(&b, "%d %q single_word=%t lstrip=%t rstrip=%t pass=%d\n", t.ID, t.Content, t.SingleWord, t.LStrip, t.RStrip, m.passes[i])
	}
	return b.String(), nil
}

// different returns the name of the field that causes two releases to load different tokenizers.
func (a *autoFiles) different(one, other *merged) string {
	same := func(a, b Added) bool {
		a.Special, b.Special = false, false // does not affect ids
		return a == b
	}
	i := 0
	for i < min(len(one.added), len(other.added)) && same(one.added[i], other.added[i]) && one.passes[i] == other.passes[i] {
		i++
	}
	if i == len(one.added) && i == len(other.added) {
		return FileConfig + ": tokenizer_class"
	}
	content := ""
	if i < len(one.added) {
		content = one.added[i].Content
	} else {
		content = other.added[i].Content
	}
	return fmt.Sprintf("%s: %s: token %.40q", FileConfig, a.fieldOf(content), content)
}

func (a *autoFiles) fieldOf(content string) string {
	field := "tokenizer_class" // the class itself adds tokens
	for key, v := range a.config.members() {
		if v.kind == '"' && v.text == content || isTyped(v) && v.get("content") != nil && v.get("content").text == content {
			return key
		}
		for k := range v.vals {
			x := &v.vals[k]
			if x.text == content || x.get("content") != nil && x.get("content").text == content {
				field = key
			}
		}
	}
	return field
}
