//go:build differential

package bpe_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
)

var update = flag.Bool("update", false, "rewrite the stored digests from the reference engine")

// TestPeerEveryCodePoint asks the reference engine for every code point in four
// contexts, live: some minutes.
func TestPeerEveryCodePoint(t *testing.T) {
	texts := codePointTexts()
	var digests strings.Builder
	for _, name := range bpetest.Names() {
		tok := bpetest.Tokenizer(t, name)
		want := ask[[]int32](t, "encode", bpetest.Read(t, name, bpe.FileJSON), texts)
		bad := 0
		for i, text := range texts {
			if got := encode(t, tok, text, bpe.EncodeOptions{}); !checkIDs(t, text, got, want[i]) {
				if bad++; bad == 3 {
					t.FailNow()
				}
			}
		}
		fmt.Fprintf(&digests, "%s  %s\n", digestIDs(func(i int) []int32 { return want[i] }, len(texts)), name)
	}
	if *update {
		if err := os.WriteFile(digestFile, []byte(digests.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	raw, err := os.ReadFile(digestFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(raw) != digests.String() {
		t.Errorf("%s is not what the reference engine gives now:\n%s", digestFile, digests.String())
	}
}
