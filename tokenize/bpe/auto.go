package bpe

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/tokenize/chat"
)

// A server loads a folder with AutoTokenizer of transformers, which merges
// tokenizer_config.json and its companions into what tokenizer.json says. This file does
// the same, release by release.

// autoFiles are the files besides tokenizer.json; nil for one that is not there.
type autoFiles struct {
	config, model, special, added *jsonValue
	byteLevel                     bool // tokenizer.json has the word "ByteLevel"
}

// classHint is the remedy if the class of a tokenizer is the trouble.
const classHint = "set it to PreTrainedTokenizerFast, here and on the server"

// An autoError says which field of which file is not merged.
type autoError struct {
	text  string
	fails bool // AutoTokenizer itself fails
}

func (e *autoError) Error() string { return e.text }
func (e *autoError) Unwrap() error { return ErrUnsupported }

// badField is the error of a field that rollout does not merge.
func badField(at, format string, args ...any) error {
	return &autoError{text: fmt.Sprintf("%v: %s %s", ErrUnsupported, at, fmt.Sprintf(format, args...))}
}

// fails is the error of a field with which a release loads nothing.
func fails(r reading, at, format string, args ...any) error {
	return &autoError{fails: true, text: fmt.Sprintf("%v: %s %s: transformers %s does not load it", ErrUnsupported, at, fmt.Sprintf(format, args...), r)}
}

func isFails(err error) bool {
	bad, ok := errors.AsType[*autoError](err)
	return ok && bad.fails
}

// unmerged are the fields that change a tokenizer in a way that is not merged: refused
// unless false, null, empty or missing.
var unmerged = map[string]string{
	"split_special_tokens":          "would encode the special tokens of the chat template as text",
	"fast_tokenizer_files":          "names other files than tokenizer.json",
	"init_inputs":                   "is not merged",
	"model_specific_special_tokens": "is not merged",
	"tokenizer_object":              "is not merged",
	"post_processor":                "is not merged",
	"tokenizer_padding":             "is not merged",
	"tokenizer_truncation":          "is not merged",
}

// readAuto reads the files besides tokenizer.json. It is nil if there are none.
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
			continue // AutoTokenizer does not read it
		}
		var err error
		if *f.to, err = readObject(folder, f.name, f.wanted); err != nil {
			return nil, err
		}
	}
	if *a == (autoFiles{}) {
		return nil, nil
	}
	return a, nil
}

// A merged is what AutoTokenizer makes of a folder.
type merged struct {
	class  *autoClass // not nil: its parts replace those of tokenizer.json
	parts  jsonFile   // of the class
	added  []Added
	passes []pass
	// digest tells folders with the same tokenizer.json apart: empty if the others change nothing.
	digest string
}

// merge returns what a release makes of the folder.
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
		return nil, badField(FileConfig+": added_tokens_decoder", "makes %d added tokens, over %d", len(m.added), maxAdded)
	}
	if n := len(m.added); n > 0 && m.added[n-1].ID > maxID {
		return nil, badField(FileConfig+": added_tokens_decoder", "makes id %d, over %d", m.added[n-1].ID, maxID)
	}
	return m, nil
}

// check refuses fields that are not merged.
func (a *autoFiles) check(f *jsonFile, r reading) error {
	for field, why := range unmerged {
		if v := a.config.get(field); v.truthy() {
			return badField(FileConfig+": "+field, "%s: remove it, here and on the server", why)
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
			return badField(m.file+": auto_map", "makes the server run code of the folder: remove its AutoTokenizer, here and on the server")
		}
	}
	if a.config.get("fix_mistral_regex").truthy() && f.pieces.len()+len(f.added) > 100_000 {
		return badField(FileConfig+": fix_mistral_regex", "changes the pattern of some models: write the right pattern into tokenizer.json and remove it, here and on the server")
	}
	file := a.config.get("tokenizer_file")
	if file.is() || r == reading457 && file != nil {
		return badField(FileConfig+": tokenizer_file", "names another file than tokenizer.json: remove it, here and on the server")
	}
	return nil
}

