package bpe

import (
	"slices"
	"strings"
)

// add4 adds the tokens in the same way as transformers 4.
func (a *autoFiles) add4(f *jsonFile, engine *addedEngine, name string, class *autoClass) error {
	s := newTokenSet()
	for key, v := range a.config.members() {
		if slices.Contains(namedTokens, key) {
			s.setNamed(key, v, FileConfig+": "+key)
		}
	}
	s.readList(a.config.get("additional_special_tokens"), FileConfig+": additional_special_tokens", "a list")
	if decoder := a.config.get("added_tokens_decoder"); decoder != nil {
		s.readDecoder(decoder)
	} else {
		a.legacy4(f, s)
	}
	for _, tok := range s.extra {
		tok.raw = false
	}
	s.complete(class.defaults4)
	if name == "Qwen2Tokenizer" {
		for _, key := range []string{"bos_token", "eos_token", "unk_token", "pad_token"} {
			if tok := s.named.tok[key]; tok != nil && tok.str {
				s.named.set(key, &special{content: tok.content, normalized: new(bool), special: true})
			}
		}
	}
	if extras := a.config.get("extra_special_tokens"); extras != nil {
		if extras.kind != '{' {
			s.fail(fails(reading457, FileConfig+": extra_special_tokens", "is %s, want an object", extras.what()))
		}
		s.readMembers(&s.named, extras, FileConfig+": extra_special_tokens")
	}
	if s.err != nil {
		return s.err
	}
	// all contains the special tokens in the order of the attributes, without duplicates.
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
		see(s.named.tok[key])
	}
	see(s.extra...)
	for _, key := range s.named.keys {
		if !slices.Contains(namedTokens, key) {
			see(s.named.tok[key])
		}
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

// legacy4 merges the files that transformers 4 reads only if added_tokens_decoder is missing.
func (a *autoFiles) legacy4(f *jsonFile, s *tokenSet) {
	last := "None" // the content under which transformers 4 stores each token from added_tokens.json
	for key, v := range a.special.members() {
		at := fileSpecialMap + ": " + quoteKey(key)
		named := slices.Contains(namedTokens, key)
		switch {
		case key == "extra_special_tokens":
			s.bad(at, "is not supported: move it to tokenizer_config.json, here and on the server")
		case key == "additional_special_tokens" && v.kind == '[':
			if tok := s.mapTokens(v, at); tok != nil {
				last = tok.content
			}
		case key == "additional_special_tokens":
			if v.is() {
				s.bad(at, "is %s, want a list", v.what())
			}
			s.extra = nil
		case v.kind == '{':
			if tok := s.mapToken(v, at); named {
				s.named.set(key, tok)
				s.typed[key] = false
			}
		case named:
			s.named.set(key, s.token(v, at))
			s.typed[key] = false
		}
	}
	s.readAdded(a.added, func(string) string { return last })
	s.fileTokens(f)
}

// flagsOf returns the tokens with their current flags. Call flagsOf only after the last change to
// a token, because tokens can be shared.
func flagsOf(tokens []*special) []Added {
	out := make([]Added, 0, len(tokens))
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

// add5 adds the tokens in the same way as transformers 5. It returns the unknown token.
func (a *autoFiles) add5(f *jsonFile, engine *addedEngine, r reading, name string, class *autoClass) (unk *special, err error) {
	s := newTokenSet()
	explicit := &namedSet{tok: map[string]*special{}} // model-specific tokens
	extra, additional := a.config.get("extra_special_tokens"), a.config.get("additional_special_tokens")
	if additional != nil && (r == reading53 && extra == nil || r != reading53 && !extra.truthy()) {
		extra, additional = additional, nil
	} else if r == reading53 {
		additional = nil
	}
	for key, v := range a.config.members() {
		named := slices.Contains(namedTokens, key)
		switch at := FileConfig + ": " + quoteKey(key); {
		case !strings.HasSuffix(key, "_token"):
		case named, isTyped(v):
			s.setNamed(key, v, at)
		case v.kind == '"':
			explicit.set(key, s.token(v, at))
		}
	}
	if extra != nil && extra.kind == '{' {
		s.readMembers(explicit, extra, FileConfig+": extra_special_tokens")
		extra = nil
	}
	hasExtra := extra != nil
	s.readList(extra, FileConfig+": extra_special_tokens", "a list or an object")
	if decoder := a.config.get("added_tokens_decoder"); decoder != nil {
		s.readDecoder(decoder)
	} else {
		hasExtra, additional = a.legacy5(f, s, explicit, hasExtra, additional)
	}
	s.complete(class.defaults5)
	if !hasExtra {
		s.readList(additional, FileConfig+": additional_special_tokens", "a list")
	}
	if s.err != nil {
		return nil, s.err
	}
	for _, tok := range s.extra {
		tok.raw = false
	}
	// order lists the attributes: first the named tokens, then the model-specific tokens.
	order, tok := slices.Clone(namedTokens), map[string]*special{}
	for _, key := range s.named.keys {
		if tok[key] = s.named.tok[key]; !slices.Contains(order, key) && tok[key] != nil {
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
	var again []*special
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

// legacy5 merges the files that transformers 5 reads only if added_tokens_decoder is missing.
func (a *autoFiles) legacy5(f *jsonFile, s *tokenSet, explicit *namedSet, hasExtra bool, additional *jsonValue) (bool, *jsonValue) {
	for key, v := range a.special.members() {
		at := fileSpecialMap + ": " + quoteKey(key)
		switch {
		case key == "extra_special_tokens" && v.kind == '{':
			s.readMembers(explicit, v, at)
			s.extra, hasExtra = nil, false
		case key == "extra_special_tokens" && v.kind == '[':
			if slices.ContainsFunc(v.vals, func(x jsonValue) bool { return x.get("special") != nil }) {
				s.fail(fails(reading523, at, "has an element with the field \"special\""))
			}
			s.mapTokens(v, at)
			hasExtra = true
		case key == "extra_special_tokens":
			if v.is() {
				s.bad(at, "is %s, want a list or an object", v.what())
			}
			s.extra, hasExtra = nil, true
		case key == "additional_special_tokens":
			additional = v
		case !strings.HasSuffix(key, "_token"):
		case v.kind == '{':
			s.named.set(key, s.mapToken(v, at))
			s.typed[key] = false
		case v.kind == '"' || v.kind == 'n':
			s.named.set(key, s.token(v, at))
			s.typed[key] = false
		case slices.Contains(namedTokens, key):
			s.bad(at, "is %s, want a string", v.what())
		}
	}
	s.readAdded(a.added, func(content string) string { return content })
	s.fileTokens(f)
	return hasExtra, additional
}
