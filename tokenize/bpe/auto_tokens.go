package bpe

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A special is a token: a Python str or an AddedToken from the transformers library. A str
// becomes an AddedToken only when it is added. Tokens are passed by pointer, because AddedTokens
// are shared and their flag special is set later.
type special struct {
	content             string
	str                 bool  // the token is a Python str
	raw                 bool  // the token is an object in tokenizer_config.json, which remains a Python dict until all files are read
	normalized          *bool // nil: the opposite of special
	single, left, right bool
	special             bool
}

// flags returns s as an added token, with the flags that the engine uses.
func (s *special) flags() Added {
	n := !s.special
	if s.normalized != nil {
		n = *s.normalized
	}
	return Added{Content: s.content, SingleWord: s.single, LStrip: s.left, RStrip: s.right, Normalized: n, Special: s.special}
}

// equal is the equivalent of Python's ==. A str or a dict is never equal to an AddedToken.
func (s *special) equal(o *special) bool {
	return s.str == o.str && s.raw == o.raw && (s.str && s.content == o.content || !s.str && s.flags() == o.flags())
}

func among(list []*special, s *special) bool {
	return slices.ContainsFunc(list, func(o *special) bool { return o.equal(s) })
}

// plainSpecial is the equivalent of AddedToken(content, special=True).
func plainSpecial(content string) *special { return &special{content: content, special: true} }

// special reads an AddedToken from a JSON object.
func (s *tokenSet) special(v *jsonValue, field string) *special {
	t := &special{}
	found := false
	for key, x := range v.members() {
		var flag *bool
		switch key {
		case "__type":
			continue
		case "content":
			if x.kind != '"' {
				s.bad(field+".content", "is %s, want a string", x.what())
			}
			t.content, found = x.text, true
			continue
		case "single_word":
			flag = &t.single
		case "lstrip":
			flag = &t.left
		case "rstrip":
			flag = &t.right
		case "special":
			flag = &t.special
		case "normalized":
			t.normalized = new(bool)
			flag = t.normalized
		default:
			s.bad(field+"."+quoteKey(key), "is not a field of an added token")
			continue
		}
		if x.kind != 't' && x.kind != 'f' {
			s.bad(field+"."+key, "is %s, want true or false", x.what())
		}
		*flag = x.kind == 't'
	}
	if !found {
		s.bad(field, "has no content")
	}
	if len(t.content) > maxAddedLen {
		s.bad(field+".content", "has %d bytes (limit %d)", len(t.content), maxAddedLen)
	}
	return t
}

func quoteKey(key string) string { return fmt.Sprintf("%.40s", key) }

// An addedEngine adds tokens in the same way as the tokenizers library. transformers 4 and the
// first releases of transformers 5 use versions of tokenizers before 0.23. Later releases use
// version 0.23 or newer.
type addedEngine struct {
	pieces  *pieceTable
	old     bool // the version of tokenizers is before 0.23
	ids     map[string]int32
	byID    map[int32]Added // tokens with their latest flags
	special map[string]bool
	max     int32
	// In versions before 0.23, the two passes use these lists. The flag normalized of a token in
	// a list does not change after the token is appended. A token can be listed several times.
	specials, plain []Added
}

func newAddedEngine(pieces *pieceTable, old bool) *addedEngine {
	return &addedEngine{pieces: pieces, old: old, ids: map[string]int32{}, byID: map[int32]Added{}, special: map[string]bool{}, max: -1}
}

func (e *addedEngine) add(tokens []Added) {
	for _, t := range tokens {
		if t.Special && t.Content != "" && !e.special[t.Content] {
			e.specials = append(e.specials, t)
			e.special[t.Content] = true
		}
	}
	next := max(e.max+1, int32(e.pieces.len()))
	before := map[Added]bool{} // versions before 0.23 skip a token if it had the same flags at the start of this call or earlier in this call
	for _, t := range e.byID {
		before[t] = e.old
	}
	for _, t := range tokens {
		t.ID = 0
		id, has := e.ids[t.Content]
		if t.Content == "" || has && (before[t] || !e.old && e.byID[id] == t) {
			continue
		}
		before[t] = e.old
		if !has {
			var ok bool
			if id, ok = e.pieces.get(t.Content); !ok {
				id = next
				next++
			}
		}
		e.ids[t.Content], e.byID[id] = id, t
		e.max = max(e.max, id)
		if !e.special[t.Content] {
			e.plain = append(e.plain, t)
		}
	}
}