// checkPrefix refuses a space that is put before a text.
func (a *autoFiles) checkPrefix(f *jsonFile, r reading, class string) error {
	prefix := a.config.get("add_prefix_space")
	bad := prefix.truthy()
	switch {
	case r == reading457 && a.config.get("from_slow").truthy():
		return badField(FileConfig+": from_slow", "makes another tokenizer than tokenizer.json: remove it, here and on the server")
	case r == reading457 && class == "LlamaTokenizer":
		bad = prefix.is() // it is then made of tokenizer.model
	case r == reading457:
		bad = bad && (f.preTokenizer.Type == "ByteLevel" || class == "CohereTokenizer")
	case class == "generic", class == "LlamaTokenizer", class == "GemmaTokenizer":
		bad = false
	}
	if bad {
		return badField(FileConfig+": add_prefix_space", "makes another tokenizer than tokenizer.json: remove it, here and on the server")
	}
	return nil
}

// parts returns the parts that a class of release 5 makes.
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
			return p, badField(FileConfig+": unk_token", "is null, and GemmaTokenizer needs it")
		}
		p.model.UnkToken = &unk.content
	}
	err := errors.Join(
		p.normalizer.decodeRaw([]byte(class.normalizer)),
		p.preTokenizer.decodeRaw([]byte(pre)),
		p.decoder.decodeRaw([]byte(decoder)),
	)
	return p, err
}

// fileTokens adds the tokens of special_tokens_map.json, added_tokens.json and
// tokenizer.json to s, which has no added_tokens_decoder.
func (s *tokenSet) fileTokens(f *jsonFile) {
	for i := range f.added {
		t := &f.added[i]
		tok := &special{content: t.Content, normalized: &t.Normalized, single: t.SingleWord, left: t.LStrip, right: t.RStrip, special: t.Special}
		s.decoder[t.ID], s.byText[t.Content] = tok, tok
	}
}

// readMap reads special_tokens_map.json. An object is an AddedToken that is special.
func readMapToken(v *jsonValue, key string) (*special, error) {
	tok, err := readSpecial(v, fileSpecialMap+": "+quoteKey(key))
	if tok != nil {
		tok.special = true
	}
	return tok, err
}

// addedIndex reads an id of added_tokens.json.
func addedIndex(v *jsonValue, key string) (int64, error) {
	id, err := strconv.ParseInt(v.text, 10, 32)
	if v.kind != '0' || err != nil || id < 0 {
		return 0, badField(fileAddedTokens+": "+quoteKey(key), "is not an id")
	}
	return id, nil
}

// stated is the order and the values of the arguments that name tokens, as the files say.
type stated struct {
	keys []string
	tok  map[string]*special // nil: null
}

func (s *stated) set(key string, tok *special) {
	if _, ok := s.tok[key]; !ok {
		s.keys = append(s.keys, key)
	}
	s.tok[key] = tok
}

