//go:build differential

package bpe_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
)

// TestGatePeerSpeedTable prints the speed relative to the reference engine for every stored
// tokenizer and kind of text, on one thread. Cold calls start with empty caches.
func TestGatePeerSpeedTable(t *testing.T) {
	for _, name := range bpetest.Names() {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			fmt.Fprintf(&b, "%s: MB/s of this package, of the reference engine, ratio\n", name)
			fmt.Fprintf(&b, "%-20s %30s %30s\n", "", "cold", "warm")
			for _, n := range []int{10_000, 200_000} {
				texts := speedTexts(t, n)
				watch := newStopwatch(t, name, texts)
				tok := bpetest.Tokenizer(t, name)
				for i := range texts {
					fmt.Fprintf(&b, "%-20s %4d kB", texts[i].name, len(texts[i].text)/1000)
					for _, cache := range []string{"cold", "warm"} {
						c := race(t, tok, watch, texts, i, cache)
						fmt.Fprintf(&b, " %9.1f %7.2f %6.1f×", c.ours, c.theirs, c.ratio())
					}
					b.WriteByte('\n')
				}
			}
			t.Log(b.String())
		})
	}
}
