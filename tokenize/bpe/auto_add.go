package bpe

import (
	"slices"
	"strconv"
	"strings"
)

// fileTokens adds the tokens of tokenizer.json to s, for a folder without added_tokens_decoder.
func (s *tokenSet) fileTokens(f *jsonFile) {
	for i := range f.added {
		t := &f.added[i]
		tok := &special{content: t.Content, normalized: &t.Normalized, single: t.SingleWord, left: t.LStrip, right: t.RStrip, special: t.Special}
		s.decoder[t.ID], s.byText[t.Content] = tok, tok
	}
}

// readMapToken decodes a token of special_tokens_map.json. An object is a special AddedToken.
func readMapToken(v *jsonValue, key string) (*special, error) {
	tok, err := readSpecial(v, fileSpecialMap+": "+quoteKey(key))
	if tok != nil {
		tok.special = true
	}
	return tok, err
}

// addedIndex decodes an id of added_tokens.json.
func addedIndex(v *jsonValue, key string) (int64, error) {
	id, err := strconv.ParseInt(v.text, 10, 32)
	if v.kind != '0' || err != nil || id < 0 {
		return 0, badField(fileAddedTokens+": "+quoteKey(key), "is not an id")
	}
	return id, nil
}

// stated has the token arguments from the files, in order.
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

func (a *autoFiles) add4(f *jsonFile, engine *addedEngine, name string, class *autoClass) error {
	s := &tokenSet{decoder: map[int64]*special{}, byText: map[string]*special{}, named: map[string]*special{}}
	typed := map[string]bool{} // still an object when transformers reads added_tokens.json
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
		last := "None" // the name that transformers assigns to each token of added_tokens.json
		if a.special != nil {
			for i, key := range a.special.keys {
				v := &a.special.vals[i]
				switch {
				case key == "extra_special_tokens":
					return badField(fileSpecialMap+": "+key, "is not supported: move it to tokenizer_config.json, here and on the server")
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
							return badField(fileSpecialMap+": "+key, "contains null")
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
	// The special tokens in the order of the attributes, without duplicates.
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

// flagsOf returns the tokens as they are added. Call it after the last change of a shared token.
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

func (e *addedEngine) has(content string) bool {
	_, ok := e.ids[content]
	return ok
}

// add5 adds the tokens as transformers 5 does, and returns the unknown token.
func (a *autoFiles) add5(f *jsonFile, engine *addedEngine, r reading, name string, class *autoClass) (unk *special, err error) {
	s := &tokenSet{decoder: map[int64]*special{}, byText: map[string]*special{}, named: map[string]*special{}}
	init := &stated{tok: map[string]*special{}}     // fields that end with _token
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
	// The attributes in order: first the named tokens, then the model-specific tokens.
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
	var again []*special // tokens that the class adds
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

// legacy5 merges the files that transformers 5 reads if there is no added_tokens_decoder.
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
						err = fails(reading523, at, "has an element with the field special")
					default:
						tok, err = readMapToken(x, key)
					}
					if err != nil {
						return false, nil, err
					}
					if tok == nil {
						return false, nil, badField(at, "contains null")
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