// add4 adds the tokens as release 4.57 does.
func (a *autoFiles) add4(f *jsonFile, engine *addedEngine, name string, class *autoClass) error {
	s := &tokenSet{decoder: map[int64]*special{}, byText: map[string]*special{}, named: map[string]*special{}}
	typed := map[string]bool{} // still an object when added_tokens.json is read
	if a.config != nil {
		for i, key := range a.config.keys {
			if !slices.Contains(namedTokens, key) {
				continue
			}
			tok, err := readNamed(&a.config.vals[i], FileConfig+": "+key)
			if err != nil {
				return err
			}
			s.named[key], typed[key] = tok, tok != nil && !tok.str
		}
	}
	extras := a.config.get("extra_special_tokens")
	additional := a.config.get("additional_special_tokens")
	if additional.is() {
		if additional.kind != '[' {
			return badField(FileConfig+": additional_special_tokens", "is %s, want a list", additional.what())
		}
		var err error
		if s.extra, err = readTokens(additional, FileConfig+": additional_special_tokens"); err != nil {
			return err
		}
	}
	if decoder := a.config.get("added_tokens_decoder"); decoder != nil {
		if err := s.readDecoder(decoder); err != nil {
			return err
		}
	} else {
		last := "None" // what transformers takes for the name of each token of added_tokens.json
		if a.special != nil {
			for i, key := range a.special.keys {
				v := &a.special.vals[i]
				switch {
				case key == "extra_special_tokens":
					return badField(fileSpecialMap+": "+key, "is not merged: write it into tokenizer_config.json, here and on the server")
				case v.kind == '{':
					tok, err := readMapToken(v, key)
					if err != nil {
						return err
					}
					if key == "additional_special_tokens" {
						return badField(fileSpecialMap+": "+key, "is an object, want a list")
					}
					if slices.Contains(namedTokens, key) {
						s.named[key], typed[key] = tok, false
					}
				case key == "additional_special_tokens" && v.kind == '[':
					for k := range v.vals {
						var tok *special
						var err error
						if v.vals[k].kind == '{' {
							tok, err = readMapToken(&v.vals[k], key)
						} else {
							tok, err = readNamed(&v.vals[k], fileSpecialMap+": "+key)
						}
						if err != nil {
							return err
						}
						if tok == nil {
							return badField(fileSpecialMap+": "+key, "has a null")
						}
						last = tok.content
						if !among(s.extra, tok) {
							s.extra = append(s.extra, tok)
						}
					}
				case key == "additional_special_tokens":
					if v.is() {
						return badField(fileSpecialMap+": "+key, "is %s, want a list", v.what())
					}
					s.extra = nil
				case slices.Contains(namedTokens, key):
					tok, err := readNamed(v, fileSpecialMap+": "+key)
					if err != nil {
						return err
					}
					s.named[key], typed[key] = tok, false
				}
			}
		}
		if a.added != nil {
			names := map[string]bool{}
			for key, tok := range s.named {
				if tok != nil && !typed[key] {
					names[tok.content] = true
				}
			}
			for _, tok := range s.extra {
				names[tok.content] = names[tok.content] || !tok.raw
			}
			for i, content := range a.added.keys {
				id, err := addedIndex(&a.added.vals[i], content)
				if err != nil {
					return err
				}
				is := names[content]
				not := !is
				s.decoder[id] = &special{content: content, normalized: &not, special: is}
				s.byText[last] = s.decoder[id]
			}
		}
		s.fileTokens(f)
	}
	for _, tok := range s.extra {
		tok.raw = false
	}
	for key, tok := range s.named {
		if tok != nil {
			if other, ok := s.byText[tok.content]; ok {
				s.named[key] = other
			}
		}
	}
	for i := 0; i+1 < len(class.defaults4); i += 2 {
		if _, ok := s.named[class.defaults4[i]]; !ok {
			s.named[class.defaults4[i]] = &special{content: class.defaults4[i+1], str: true}
		}
	}
	if name == "Qwen2Tokenizer" {
		for _, key := range []string{"bos_token", "eos_token", "unk_token", "pad_token"} {
			if tok := s.named[key]; tok != nil && tok.str {
				s.named[key] = &special{content: tok.content, normalized: new(bool), special: true}
			}
		}
	}
	if extras != nil {
		if extras.kind != '{' {
			return fails(reading457, FileConfig+": extra_special_tokens", "is %s, want an object", extras.what())
		}
		for i, key := range extras.keys {
			tok, err := readNamed(&extras.vals[i], FileConfig+": extra_special_tokens."+quoteKey(key))
			if err != nil {
				return err
			}
			if tok == nil {
				return badField(FileConfig+": extra_special_tokens."+quoteKey(key), "is null, want a string")
			}
			if !slices.Contains(namedTokens, key) {
				s.more = append(s.more, key)
			}
			s.named[key] = tok
		}
	}
	// The special tokens in the order of the attributes, each text once.
	var all []*special
	seen := map[string]bool{}
	see := func(toks ...*special) {
		var fresh []*special
		for _, tok := range toks {
			if tok != nil && !seen[tok.content] {
				fresh = append(fresh, tok)
			}
		}
		for _, tok := range fresh {
			seen[tok.content] = true
		}
		all = append(all, fresh...)
	}
	for _, key := range namedTokens {
		see(s.named[key])
	}
	see(s.extra...)
	for _, key := range s.more {
		see(s.named[key])
	}
	tokens := s.inOrder()
	had := len(tokens)
	for _, tok := range all {
		known := tok.str && (engine.has(tok.content) || slices.ContainsFunc(tokens[:had], func(o *special) bool { return o.content == tok.content }))
		if !known && !among(tokens[:had], tok) {
			tokens = append(tokens, tok)
		}
	}
	for _, tok := range tokens {
		tok.special = tok.special || !tok.str && seen[tok.content]
	}
	engine.add(flagsOf(tokens))
	return nil
}

