package bpe

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/rollout-rl/rollout/tokenize/chat"
)

// The files of a tokenizer, as model repositories name them.
const (
	FileJSON     = "tokenizer.json"
	FileConfig   = "tokenizer_config.json"
	FileTiktoken = "tiktoken.model"
)

var (
	// ErrUnsupported marks a tokenizer that uses a feature this package does not
	// implement. The text names the feature.
	ErrUnsupported = errors.New("unsupported tokenizer feature")
	// ErrExperimental marks a family whose loader exists and whose vectors have
	// not run yet; Options.Experimental lets it in.
	ErrExperimental = errors.New("experimental tokenizer family")
	// ErrCorrupt marks a file that contradicts itself or its format.
	ErrCorrupt = errors.New("corrupt tokenizer")
	// ErrVocab marks an id that no token has.
	ErrVocab = errors.New("id outside the vocabulary")
)

// Options says how to load a tokenizer. The zero value is the safe choice.
type Options struct {
	// Experimental admits the family Kimi, whose loader has not been compared with
	// the reference engine on the real vocabulary, and split patterns of no family.
	Experimental bool
	// Releases are the releases of transformers whose AutoTokenizer t must equal. Nil means
	// all releases: a folder that they load as different tokenizers is refused.
	Releases []chat.Transformers
}

// A Tokenizer encodes text to token ids and decodes ids to text, exactly as the
// model's own tokenizer.json prescribes. It is immutable and may be shared; the
// scratch memory of an encoding call comes from a pool.
type Tokenizer struct {
	family Family
	files  []File
	merged string // while loading: the changes that the other files of the folder make to tokenizer.json
	digest string // empty: use the digest of files

	added    [2]*trie // 0: cut from the raw text; 1: cut after normalization
	addedAll []Added
	prefix   []int32 // what the post-processor puts before and after
	suffix   []int32

	norm   []normStep
	space  *metaspace // nil where there is no such pre-tokenizer
	stages []stage    // each cuts what the one before left; the last makes pre-tokens
	chunks bool       // Kimi: the input is cut before all else
	apart  bool       // tekken.json: decoding, a character does not go across a special token that is left out

	model
	pool sync.Pool // of *encoder
}

// A File is one file that a tokenizer was made of, for footers and resume checks.
type File struct {
	Name   string
	SHA256 string // lower-case hex of the whole file
}

// An Added token is matched in the text before the model's own vocabulary is
// asked.
type Added struct {
	ID      int32
	Content string
	// Special tokens are left out by DecodeOptions.SkipSpecial, unless their content
	// is normalized to another.
	Special bool
	// Normalized tokens are looked for after normalization, as their content is
	// then, and decode to that; the others are looked for in the raw text.
	Normalized bool
	// SingleWord tokens count only where no word character touches them; LStrip
	// and RStrip tokens swallow the white space before and after.
	SingleWord, LStrip, RStrip bool
}

// Family names the group of models whose split pattern the tokenizer uses.
type Family string

// The families.
const (
	FamilyCL100K   Family = "cl100k"    // Qwen2, Qwen2.5, Qwen3: one digit at a time
	FamilyQwen35   Family = "qwen3.5"   // Qwen3.5, Qwen3.6: as cl100k, with marks among letters
	FamilyLlama3   Family = "llama3"    // Llama 3.x: up to three digits
	FamilyO200K    Family = "o200k"     // gpt-oss
	FamilyTekken   Family = "tekken"    // Mistral Nemo
	FamilyDeepSeek Family = "deepseek"  // DeepSeek V3 and R1: three patterns
	FamilyGPT2     Family = "gpt2"      // ByteLevel with its own pattern
	FamilyCommandR Family = "command-r" // Command R: Digits, then as gpt2
	FamilyChars    Family = "chars"     // Gemma, Llama 2, Mistral 7B: characters, no pattern
	FamilyGLM      Family = "glm"       // GLM-4.5, 4.7, 5: as Llama3
	FamilyKimi     Family = "kimi"      // Kimi-K2, a tiktoken file; experimental
	FamilyOther    Family = "other"     // other patterns; experimental
)

// Family returns the family of t.
func (t *Tokenizer) Family() Family { return t.family }

// Files returns the files t was made of, in a fixed order.
func (t *Tokenizer) Files() []File { return append([]File(nil), t.files...) }

// Digest identifies t: the SHA-256 of tokenizer.json in lower-case hex. For a tiktoken
// tokenizer, it is the SHA-256 of its files' digests. If tokenizer_config.json or another file
// of the folder changes ids, the digest covers that change too.
func (t *Tokenizer) Digest() string {
	if t.digest != "" {
		return t.digest
	}
	return digestOf(t.files)
}

// VocabSize returns one more than the highest id. Ids below it may be unused.
func (t *Tokenizer) VocabSize() int { return len(t.off) - 1 }

// Added returns the added tokens by ascending id.
func (t *Tokenizer) Added() []Added { return append([]Added(nil), t.addedAll...) }

// IsSpecial reports whether id is an added token marked special.
func (t *Tokenizer) IsSpecial(id int32) bool {
	return id >= 0 && int(id) < len(t.flags) && t.flags[id]&flagSpecial != 0
}

// Has reports whether a token has the id.
func (t *Tokenizer) Has(id int32) bool {
	return id >= 0 && int(id) < len(t.flags) && t.flags[id]&flagUsed != 0
}

// ID returns the id of the token that the vocabulary spells piece, such as
// "<|im_end|>" or "Ġthe".
func (t *Tokenizer) ID(piece string) (int32, bool) {
	if id, ok := t.contents[piece]; ok {
		return id, true
	}
	return t.pieces.get(piece)
}

// Bytes returns the bytes that id decodes to inside a text. They need not be valid UTF-8, and
// must not be changed.
func (t *Tokenizer) Bytes(id int32) ([]byte, error) {
	if !t.Has(id) {
		return nil, t.vocabError(id)
	}
	a, b := t.off[id], t.off[id+1]
	return t.bytes[a:b:b], nil
}

// Piece returns the vocabulary's spelling of id, of an added token its content: the
// inverse of ID. It is empty where no token has the id.
func (t *Tokenizer) Piece(id int32) string {
	if !t.Has(id) {
		return ""
	}
	if i, ok := t.addedIndex(id); ok {
		return t.addedAll[i].Content
	}
	return string(t.spelling(id))
}

// addedIndex returns the place of id in addedAll.
func (t *Tokenizer) addedIndex(id int32) (int, bool) {
	return slices.BinarySearchFunc(t.addedAll, id, func(a Added, id int32) int { return int(a.ID) - int(id) })
}

func (t *Tokenizer) vocabError(id int32) error {
	return fmt.Errorf("bpe: id %d: %w of %d", id, ErrVocab, t.VocabSize())
}
