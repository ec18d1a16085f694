package bpe

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize/internal/textview"
)

// loadTiktoken reads a tokenizer from two files. tiktoken.model lists the tokens in base64 with
// their ranks, and tokenizer_config.json has the special tokens. Only the family Kimi uses this
// format, and Kimi requires Options.Experimental.
func loadTiktoken(folder fs.FS, opts Options) (*Tokenizer, error) {
	if !opts.Experimental {
		return nil, fmt.Errorf("bpe: %s: %w: %s", fileTiktoken, ErrExperimental, FamilyKimi)
	}
	ranks, err := readFile(folder, fileTiktoken)
	if err != nil {
		return nil, fmt.Errorf("bpe: %w", err)
	}
	config, err := readFile(folder, FileConfig)
	if err != nil {
		return nil, fmt.Errorf("bpe: %w", err)
	}
	t, err := parseTiktoken(ranks, config)
	if err != nil {
		return nil, fmt.Errorf("bpe: %w", err)
	}
	t.digest = hexSum(fmt.Appendf(nil, "%s  %s\n%s  %s\n", hexSum(ranks), fileTiktoken, hexSum(config), FileConfig))
	return t, nil
}

func parseTiktoken(ranks, config []byte) (*Tokenizer, error) {
	words, err := readRanks(ranks)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", fileTiktoken, err)
	}
	added, err := kimiAdded(config, int32(len(words)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", FileConfig, err)
	}
	pieces, merges, err := rankTables(words, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", fileTiktoken, err)
	}
	st, err := regexStage(patternKimi, isolated, false)
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{family: FamilyKimi, stages: []stage{st}, kimiChunks: true}
	if err := t.build(pieces, merges, added, nil, &modelSpec{IgnoreMerges: true}); err != nil {
		return nil, fmt.Errorf("%s: %w", fileTiktoken, err)
	}
	return t, nil
}

// readRanks parses lines of the form "base64 rank". Ranks must be consecutive from 0. A rank is the
// id of the token.
func readRanks(raw []byte) (words [][]byte, err error) {
	for n := 1; len(raw) > 0; n++ {
		var line []byte
		line, raw, _ = bytes.Cut(raw, []byte{'\n'})
		line = bytes.TrimRight(line, "\r")
		if len(line) == 0 {
			continue
		}
		word, rank, ok := bytes.Cut(line, []byte{' '})
		if !ok {
			return nil, fmt.Errorf("line %d: %w: want a token and its rank", n, ErrCorrupt)
		}
		b := make([]byte, base64.StdEncoding.DecodedLen(len(word)))
		k, err := base64.StdEncoding.Decode(b, word)
		if err != nil || k == 0 || k > maxRankLen {
			return nil, fmt.Errorf("line %d: %w: token %.40q is not the base64 encoding of 1 to %d bytes", n, ErrCorrupt, word, maxRankLen)
		}
		id, err := strconv.Atoi(string(rank))
		if err != nil || id != len(words) || id > maxID {
			return nil, fmt.Errorf("line %d: %w: rank %.40q, want %d", n, ErrCorrupt, rank, len(words))
		}
		words = append(words, b[:k])
	}
	return words, nil
}

// rankTables builds the pieces and the merges for words. The words must be in the order of their
// ranks. The ids of the words are consecutive, and the first word has the id first. Two tokens
// merge if their concatenation is a token, and the merge has the rank of that token. Several pairs
// can make the same token with the same rank. The relative order of these pairs does not matter,
// because the leftmost pair merges first.
func rankTables(words [][]byte, first int32) (pieceTable, []merge, error) {
	pieces := newPieceTable()
	var spelled []byte
	for i, w := range words {
		spelled = appendSpelled(spelled[:0], w)
		if !pieces.add(textview.Of(spelled), first+int32(i)) {
			return pieces, nil, fmt.Errorf("%w: duplicate token %q", ErrCorrupt, w)
		}
	}
	// Every split of every word is looked up, so the words are divided among the processors.
	parts := make([][]merge, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for k := range parts {
		from, to := len(words)*k/len(parts), len(words)*(k+1)/len(parts)
		wg.Go(func() {
			merges := make([]merge, 0, 2*(to-from))
			for i := from; i < to; i++ {
				merges = pieces.appendCuts(merges, i, words[i])
			}
			parts[k] = merges
		})
	}
	wg.Wait()
	return pieces, slices.Concat(parts...), nil
}

// appendCuts appends the merges that make piece i. w is the text that the piece spells.
func (p *pieceTable) appendCuts(dst []merge, i int, w []byte) []merge {
	text, id := p.at(i)
	cut := 0
	for _, b := range w[:len(w)-1] {
		if cut++; byteRune(b) >= utf8.RuneSelf { // the byte is spelled as two bytes
			cut++
		}
		a, ok := p.getBytes(text[:cut])
		if !ok {
			continue
		}
		if b, ok := p.getBytes(text[cut:]); ok {
			dst = append(dst, merge{a, b, id, uint32(id)})
		}
	}
	return dst
}

type configToken struct {
	Content    string `json:"content"`
	Special    bool   `json:"special,omitempty"`
	SingleWord bool   `json:"single_word,omitempty"`
	LStrip     bool   `json:"lstrip,omitempty"`
	RStrip     bool   `json:"rstrip,omitempty"`
	Normalized bool   `json:"normalized,omitempty"`
}

// configAdded returns the tokens in added_tokens_decoder of a tokenizer_config.json. The keys are
// ids.
func configAdded(config []byte) (map[string]configToken, error) {
	if !utf8.Valid(config) {
		return nil, fmt.Errorf("%w: byte %d: not valid UTF-8", ErrCorrupt, validPrefix(config))
	}
	var added map[string]configToken
	r := newReader(config, true)
	for key := range r.Members {
		if key == "added_tokens_decoder" {
			r.strict(&added)
		}
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	for id, a := range added {
		if a.SingleWord || a.LStrip || a.RStrip {
			return nil, unsupported("added token %.20s with single_word, lstrip or rstrip", id)
		}
	}
	return added, nil
}

// kimiReserved is the number of special tokens. Their ids follow the ranks.
const kimiReserved = 256

// kimiAdded returns the special tokens for a vocabulary of n ranks. As in Kimi's own code, the name
// of a token comes from the configuration. If the configuration does not name a token, the name is
// built from the token's number.
func kimiAdded(config []byte, n int32) ([]Added, error) {
	named, err := configAdded(config)
	if err != nil {
		return nil, err
	}
	added := make([]Added, 0, kimiReserved)
	seen := map[string]bool{}
	for id := n; id < n+kimiReserved; id++ {
		a := Added{ID: id, Content: fmt.Sprintf("<|reserved_token_%d|>", id), Special: true}
		key := strconv.Itoa(int(id))
		if c, ok := named[key]; ok {
			a.Content, a.Special = c.Content, c.Special
			delete(named, key)
		}
		if a.Content == "" || len(a.Content) > maxAddedLen || seen[a.Content] {
			return nil, fmt.Errorf("%w: added token %d: content %.40q is empty, too long or a duplicate", ErrCorrupt, id, a.Content)
		}
		seen[a.Content] = true
		added = append(added, a)
	}
	for id := range named {
		return nil, fmt.Errorf("%w: added token id %.20s is not one of the %d ids that follow the %d ranks", ErrCorrupt, id, kimiReserved, n)
	}
	return added, nil
}