// flagsOf returns the tokens as they are added. It comes after the last change of one that is
// shared.
func flagsOf(tokens []*special) []addedSpec {
	out := make([]addedSpec, 0, len(tokens))
	for _, tok := range tokens {
		if tok.str {
			tok = plainSpecial(tok.content)
		}
		out = append(out, tok.flags())
	}
	return out
}

// has reports whether a token of that content was added.
func (e *addedEngine) has(content string) bool {
	_, ok := e.ids[content]
	return ok
}

// add5 adds the tokens as a release 5 does, and returns the unknown token.
func (a *autoFiles) add5(f *jsonFile, engine *addedEngine, r reading, name string, class *autoClass) (unk *special, err error) {
	s := &tokenSet{decoder: map[int64]*special{}, byText: map[string]*special{}, named: map[string]*special{}}
	init := &stated{tok: map[string]*special{}}     // what ends with _token
	explicit := &stated{tok: map[string]*special{}} // model-specific tokens
	typed := map[string]bool{}
	extra, additional := a.config.get("extra_special_tokens"), a.config.get("additional_special_tokens")
	if additional != nil && (r == reading53 && extra == nil || r != reading53 && !extra.truthy()) {
		extra, additional = additional, nil
	} else if r == reading53 {
		additional = nil
	}
	if a.config != nil {
		for i, key := range a.config.keys {
			v := &a.config.vals[i]
			named := slices.Contains(namedTokens, key)
			if !strings.HasSuffix(key, "_token") || !named && v.kind != '"' && !isTyped(v) {
				continue
			}
			tok, err := readNamed(v, FileConfig+": "+quoteKey(key))
			if err != nil {
				return nil, err
			}
			if !named && v.kind == '"' {
				explicit.set(key, tok)
				continue
			}
			init.set(key, tok)
			typed[key] = tok != nil && !tok.str
		}
	}
	if extra != nil && extra.kind == '{' {
		if err := explicit.setAll(extra, FileConfig+": extra_special_tokens"); err != nil {
			return nil, err
		}
		extra = nil
	}
	hasExtra := extra != nil
	if extra.is() {
		if extra.kind != '[' {
			return nil, badField(FileConfig+": extra_special_tokens", "is %s, want a list or an object", extra.what())
		}
		if s.extra, err = readTokens(extra, FileConfig+": extra_special_tokens"); err != nil {
			return nil, err
		}
	}
	if decoder := a.config.get("added_tokens_decoder"); decoder != nil {
		if err := s.readDecoder(decoder); err != nil {
			return nil, err
		}
	} else if hasExtra, additional, err = a.legacy5(f, s, init, explicit, typed, hasExtra, additional); err != nil {
		return nil, err
	}
	for _, key := range namedTokens {
		if tok := init.tok[key]; tok != nil {
			if other, ok := s.byText[tok.content]; ok {
				init.tok[key] = other
			}
		}
	}
	for i := 0; i+1 < len(class.defaults5); i += 2 {
		if _, ok := init.tok[class.defaults5[i]]; !ok {
			init.set(class.defaults5[i], &special{content: class.defaults5[i+1], str: true})
		}
	}
	if additional.is() && !hasExtra {
		if additional.kind != '[' {
			return nil, badField(FileConfig+": additional_special_tokens", "is %s, want a list", additional.what())
		}
		if s.extra, err = readTokens(additional, FileConfig+": additional_special_tokens"); err != nil {
			return nil, err
		}
	}
	for _, tok := range s.extra {
		tok.raw = false
	}
	// The attributes in order: the named ones, then those of the model.
	order, tok := slices.Clone(namedTokens), map[string]*special{}
	for _, key := range init.keys {
		if tok[key] = init.tok[key]; !slices.Contains(order, key) && tok[key] != nil {
			order = append(order, key)
		}
	}
	for _, key := range explicit.keys {
		if tok[key] = explicit.tok[key]; !slices.Contains(order, key) {
			order = append(order, key)
		}
	}
	tokens := s.inOrder()
	known := map[string]bool{}
	for content := range engine.ids {
		known[content] = true
	}
	for _, t := range tokens {
		known[t.content] = true
	}
	names := map[string]bool{}
	var all []*special
	for _, key := range order {
		if t := tok[key]; t != nil {
			names[t.content] = true
			all = append(all, t)
		}
	}
	for _, t := range append(slices.Clone(all), s.extra...) {
		if !known[t.content] && !among(tokens, t) {
			tokens = append(tokens, t)
		}
	}
	for _, t := range tokens {
		t.special = t.special || !t.str && names[t.content]
	}
	engine.add(flagsOf(tokens))
	var again []*special // what the class itself adds
	for _, t := range append(all, s.extra...) {
		switch name {
		case "Qwen2Tokenizer":
			again = append(again, plainSpecial(t.content))
		case "CohereTokenizer":
			t.special = true
			again = append(again, t)
		}
	}
	engine.add(flagsOf(again))
	return tok["unk_token"], nil
}

