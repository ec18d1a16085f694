package bpe

import (
	"encoding/base64"
	"fmt"
	"io/fs"
	"math"
	"slices"

	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// fileTekken is a file in Mistral's own format. It contains a list of tokens in base64 in the order
// of their ranks, a pattern, and special tokens. The special tokens have the lowest ids.
const fileTekken = "tekken.json"

// loadTekken reads a tokenizer from tekken.json. With AddedNone, the ids equal the ids from
// mistral-common 1.13.1, whose Tekkenizer never matches special tokens in text. With AddedAll,
// special tokens are matched as they are for a tokenizer.json.
func loadTekken(folder fs.FS) (*Tokenizer, error) {
	raw, err := readFile(folder, fileTekken)
	if err != nil {
		return nil, fmt.Errorf("bpe: %w", err)
	}
	return parseFile(fileTekken, raw, func() (*Tokenizer, error) { return parseTekken(raw) })
}

type tekkenConfig struct {
	Pattern     string `json:"pattern"`
	VocabTokens int    `json:"num_vocab_tokens"`
	VocabSize   int    `json:"default_vocab_size"`
	Special     int    `json:"default_num_special_tokens"`
	Version     string `json:"version"`
}

type tekkenSpecial struct {
	Rank      int    `json:"rank"`
	Text      string `json:"token_str"`
	IsControl bool   `json:"is_control"`
}

// tekkenVersions lists the supported versions of the format. Up to v7, the list of special tokens
// is optional.
var tekkenVersions = []string{"v1", "v2", "v3", "v7", "v11", "v13", "v15"}

// tekkenSpecials lists the special tokens for files without a list of special tokens. Additional
// special tokens are named by number, such as <SPECIAL_20>.
var tekkenSpecials = []string{
	"<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
	"[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]",
	"[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]",
}

type tekkenFile struct {
	config  tekkenConfig
	special []tekkenSpecial
	r       *jsonReader
	vocab   *strictjson.Mark // the start of the list
}

func (f *tekkenFile) read(raw []byte) error {
	r := newReader(raw, false)
	f.r = r
	seen := map[string]bool{}
	for key := range r.Members {
		seen[key] = true
		switch key {
		case "config":
			r.strict(&f.config)
		case "special_tokens":
			if r.Null() {
				seen[key] = false
			} else {
				r.strict(&f.special)
			}
		case "vocab":
			r.Kind()
			f.vocab = new(r.Mark())
		case "image", "multimodal", "audio", "type", "version", "model_settings_builder": // these members do not affect text
		default:
			r.unsupported("unknown top-level field %.40q", key)
		}
	}
	if err := r.end(); err != nil {
		return err
	}
	if !seen["config"] || f.vocab == nil {
		return fmt.Errorf("%w: config or vocab is missing", ErrCorrupt)
	}
	c := &f.config
	if !slices.Contains(tekkenVersions, c.Version) {
		return unsupported("version %.20q (want one of %s)", c.Version, tekkenVersions)
	}
	if c.Special > c.VocabSize || c.VocabSize > maxID || c.Special > maxAdded {
		return fmt.Errorf("%w: config: invalid sizes (%d tokens, %d special)", ErrCorrupt, c.VocabSize, c.Special)
	}
	if !seen["special_tokens"] {
		if slices.Index(tekkenVersions, c.Version) > slices.Index(tekkenVersions, "v7") {
			return fmt.Errorf("%w: version %s without special_tokens", ErrCorrupt, c.Version)
		}
		for i, text := range tekkenSpecials {
			f.special = append(f.special, tekkenSpecial{Rank: i, Text: text, IsControl: true})
		}
	}
	return nil
}

// added returns the special tokens. They have the lowest ids.
func (f *tekkenFile) added() ([]Added, error) {
	n := f.config.Special
	if len(f.special) > n {
		return nil, fmt.Errorf("%w: %d special tokens, but config has %d", ErrCorrupt, len(f.special), n)
	}
	added := make([]Added, n)
	seen := make(map[string]bool, n)
	for i := range added {
		text := fmt.Sprintf("<SPECIAL_%d>", i)
		if i < len(f.special) {
			s := f.special[i]
			if text = s.Text; s.Rank != i {
				return nil, fmt.Errorf("%w: special token %.40q has rank %d, want %d", ErrCorrupt, text, s.Rank, i)
			}
		}
		if text == "" || len(text) > maxAddedLen || seen[text] {
			return nil, fmt.Errorf("%w: special token %d: text %.40q is empty, too long or a duplicate", ErrCorrupt, i, text)
		}
		seen[text] = true
		added[i] = Added{ID: int32(i), Content: text, Special: true}
	}
	return added, nil
}

// parseTekken parses raw; the caller checks that raw is valid UTF-8.
func parseTekken(raw []byte) (*Tokenizer, error) {
	if len(raw) > min(maxFileBytes, math.MaxInt32) {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrCorrupt, maxFileBytes)
	}
	var f tekkenFile
	if err := f.read(raw); err != nil {
		return nil, err
	}
	if f.config.Pattern != patternTekken {
		return nil, unsupported("pattern %q", f.config.Pattern)
	}
	added, err := f.added()
	if err != nil {
		return nil, err
	}
	words, err := f.words()
	if err != nil {
		return nil, err
	}
	pieces, merges, err := rankTables(words, int32(f.config.Special))
	if err != nil {
		return nil, err
	}
	st, err := regexStage(patternTekken, isolated, false)
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{family: FamilyTekken, stages: []stage{st}, splitAtSpecial: true}
	if err := t.build(pieces, merges, added, nil, &modelSpec{IgnoreMerges: true}); err != nil {
		return nil, err
	}
	if id, ok := t.contents["<s>"]; ok {
		t.prefix = []int32{id}
	}
	return t, nil
}

