package bpe

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize/internal/modelfile"
)

// Load reads the tokenizer in a model's folder. It reads tokenizer.json. If that file does not
// exist, Load reads Mistral's tekken.json, or else tiktoken.model and tokenizer_config.json.
//
// Load merges tokenizer_config.json, config.json, special_tokens_map.json and added_tokens.json
// into tokenizer.json. The result is the same as with AutoTokenizer in the versions that
// Options.Releases lists. If Load cannot merge a field, it returns an error that names the file and
// the field and wraps ErrUnsupported.
//
// The error wraps ErrCorrupt if a file is damaged, and ErrUnsupported if a feature is not
// supported. It wraps ErrExperimental if the family is experimental and opts does not allow it.
func Load(folder fs.FS, opts Options) (*Tokenizer, error) {
	raw, err := readFile(folder, FileJSON)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := fs.Stat(folder, fileTekken); err == nil {
			return loadTekken(folder)
		}
		if _, err := fs.Stat(folder, fileTiktoken); err == nil {
			return loadTiktoken(folder, opts)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("bpe: %w", err)
	}
	auto, err := readAuto(folder)
	if err != nil {
		return nil, fmt.Errorf("bpe: %w", err)
	}
	return parseFile(FileJSON, raw, func() (*Tokenizer, error) { return parse(raw, opts, auto) })
}

func readFile(folder fs.FS, name string) ([]byte, error) {
	raw, err := modelfile.Read(folder, name, maxFileBytes)
	if bad, ok := errors.AsType[*modelfile.Error](err); ok {
		return nil, fmt.Errorf("%s: %w: %s", name, ErrCorrupt, bad.Reason)
	}
	return raw, err
}

// Parse returns the tokenizer for the content of a tokenizer.json. It ignores the model's other
// files and does not keep raw.
func Parse(raw []byte, opts Options) (*Tokenizer, error) {
	return parseFile(FileJSON, raw, func() (*Tokenizer, error) { return parse(raw, opts, nil) })
}

// parseFile calls parse. In parallel, it computes the digest of raw and checks that raw is valid
// UTF-8. The digest and the check together take a fifth of the time that parse takes.
func parseFile(name string, raw []byte, parse func() (*Tokenizer, error)) (*Tokenizer, error) {
	sum, valid := make(chan string, 1), make(chan bool, 1) // buffered, so the goroutine never blocks
	go func() {
		valid <- utf8.Valid(raw)
		sum <- hexSum(raw)
	}()
	t, err := parse()
	digest := <-sum
	if !<-valid {
		err = fmt.Errorf("%w: byte %d: not valid UTF-8", ErrCorrupt, validPrefix(raw))
	}
	if _, ok := errors.AsType[*autoError](err); ok { // the message already has the file name
		return nil, fmt.Errorf("bpe: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("bpe: %s: %w", name, err)
	}
	t.digest = digest
	if t.merged != "" {
		t.digest, t.merged = hexSum([]byte(digest+"\n"+t.merged)), ""
	}
	return t, nil
}

// validPrefix returns the length of the longest valid UTF-8 prefix of raw.
func validPrefix(raw []byte) int {
	for i := 0; i < len(raw); {
		c, n := utf8.DecodeRune(raw[i:])
		if c == utf8.RuneError && n <= 1 {
			return i
		}
		i += n
	}
	return len(raw)
}

func hexSum(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

func unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnsupported, fmt.Sprintf(format, args...))
}

// A jsonFile is a parsed tokenizer.json.
type jsonFile struct {
	pieces pieceTable
	merges []merge
	model  modelSpec
	added  []Added

	normalizer, preTokenizer, postProcessor, decoder part
}

// parse parses raw. It relies on parseFile to check that raw is valid UTF-8. auto can be nil.
func parse(raw []byte, opts Options, auto *autoFiles) (*Tokenizer, error) {
	if len(raw) > min(maxFileBytes, math.MaxInt32) {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrCorrupt, maxFileBytes)
	}
	f := jsonFile{pieces: newPieceTable()}
	if err := f.read(newReader(raw, false)); err != nil {
		return nil, err
	}
	if err := f.checkAdded(); err != nil {
		return nil, err
	}
	t := &Tokenizer{}
	var m *merged
	if auto != nil {
		auto.byteLevel = bytes.Contains(raw, []byte(`"ByteLevel"`))
		var err error
		if m, err = auto.use(&f, opts.Releases); err != nil {
			return nil, err
		}
		f.added, t.merged = m.specs(), m.digest
	}
	if err := f.pipeline(t); err != nil {
		return nil, err
	}
	if t.family != FamilyOther && slices.ContainsFunc(f.added, func(a Added) bool { return a.Content == "[gMASK]" }) {
		t.family = FamilyGLM
	}
	switch {
	case opts.Experimental:
	case t.family == FamilyOther:
		return nil, fmt.Errorf("%w: pre_tokenizer %.1000s", ErrExperimental, f.preTokenizer.raw)
	case t.family == FamilyKimi:
		return nil, fmt.Errorf("%w: %s", ErrExperimental, t.family)
	}
	added, passes := f.added, []pass(nil)
	if m != nil {
		added, passes = m.added, m.passes
	}
	err := t.build(f.pieces, f.merges, added, passes, &f.model)
	if err == nil {
		err = t.buildPostProcessor(&f)
	}
	if err != nil && m != nil && m.class != nil {
		err = fmt.Errorf("with tokenizer_class from %s: %w; %s", FileConfig, err, classHint)
	} else if err != nil && t.merged != "" {
		err = fmt.Errorf("with the added and special tokens from %s: %w", FileConfig, err)
	}
	return t, err
}