// setAll sets each key of an object to its token.
func (s *stated) setAll(v *jsonValue, field string) error {
	for i, key := range v.keys {
		tok, err := readNamed(&v.vals[i], field+"."+quoteKey(key))
		if err != nil {
			return err
		}
		if tok == nil {
			return badField(field+"."+quoteKey(key), "is null, want a string")
		}
		s.set(key, tok)
	}
	return nil
}

// legacy5 merges the files that a release 5 reads if there is no added_tokens_decoder.
func (a *autoFiles) legacy5(f *jsonFile, s *tokenSet, init, explicit *stated, typed map[string]bool, hasExtra bool, additional *jsonValue) (bool, *jsonValue, error) {
	if a.special != nil {
		for i, key := range a.special.keys {
			v, at := &a.special.vals[i], fileSpecialMap+": "+quoteKey(key)
			switch {
			case key == "extra_special_tokens" && v.kind == '{':
				if err := explicit.setAll(v, at); err != nil {
					return false, nil, err
				}
				s.extra, hasExtra = nil, false
			case key == "extra_special_tokens" && v.kind == '[':
				for k := range v.vals {
					x := &v.vals[k]
					var tok *special
					var err error
					switch {
					case x.kind != '{':
						tok, err = readNamed(x, at)
					case x.get("special") != nil:
						err = fails(reading523, at, "has special in an element")
					default:
						tok, err = readMapToken(x, key)
					}
					if err != nil {
						return false, nil, err
					}
					if tok == nil {
						return false, nil, badField(at, "has a null")
					}
					if !among(s.extra, tok) {
						s.extra = append(s.extra, tok)
					}
				}
				hasExtra = true
			case key == "extra_special_tokens":
				if v.is() {
					return false, nil, badField(at, "is %s, want a list or an object", v.what())
				}
				s.extra, hasExtra = nil, true
			case key == "additional_special_tokens":
				additional = v
			case !strings.HasSuffix(key, "_token"):
			case v.kind == '{':
				tok, err := readMapToken(v, key)
				if err != nil {
					return false, nil, err
				}
				init.set(key, tok)
				typed[key] = false
			case v.kind == '"' || v.kind == 'n':
				tok, err := readNamed(v, at)
				if err != nil {
					return false, nil, err
				}
				init.set(key, tok)
				typed[key] = false
			case slices.Contains(namedTokens, key):
				return false, nil, badField(at, "is %s, want a string", v.what())
			}
		}
	}
	if a.added != nil {
		names := map[string]bool{}
		for _, key := range namedTokens {
			if tok := init.tok[key]; tok != nil && !typed[key] {
				names[tok.content] = true
			}
		}
		for _, tok := range s.extra {
			names[tok.content] = names[tok.content] || !tok.raw
		}
		for i, content := range a.added.keys {
			id, err := addedIndex(&a.added.vals[i], content)
			if err != nil {
				return false, nil, err
			}
			is := names[content]
			not := !is
			tok := &special{content: content, normalized: &not, special: is}
			s.decoder[id], s.byText[content] = tok, tok
		}
	}
	s.fileTokens(f)
	return hasExtra, additional, nil
}