// words decodes the vocabulary up to the configured size. The model does not use the rest.
func (f *tekkenFile) words() ([][]byte, error) {
	r, n := f.r, f.config.VocabSize-f.config.Special
	r.Return(*f.vocab)
	words := make([][]byte, 0, min(n, len(r.b)/32))
	var text []byte
	for range r.Elements {
		if len(words) == n {
			return words, nil
		}
		start := len(text)
		text = appendWord(r, text, len(words))
		words = append(words, text[start:len(text):len(text)])
	}
	if r.Err() == nil && len(words) < n {
		return nil, fmt.Errorf("%w: vocab has %d tokens, but config needs %d", ErrCorrupt, len(words), n)
	}
	return words, r.fault()
}

// appendWord appends the bytes of the next token in r. The token must have the given rank.
func appendWord(r *jsonReader, dst []byte, rank int) []byte {
	start := len(dst)
	var hasRank, hasBytes, hasText bool
	for key := range r.Members {
		switch key {
		case "rank":
			hasRank = true
			if id := r.id(); r.Err() == nil && int(id) != rank {
				r.failf("token %d has rank %d, want %d", rank, id, rank)
			}
		case "token_bytes":
			hasBytes = true
			b64 := r.Text()
			var err error
			dst, err = base64.StdEncoding.AppendDecode(dst, []byte(b64))
			if r.Err() == nil && (err != nil || len(dst) == start || len(dst)-start > maxRankLen) {
				r.failf("token %d: %.40q is not the base64 encoding of 1 to %d bytes", rank, b64, maxRankLen)
			}
		case "token_str": // the printed form, or null
			hasText = true
		default:
			r.failf("token %d: unknown field", rank)
		}
	}
	switch {
	case r.Err() != nil:
	case !hasRank || !hasBytes || !hasText:
		r.failf("token %d: rank, token_bytes or token_str is missing", rank)
	case rank < 256 && (len(dst) != start+1 || dst[start] != byte(rank)):
		r.failf("token %d must be byte %d", rank, rank)
	}
	return dst
}
