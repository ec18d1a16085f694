package bpe_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
)

// tekkenFile returns a small tekken.json, with one word past the configured vocabulary size.
func tekkenFile(changes map[string]any) []byte {
	var vocab []object
	for i, w := range append(byteWords(), "ab", "abc", " a", "é", "cut off") {
		vocab = append(vocab, object{"rank": i, "token_bytes": base64.StdEncoding.EncodeToString([]byte(w)), "token_str": nil})
	}
	file := object{
		"config": object{
			"pattern": bpe.PatternTekken, "num_vocab_tokens": len(vocab), "default_vocab_size": len(vocab) - 1 + 25,
			"default_num_special_tokens": 25, "version": "v3",
		},
		"vocab": vocab,
		"image": object{"image_patch_size": 16, "max_image_size": 1024},
	}
	for key, v := range changes {
		if name, ok := strings.CutPrefix(key, "config."); ok {
			file["config"].(object)[name] = v // an object from the literal above
		} else {
			file[key] = v
		}
	}
	return marshal(file)
}

func byteWords() (words []string) {
	for b := range 256 {
		words = append(words, string([]byte{byte(b)}))
	}
	return words
}

func loadTekken(raw []byte) (*bpe.Tokenizer, error) {
	return bpe.Load(fstest.MapFS{bpe.FileTekken: {Data: raw}}, bpe.Options{})
}

func TestTekken(t *testing.T) {
	t.Parallel()
	tok, err := loadTekken(tekkenFile(nil))
	if err != nil {
		t.Fatal(err)
	}
	if tok.VocabSize() != 285 || tok.Family() != bpe.FamilyTekken {
		t.Errorf("%d ids, family %s", tok.VocabSize(), tok.Family())
	}
	const base, ab, abc, accent = 25, 25 + 256, 25 + 257, 25 + 259
	text := "abc ab</s>é"
	checkIDs(t, text, encode(t, tok, text, bpe.EncodeOptions{Added: bpe.AddedNone}), []int32{abc, base + ' ', ab, base + '<', base + '/', base + 's', base + '>', accent})
	checkIDs(t, text, encode(t, tok, text, bpe.EncodeOptions{}), []int32{abc, base + ' ', ab, 2, accent})
	checkIDs(t, "ab, framed", encode(t, tok, "ab", bpe.EncodeOptions{PostProcess: true}), []int32{1, ab})
	checkIDs(t, "cut off", encode(t, tok, "cut off", bpe.EncodeOptions{})[:1], []int32{base + 'c'})
	for id, want := range map[int32]string{0: "<unk>", 19: "[TOOL_CONTENT]", 20: "<SPECIAL_20>", 24: "<SPECIAL_24>", abc: "abc"} {
		if got, err := tok.Bytes(id); err != nil || string(got) != want {
			t.Errorf("Bytes(%d) = %q, %v, want %q", id, got, err, want)
		}
	}

	// No character is formed across a skipped special token.
	ids := []int32{base + 0xC3, 2, base + 0xA9, abc, base + 0xC3, base + 0xA9, 1}
	const skipped, printed = "\ufffd\ufffdabcé", "\ufffd</s>\ufffdabcé<s>"
	if got := decode(t, tok, ids, bpe.DecodeOptions{SkipSpecial: true}); got != skipped {
		t.Errorf("decoded without special tokens: %q, want %q", got, skipped)
	}
	if got := decode(t, tok, ids, bpe.DecodeOptions{}); got != printed {
		t.Errorf("decoded: %q, want %q", got, printed)
	}
}

// TestTekkenRefused checks lists of special tokens, and damage to the whole file. TestRefused has other
// contradictory files and unknown values.
func TestTekkenRefused(t *testing.T) {
	t.Parallel()
	special := func(n int) (list []object) {
		for i := range n {
			list = append(list, object{"rank": i, "token_str": fmt.Sprintf("[T%d]", i), "is_control": true})
		}
		return list
	}
	whole := string(tekkenFile(nil))
	for _, test := range []struct {
		name, file string
		want       error
	}{
		{"v11 with a list", string(tekkenFile(map[string]any{"config.version": "v11", "special_tokens": special(25)})), nil},
		{"v7 with a short list", string(tekkenFile(map[string]any{"config.version": "v7", "special_tokens": special(3)})), nil},
		{"v7 with null", string(tekkenFile(map[string]any{"config.version": "v7", "special_tokens": nil})), nil},
		{"list too long", string(tekkenFile(map[string]any{"special_tokens": special(26)})), bpe.ErrCorrupt},
		{"list twice the same", string(tekkenFile(map[string]any{"special_tokens": append(special(1), object{"rank": 1, "token_str": "[T0]", "is_control": true})})), bpe.ErrCorrupt},
		{"list in another order", string(tekkenFile(map[string]any{"special_tokens": special(2)[1:]})), bpe.ErrCorrupt},
		{"long token", strings.Replace(whole, `"YWI="`, `"`+strings.Repeat("YWFh", 100)+`"`, 1), bpe.ErrCorrupt},
		{"cut", whole[:len(whole)/2], bpe.ErrCorrupt},
		{"more", whole + "{}", bpe.ErrCorrupt},
		{"no object", "[]", bpe.ErrCorrupt},
		{"invalid UTF-8", strings.Replace(whole, "v3", "v\xff", 1), bpe.ErrCorrupt},
	} {
		if _, err := loadTekken([]byte(test.file)); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
	}
	if _, err := bpe.LoadTekken(fstest.MapFS{}); err == nil || !strings.Contains(err.Error(), bpe.FileTekken) {
		t.Errorf("LoadTekken of an empty folder = %v", err)
	}
}

// TestPeerTekken checks the ids and texts against Mistral's own engine, for the real file and for a
// version with a list of special tokens, as in newer formats.
func TestPeerTekken(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("skipping the comparison with Mistral's own engine")
	}
	t.Parallel()
	interpreter := bpetest.Path("..", "..", ".build", "mistral", "bin", "python")
	if _, err := os.Stat(interpreter); err != nil {
		t.Skipf("%s does not exist: run make mistral", filepath.Clean(interpreter))
	}
	file, err := os.ReadFile(bpetest.Path("..", "..", ".build", "vocabularies", "tekken", bpe.FileTekken))
	if err != nil {
		t.Skipf("%v: make vocabularies", err)
	}
	var list []object
	for i := range 700 {
		list = append(list, object{"rank": i, "token_str": fmt.Sprintf("[T%d]", i), "is_control": i%3 == 0})
	}
	newer := bytes.Replace(file, []byte(`"version": "v3"`), []byte(`"version": "v13"`), 1)
	newer = append(bytes.TrimRight(newer, "}\n "), fmt.Sprintf(`,"special_tokens":%s,"type":"tekken"}`, marshal(list))...)
	t.Logf("go test ./tokenize/bpe -run TestPeerTekken -seed %d", *seed)
	for i, file := range [][]byte{file, newer} {
		tok, err := loadTekken(file)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(*seed, uint64(300+i)))
		e := exam{tok: tok}
		e.encode(bpe.EncodeOptions{Added: bpe.AddedNone}, append(hostileTexts(t, rng, 20_000), corpus(t, 300_000+rng.IntN(1000))...))
		e.decodeRandom(rng, 20_000)
		e.run(t, interpreter, "tekken.py", file)
	}
}
