package bpe

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/rollout-rl/rollout/tokenize/chat"
)

// The files of a tokenizer in a model repository.
const (
	FileJSON     = "tokenizer.json"
	FileConfig   = "tokenizer_config.json"
	fileTiktoken = "tiktoken.model"
)

var (
	// ErrUnsupported marks a tokenizer with an unsupported feature. The message names the feature.
	ErrUnsupported = errors.New("unsupported tokenizer feature")
	// ErrExperimental marks a family that is implemented but not yet tested against the reference
	// engine. Options.Experimental allows it.
	ErrExperimental = errors.New("experimental tokenizer family")
	// ErrCorrupt marks a file that contradicts itself or its format.
	ErrCorrupt = errors.New("corrupt tokenizer")
	// ErrVocab marks an id without a token.
	ErrVocab = errors.New("id outside the vocabulary")
)

// Options configures loading. The zero value is the strictest.
type Options struct {
	// Experimental allows unknown split patterns and the family Kimi, which has not been compared
	// with the reference engine on its real vocabulary.
	Experimental bool
	// Releases lists the versions of the transformers library whose AutoTokenizer must load the
	// same tokenizer. Nil means all versions. Load rejects a folder if the listed versions load
	// different tokenizers from it.
	Releases []chat.Transformers
}

// A Tokenizer encodes text to token ids and decodes ids to text, exactly as the model's
// tokenizer.json specifies. It is immutable and safe for concurrent use.
type Tokenizer struct {
	family Family
	merged string // while loading: the changes that the folder's other files make to tokenizer.json
	digest string

	added    [2]*trie // added[0] is matched in the raw text, added[1] in the normalized text
	addedAll []Added
	prefix   []int32 // ids that the post-processor adds before the text
	suffix   []int32 // ids that the post-processor adds after the text

	norm           []normStep
	space          *metaspace // nil without a Metaspace pre-tokenizer
	stages         []stage    // each splits the output of the previous stage; the last produces the pre-tokens
	kimiChunks     bool       // true for Kimi: the input is first split into chunks
	splitAtSpecial bool       // true for tekken.json: decoding does not form a character across a skipped special token

	model
	pool sync.Pool // of *encoder
}

// An Added token is matched in the text before the model's own vocabulary is used.
type Added struct {
	ID      int32  `json:"id"`
	Content string `json:"content"`
	// Special tokens are skipped by DecodeOptions.SkipSpecial, unless normalization changes them.
	Special bool `json:"special"`
	// Normalized tokens are matched after normalization, by their normalized content, and decode to
	// that content. Other tokens are matched in the raw text.
	Normalized bool `json:"normalized"`
	// SingleWord tokens match only if no word character is adjacent. LStrip tokens include the
	// white space before them, and RStrip tokens include the white space after them.
	SingleWord bool `json:"single_word"`
	LStrip     bool `json:"lstrip"`
	RStrip     bool `json:"rstrip"`
}

// A Family is a set of models whose tokenizers use the same split pattern.
type Family string

// The families.
const (
	FamilyCL100K   Family = "cl100k"    // Qwen2, Qwen2.5, Qwen3: each digit is a piece
	FamilyQwen35   Family = "qwen3.5"   // Qwen3.5, Qwen3.6: like cl100k, but marks count as letters
	FamilyLlama3   Family = "llama3"    // Llama 3.x: a piece has up to three digits
	FamilyO200K    Family = "o200k"     // gpt-oss, Llama 4, MiniMax-M2
	FamilyTekken   Family = "tekken"    // Mistral Nemo
	FamilyDeepSeek Family = "deepseek"  // DeepSeek V3, R1, V4: three patterns
	FamilyGPT2     Family = "gpt2"      // ByteLevel with its own pattern
	FamilyCommandR Family = "command-r" // Command R: Digits, then like gpt2
	FamilyChars    Family = "chars"     // Gemma, Llama 2, Mistral 7B: characters, no pattern
	FamilyGLM      Family = "glm"       // GLM-4.5, 4.7, 5: like llama3
	FamilyKimi     Family = "kimi"      // Kimi-K2, a tiktoken file; experimental
	FamilyOther    Family = "other"     // other patterns; experimental
)

// Family returns the family of t.
func (t *Tokenizer) Family() Family { return t.family }

// Digest identifies t. It is the SHA-256 of tokenizer.json in lower-case hex, or the SHA-256 of the
// digests of several files. It also covers the changes that the folder's other files make to ids.
func (t *Tokenizer) Digest() string { return t.digest }

// VocabSize returns the highest id plus 1. Some lower ids can be unused.
func (t *Tokenizer) VocabSize() int { return len(t.off) - 1 }

// Added returns the added tokens in ascending order of their ids.
func (t *Tokenizer) Added() []Added { return append([]Added(nil), t.addedAll...) }

// IsSpecial reports whether id is an added token that is marked as special.
func (t *Tokenizer) IsSpecial(id int32) bool {
	return id >= 0 && int(id) < len(t.flags) && t.flags[id]&flagSpecial != 0
}

// Has reports whether the tokenizer has a token with this id.
func (t *Tokenizer) Has(id int32) bool {
	return id >= 0 && int(id) < len(t.flags) && t.flags[id]&flagUsed != 0
}

// ID returns the id of the token with the given spelling, such as "<|im_end|>" or "Ġthe".
func (t *Tokenizer) ID(piece string) (int32, bool) {
	if id, ok := t.contents[piece]; ok {
		return id, true
	}
	return t.pieces.get(piece)
}

// Bytes returns the bytes to which id decodes. At the start of a text, id can decode to other
// bytes. The bytes are not always valid UTF-8. The caller must not modify them.
func (t *Tokenizer) Bytes(id int32) ([]byte, error) {
	if !t.Has(id) {
		return nil, t.vocabError(id)
	}
	a, b := t.off[id], t.off[id+1]
	return t.bytes[a:b:b], nil
}

// Piece returns the vocabulary's spelling of id, or the content of an added token. It is the
// inverse of ID. The result is empty if there is no token with this id.
func (t *Tokenizer) Piece(id int32) string {
	if !t.Has(id) {
		return ""
	}
	if i, ok := t.addedIndex(id); ok {
		return t.addedAll[i].Content
	}
	return string(t.spelling(id))
}

func (t *Tokenizer) addedIndex(id int32) (int, bool) {
	return slices.BinarySearchFunc(t.addedAll, id, func(a Added, id int32) int { return int(a.ID) - int(id) })
}

func (t *Tokenizer) vocabError(id int32) error {
	return fmt.Errorf("bpe: id %d: %w of %d", id, ErrVocab, t.VocabSize())
}
