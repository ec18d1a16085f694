package bpe

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// A special is a str or an AddedToken of transformers. A str becomes an AddedToken only when it is
// added. AddedTokens are shared and their special flag is set later, so they are pointers.
type special struct {
	content             string
	str                 bool  // a Python str
	raw                 bool  // an object of tokenizer_config.json: a dict until all files are read
	normalized          *bool // nil: the opposite of special
	single, left, right bool
	special             bool
}

// flags returns s as the engine adds it.
func (s *special) flags() addedSpec {
	n := !s.special
	if s.normalized != nil {
		n = *s.normalized
	}
	return addedSpec{Content: s.content, SingleWord: s.single, LStrip: s.left, RStrip: s.right, Normalized: n, Special: s.special}
}

// equal is Python's ==: a str or a dict never equals an AddedToken.
func (s *special) equal(o *special) bool {
	return s.str == o.str && s.raw == o.raw && (s.str && s.content == o.content || !s.str && s.flags() == o.flags())
}

func among(list []*special, s *special) bool {
	return slices.ContainsFunc(list, func(o *special) bool { return o.equal(s) })
}

// plainSpecial is AddedToken(content, special=True).
func plainSpecial(content string) *special { return &special{content: content, special: true} }

func readSpecial(v *jsonValue, field string) (*special, error) {
	s := &special{}
	found := false
	for i, key := range v.keys {
		x := &v.vals[i]
		var flag *bool
		switch key {
		case "__type":
			continue
		case "content":
			if x.kind != '"' {
				return nil, badField(field+".content", "is %s, want a string", x.what())
			}
			s.content, found = x.text, true
			continue
		case "single_word":
			flag = &s.single
		case "lstrip":
			flag = &s.left
		case "rstrip":
			flag = &s.right
		case "special":
			flag = &s.special
		case "normalized":
			s.normalized = new(bool)
			flag = s.normalized
		default:
			return nil, badField(field+"."+quoteKey(key), "is not a field of an added token")
		}
		if x.kind != 't' && x.kind != 'f' {
			return nil, badField(field+"."+key, "is %s, want true or false", x.what())
		}
		*flag = x.kind == 't'
	}
	if !found {
		return nil, badField(field, "has no content")
	}
	if len(s.content) > maxAddedLen {
		return nil, badField(field+".content", "has %d bytes (limit %d)", len(s.content), maxAddedLen)
	}
	return s, nil
}

// quoteKey truncates a key for a message.
func quoteKey(key string) string { return fmt.Sprintf("%.40s", key) }

// An addedEngine adds tokens as the tokenizers library does. Release 4 and the first 5.x releases
// use versions before 0.23; later releases use 0.23 or newer.
type addedEngine struct {
	pieces  *pieceTable
	old     bool // before 0.23
	ids     map[string]int32
	byID    map[int32]addedSpec // latest flags
	special map[string]bool
	max     int32
	// Before 0.23, the two passes use these lists. A token keeps the flag normalized that it had
	// when it was listed, and can be listed several times.
	specials, plain []addedSpec
}

func newAddedEngine(pieces *pieceTable, old bool) *addedEngine {
	return &addedEngine{pieces: pieces, old: old, ids: map[string]int32{}, byID: map[int32]addedSpec{}, special: map[string]bool{}, max: -1}
}

func (e *addedEngine) add(tokens []addedSpec) {
	for _, t := range tokens {
		if t.Special && t.Content != "" && !e.special[t.Content] {
			e.specials = append(e.specials, t)
			e.special[t.Content] = true
		}
	}
	next := max(e.max+1, int32(e.pieces.len()))
	before := map[addedSpec]bool{} // versions before 0.23 do not add flags again that the token had since the start of this call
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

// A pass selects the texts in which a token is matched.
type pass uint8

const (
	passRaw        pass = 1 << iota // in the raw text
	passNormalized                  // in the normalized text
)

// added returns the tokens by id, and their passes.
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
	contents := slices.SortedFunc(maps.Keys(e.ids), func(a, b string) int { return int(e.ids[a]) - int(e.ids[b]) })
	added, passes := make([]Added, 0, len(contents)), make([]pass, 0, len(contents))
	for _, c := range contents {
		t := e.byID[e.ids[c]]
		added = append(added, Added{
			ID: e.ids[c], Content: c, Special: e.special[c], Normalized: in[c] == passNormalized,
			SingleWord: t.SingleWord, LStrip: t.LStrip, RStrip: t.RStrip,
		})
		passes = append(passes, in[c])
	}
	return added, passes
}

// The attributes of a tokenizer for special tokens, in the order of transformers.
var namedTokens = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// A tokenSet has the added and special tokens from the files of a folder: the arguments that
// AutoTokenizer passes to the tokenizer class.
type tokenSet struct {
	decoder map[int64]*special // added_tokens_decoder
	byText  map[string]*special
	named   map[string]*special // nil value: null
	more    []string            // names of model-specific tokens, in order
	extra   []*special          // extra_special_tokens or additional_special_tokens
}

func readNamed(v *jsonValue, field string) (*special, error) {
	switch {
	case v.kind == 'n':
		return nil, nil
	case v.kind == '"':
		return &special{content: v.text, str: true}, nil
	case isTyped(v):
		return readSpecial(v, field)
	}
	return nil, badField(field, "is %s, want a string, null or an AddedToken", v.what())
}

// isTyped reports whether v is an AddedToken in the serialized form of transformers.
func isTyped(v *jsonValue) bool {
	t := v.get("__type")
	return t != nil && t.kind == '"' && t.text == "AddedToken"
}

// readTokens decodes a list of tokens of tokenizer_config.json.
func readTokens(v *jsonValue, field string) ([]*special, error) {
	list := make([]*special, 0, len(v.vals))
	for i := range v.vals {
		s, err := readNamed(&v.vals[i], fmt.Sprintf("%s[%d]", field, i))
		if err != nil {
			return nil, err
		}
		if s == nil {
			return nil, badField(fmt.Sprintf("%s[%d]", field, i), "is null, want a string")
		}
		s.raw = !s.str
		list = append(list, s)
	}
	return list, nil
}

func (s *tokenSet) readDecoder(v *jsonValue) error {
	const field = FileConfig + ": added_tokens_decoder"
	if v.kind != '{' {
		return badField(field, "is %s, want an object", v.what())
	}
	if len(v.keys) > maxAdded {
		return badField(field, "has %d tokens (limit %d)", len(v.keys), maxAdded)
	}
	for i, key := range v.keys {
		at := field + "." + quoteKey(key)
		id, err := strconv.ParseInt(key, 10, 32)
		if err != nil || strconv.FormatInt(id, 10) != key {
			return badField(at, "is not an id")
		}
		if v.vals[i].kind != '{' {
			return badField(at, "is %s, want an object", v.vals[i].what())
		}
		tok, err := readSpecial(&v.vals[i], at)
		if err != nil {
			return err
		}
		s.decoder[id], s.byText[tok.content] = tok, tok
	}
	return nil
}

// inOrder returns the tokens of added_tokens_decoder by id.
func (s *tokenSet) inOrder() []*special {
	list := make([]*special, 0, len(s.decoder))
	for _, id := range slices.Sorted(maps.Keys(s.decoder)) {
		list = append(list, s.decoder[id])
	}
	return list
}