// A pass is a set of bits that say in which form of the text a token is matched.
type pass uint8

const (
	passRaw        pass = 1 << iota // in the raw text
	passNormalized                  // in the normalized text
)

// added returns the tokens in the order of their ids, and the pass of each token.
func (e *addedEngine) added() ([]Added, []pass) {
	in := map[string]pass{}
	listed := append(slices.Clone(e.specials), e.plain...)
	if !e.old {
		listed = slices.Collect(maps.Values(e.byID))
	}
	for _, t := range listed {
		p := passRaw
		if t.Normalized {
			p = passNormalized
		}
		in[t.Content] |= p
	}
	contents := slices.SortedFunc(maps.Keys(e.ids), func(a, b string) int {
		return cmp.Or(int(e.ids[a])-int(e.ids[b]), strings.Compare(a, b))
	})
	added, passes := make([]Added, 0, len(contents)), make([]pass, 0, len(contents))
	for _, c := range contents {
		t := e.byID[e.ids[c]]
		t.ID, t.Content, t.Special, t.Normalized = e.ids[c], c, e.special[c], in[c] == passNormalized
		added = append(added, t)
		passes = append(passes, in[c])
	}
	return added, passes
}

// namedTokens lists the tokenizer attributes for special tokens, in the same order as in
// transformers.
var namedTokens = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// A tokenSet contains the added and special tokens from the files in a folder. AutoTokenizer
// passes these tokens to the tokenizer class. The field err is the first error that a method
// found.
type tokenSet struct {
	decoder map[int64]*special // added_tokens_decoder
	byText  map[string]*special
	named   namedSet
	typed   map[string]bool // attributes whose value is still an object when transformers reads added_tokens.json
	extra   []*special      // extra_special_tokens or additional_special_tokens
	err     error
}

func newTokenSet() *tokenSet {
	return &tokenSet{decoder: map[int64]*special{}, byText: map[string]*special{}, named: namedSet{tok: map[string]*special{}}, typed: map[string]bool{}}
}

// A namedSet contains tokens by attribute, and remembers the order of the attributes.
type namedSet struct {
	keys []string
	tok  map[string]*special // nil stands for null
}

func (n *namedSet) set(key string, tok *special) {
	if _, ok := n.tok[key]; !ok {
		n.keys = append(n.keys, key)
	}
	n.tok[key] = tok
}

func (s *tokenSet) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

func (s *tokenSet) bad(at, format string, args ...any) { s.fail(badField(at, format, args...)) }

// token reads a token from a JSON value. It returns nil if the value is null.
func (s *tokenSet) token(v *jsonValue, field string) *special {
	switch {
	case v.kind == 'n':
		return nil
	case v.kind == '"':
		return &special{content: v.text, str: true}
	case isTyped(v):
		return s.special(v, field)
	}
	s.bad(field, "is %s, want a string, null or an AddedToken", v.what())
	return nil
}

// isTyped reports whether v is an AddedToken that transformers serialized.
func isTyped(v *jsonValue) bool {
	t := v.get("__type")
	return t != nil && t.kind == '"' && t.text == "AddedToken"
}

// setNamed sets an attribute to the token in v, or to null.
func (s *tokenSet) setNamed(key string, v *jsonValue, field string) {
	tok := s.token(v, field)
	s.named.set(key, tok)
	s.typed[key] = tok != nil && !tok.str
}

// readList sets s.extra to the list of tokens in v, a value from tokenizer_config.json. It does
// nothing if v is null. The argument want describes the expected value in an error message.
func (s *tokenSet) readList(v *jsonValue, field, want string) {
	if !v.is() {
		return
	}
	if v.kind != '[' {
		s.bad(field, "is %s, want %s", v.what(), want)
	}
	s.extra = nil
	for i := range v.vals {
		at := fmt.Sprintf("%s[%d]", field, i)
		tok := s.token(&v.vals[i], at)
		if tok == nil {
			s.bad(at, "is null, want a string")
			continue
		}
		tok.raw = !tok.str
		s.extra = append(s.extra, tok)
	}
}