// readings returns the readings of releases; nil stands for all of them.
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

// use changes f to what AutoTokenizer makes of the folder.
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
	for _, r := range readings(releases) {
		m, err := a.merge(f, r)
		if err == nil && m.class != nil && len(releases) == 0 {
			// A vocabulary of bytes in a class for characters, or the other way round: such
			// ids are so different that every count shows it.
			if chars, charsErr := m.parts.spellsChars(); charsErr == nil && chars != ownChars {
				continue
			}
		}
		var got string
		if err == nil {
			got, err = f.state(m)
		}
		switch {
		case isFails(err) && len(releases) == 0:
			failed = err
			continue
		case err != nil:
			return nil, err
		case first == nil:
			first, firstReading, state = m, r, got
		case got != state:
			return nil, a.disagree(first, m, firstReading, r)
		}
	}
	if first == nil {
		if failed == nil {
			failed = badField(FileConfig+": tokenizer_class", "makes another kind of tokenizer than tokenizer.json; %s", classHint)
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

// specs returns the added tokens as the parts of a file see them.
func (m *merged) specs() []addedSpec {
	out := make([]addedSpec, len(m.added))
	for i, t := range m.added {
		out[i] = addedSpec{
			ID: int64(t.ID), Content: t.Content, SingleWord: t.SingleWord, LStrip: t.LStrip, RStrip: t.RStrip,
			Normalized: m.passes[i]&passNormalized != 0, Special: t.Special,
		}
	}
	return out
}

// pipelineState describes how f turns text into ids, without vocabulary and added tokens.
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

// state describes all that decides ids besides vocabulary and merges: two equal states
// give equal ids for every text. nil stands for tokenizer.json alone.
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

// disagree is the error if two releases make different tokenizers of the folder.
func (a *autoFiles) disagree(one, other *merged, r, q reading) error {
	const remedy = "transformers %s and %s make different tokenizers of it: say which release the server has (tokens.transformers), or change it, here and on the server"
	same := func(a, b Added) bool {
		a.Special, b.Special = false, false // it decides no id
		return a == b
	}
	i := 0
	for i < min(len(one.added), len(other.added)) && same(one.added[i], other.added[i]) && one.passes[i] == other.passes[i] {
		i++
	}
	if i == len(one.added) && i == len(other.added) {
		return badField(FileConfig+": tokenizer_class", remedy, r, q)
	}
	content := ""
	if i < len(one.added) {
		content = one.added[i].Content
	} else {
		content = other.added[i].Content
	}
	return badField(fmt.Sprintf("%s: %s: token %.40q", FileConfig, a.fieldOf(content), content), remedy, r, q)
}

// fieldOf returns the field that has a token.
func (a *autoFiles) fieldOf(content string) string {
	field := "tokenizer_class" // whose class has tokens of its own
	if a.config == nil {
		return field
	}
	for i, key := range a.config.keys {
		v := &a.config.vals[i]
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