// build fills t. passes[i] is the pass that matches added[i]. If passes is nil, the field
// Normalized of each added token determines its pass.
func (t *Tokenizer) build(pieces pieceTable, merges []merge, added []Added, passes []pass, spec *modelSpec) error {
	t.pieces = pieces
	spelled, err := t.spellAdded(added, passes)
	if err != nil {
		return err
	}
	if err := t.buildBytes(added, spelled); err != nil {
		return err
	}
	if t.decoder != nil {
		if err := t.buildChars(spec); err != nil {
			return err
		}
		t.stages = append(t.stages, stage{cut: t.cutChars})
	} else if err := t.buildByteIDs(); err != nil {
		return err
	}
	if err := t.buildMerges(merges); err != nil {
		return err
	}
	t.buildWords(spec.IgnoreMerges && t.chars == nil)
	t.buildAdded(added, passes, spelled)
	return nil
}

// spellAdded returns the content of each added token, for matching and decoding. For a token that
// is matched in the normalized text, it returns the normalized content.
func (t *Tokenizer) spellAdded(added []Added, passes []pass) ([]string, error) {
	spelled := make([]string, len(added))
	seen := make(map[string]string)
	total := 0
	var n normalizer
	for i, a := range added {
		spelled[i] = a.Content
		if total += len(a.Content); total > maxAddedText {
			return nil, unsupported("added tokens of more than %d bytes in total", maxAddedText)
		}
		if passOf(&added[i], passes, i)&passNormalized == 0 {
			continue
		}
		s := strings.Clone(n.normalize(t.norm, a.Content))
		if s == "" {
			return nil, unsupported("added token %q, which is empty after normalization", a.Content)
		}
		if len(s) > maxAddedLen {
			return nil, unsupported("added token %.40q of %d bytes after normalization (limit %d)", a.Content, len(s), maxAddedLen)
		}
		if total += len(s); total > maxAddedText {
			return nil, unsupported("added tokens of more than %d bytes in total", maxAddedText)
		}
		if other, ok := seen[s]; ok { // it is undefined which of the two tokens the reference engine would match
			return nil, unsupported("added tokens %q and %q, which both normalize to %q", other, a.Content, s)
		}
		seen[s], spelled[i] = a.Content, s
	}
	return spelled, nil
}

func passOf(a *Added, passes []pass, i int) pass {
	switch {
	case passes != nil:
		return passes[i]
	case a.Normalized:
		return passNormalized
	}
	return passRaw
}

func (t *Tokenizer) buildAdded(added []Added, passes []pass, spelled []string) {
	t.addedAll = slices.Clone(added)
	slices.SortFunc(t.addedAll, func(a, b Added) int { return int(a.ID) - int(b.ID) })
	t.contents = make(map[string]int32, len(added))
	var tokens [2][]Added
	var content [2][]string
	for i, a := range added {
		t.contents[a.Content] = a.ID
		p := passOf(&added[i], passes, i)
		if p&passRaw != 0 {
			tokens[0], content[0] = append(tokens[0], a), append(content[0], a.Content)
		}
		if p&passNormalized != 0 {
			tokens[1], content[1] = append(tokens[1], a), append(content[1], spelled[i])
		}
	}
	for i := range t.added {
		t.added[i] = newTrie(tokens[i], content[i])
	}
}

// checkAdded validates the added tokens. The reference engine assigns the ids of added tokens
// itself, so checkAdded rejects a file with different ids.
func (f *jsonFile) checkAdded() error {
	if len(f.added) > maxAdded {
		return unsupported("%d added tokens (limit %d)", len(f.added), maxAdded)
	}
	seen := make(map[string]bool, len(f.added))
	next := int32(f.pieces.len())
	for _, a := range f.added {
		switch {
		case a.Content == "" || len(a.Content) > maxAddedLen:
			return fmt.Errorf("%w: added token %d has %d bytes, want 1 to %d", ErrCorrupt, a.ID, len(a.Content), maxAddedLen)
		case seen[a.Content]:
			return fmt.Errorf("%w: duplicate added token %q", ErrCorrupt, a.Content)
		case a.ID > maxID:
			return fmt.Errorf("%w: added token %q has id %d, want 0 to %d", ErrCorrupt, a.Content, a.ID, maxID)
		}
		seen[a.Content] = true
		id, ok := f.pieces.get(a.Content)
		if !ok {
			id = next
			next++
		}
		if id != a.ID {
			return fmt.Errorf("%w: added token %q has id %d, but its position requires id %d", ErrCorrupt, a.Content, a.ID, id)
		}
	}
	return nil
}