// readMembers reads an object whose values are tokens. It stores each token under its key in the
// given set.
func (s *tokenSet) readMembers(to *namedSet, v *jsonValue, field string) {
	for key, x := range v.members() {
		at := field + "." + quoteKey(key)
		tok := s.token(x, at)
		if tok == nil {
			s.bad(at, "is null, want a string")
		}
		to.set(key, tok)
	}
}

func (s *tokenSet) readDecoder(v *jsonValue) {
	const field = FileConfig + ": added_tokens_decoder"
	if v.kind != '{' {
		s.bad(field, "is %s, want an object", v.what())
	}
	if len(v.keys) > maxAdded {
		s.bad(field, "has %d tokens (limit %d)", len(v.keys), maxAdded)
		return
	}
	for key, x := range v.members() {
		at := field + "." + quoteKey(key)
		id, err := strconv.ParseInt(key, 10, 32)
		if err != nil || strconv.FormatInt(id, 10) != key {
			s.bad(at, "is not a token id")
		}
		if x.kind != '{' {
			s.bad(at, "is %s, want an object", x.what())
		}
		tok := s.special(x, at)
		s.decoder[id], s.byText[tok.content] = tok, tok
	}
}

// mapToken reads an object in special_tokens_map.json as an AddedToken, and marks the token as
// special.
func (s *tokenSet) mapToken(v *jsonValue, field string) *special {
	tok := s.special(v, field)
	tok.special = true
	return tok
}

// mapTokens appends a list of tokens from special_tokens_map.json to s.extra, without duplicates.
// It returns the last token in the list.
func (s *tokenSet) mapTokens(v *jsonValue, field string) (tok *special) {
	for i := range v.vals {
		x := &v.vals[i]
		if x.kind == '{' {
			tok = s.mapToken(x, field)
		} else if tok = s.token(x, field); tok == nil {
			s.bad(field, "contains null")
			continue
		}
		if !among(s.extra, tok) {
			s.extra = append(s.extra, tok)
		}
	}
	return tok
}

// readAdded adds the tokens from added_tokens.json to s. The function name maps the content of a
// token to the content under which transformers stores the token.
func (s *tokenSet) readAdded(file *jsonValue, name func(content string) string) {
	names := map[string]bool{}
	for _, key := range namedTokens {
		if tok := s.named.tok[key]; tok != nil && !s.typed[key] {
			names[tok.content] = true
		}
	}
	for _, tok := range s.extra {
		names[tok.content] = names[tok.content] || !tok.raw
	}
	for content, v := range file.members() {
		id, err := strconv.ParseInt(v.text, 10, 32)
		if v.kind != '0' || err != nil || id < 0 {
			s.bad(fileAddedTokens+": "+quoteKey(content), "has a value that is not a token id")
		}
		is := names[content]
		not := !is
		tok := &special{content: content, normalized: &not, special: is}
		s.decoder[id], s.byText[name(content)] = tok, tok
	}
}

// fileTokens adds the tokens from tokenizer.json to s. This is needed if there is no
// added_tokens_decoder.
func (s *tokenSet) fileTokens(f *jsonFile) {
	for i := range f.added {
		t := &f.added[i]
		tok := &special{content: t.Content, normalized: &t.Normalized, single: t.SingleWord, left: t.LStrip, right: t.RStrip, special: t.Special}
		s.decoder[int64(t.ID)], s.byText[t.Content] = tok, tok
	}
}

// complete replaces each named token with the added token that has the same content, if there is
// one. Then it sets missing named tokens to the defaults of the class.
func (s *tokenSet) complete(defaults []string) {
	for _, key := range namedTokens {
		if tok := s.named.tok[key]; tok != nil {
			if other, ok := s.byText[tok.content]; ok {
				s.named.tok[key] = other
			}
		}
	}
	for i := 0; i+1 < len(defaults); i += 2 {
		if _, ok := s.named.tok[defaults[i]]; !ok {
			s.named.set(defaults[i], &special{content: defaults[i+1], str: true})
		}
	}
}

// inOrder returns the tokens in s.decoder in the order of their ids.
func (s *tokenSet) inOrder() []*special {
	list := make([]*special, 0, len(s.decoder))
	for _, id := range slices.Sorted(maps.Keys(s.decoder)) {
		list = append(list, s.decoder[id])
	}
	return list
}
