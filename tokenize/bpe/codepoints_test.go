package bpe_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
)

const digestFile = "testdata/codepoints.sha256"

// codePointTexts returns every code point of the planes in use, and every 997th of the other
// planes, in four contexts: among letters, digits and symbols; doubled, before line ends and after
// an apostrophe; next to Chinese and marks; after capitals and spaces.
func codePointTexts() []string {
	contexts := [...]string{
		"a{c}b 1{c}2 !{c}! {c}\n",
		"{c}{c}\n {c}x'{c}A{c}a\r\n",
		"\t{c} \u4e2d{c}\u0301{c} '{c}e\n",
		"A{c}A{c}9{c}  {c}.\n",
	}
	var texts []string
	var b strings.Builder
	for _, context := range contexts {
		n := 0
		for c := range rune(0x110000) {
			if 0xD800 <= c && c <= 0xDFFF || c >= 0x32000 && (c < 0xE0000 || c >= 0xE0200) && c%997 != 0 {
				continue
			}
			b.WriteString(strings.ReplaceAll(context, "{c}", string(c)))
			if n++; n == 400 {
				texts = append(texts, b.String())
				b.Reset()
				n = 0
			}
		}
		texts = append(texts, b.String())
		b.Reset()
	}
	return texts
}

// digestIDs returns the digest of the ids of all texts.
func digestIDs(ids func(i int) []int32, texts int) string {
	h := sha256.New()
	var buf []byte
	for i := range texts {
		buf = buf[:0]
		for _, id := range ids(i) {
			buf = binary.LittleEndian.AppendUint32(buf, uint32(id))
		}
		buf = binary.LittleEndian.AppendUint32(buf, 0xFFFFFFFF)
		h.Write(buf)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// TestEveryCodePoint checks that the ids have the digest of the reference engine's ids.
func TestEveryCodePoint(t *testing.T) {
	if raceEnabled {
		t.Skip(oneGoroutine)
	}
	t.Parallel()
	raw, err := os.ReadFile(digestFile)
	if err != nil {
		t.Fatal(err)
	}
	texts := codePointTexts()
	for _, name := range bpetest.Names() {
		if !bpe.TextViews && !slices.Contains(normalizing, name) {
			continue // the tag purego changes only how composed text is read
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tok := bpetest.Tokenizer(t, name)
			got := digestIDs(func(i int) []int32 { return encode(t, tok, texts[i], bpe.EncodeOptions{}) }, len(texts))
			if line := fmt.Sprintf("%s  %s\n", got, name); !strings.Contains(string(raw), line) {
				t.Errorf("digest %s is not the one in %s; go test -tags differential -run TestPeerEveryCodePoint shows the texts", got, digestFile)
			}
		})
	}
}
