//go:build differential

package bpe_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
)

var (
	update    = flag.Bool("update", false, "rewrite the stored digests from the reference engine")
	autoOther = flag.Int("otherconfigs", 2000, "random folders to compare with AutoTokenizer of each other release")
)

// TestPeerAutoReleases is TestPeerAuto for each release that make transformers installs.
func TestPeerAutoReleases(t *testing.T) {
	envs := os.Getenv("ROLLOUT_TRANSFORMERS")
	folders, err := os.ReadDir(envs)
	if err != nil {
		t.Fatalf("ROLLOUT_TRANSFORMERS: %v\nrun make differential", err)
	}
	for _, f := range folders {
		n := *autoOther
		if f.Name() == newestTransformers {
			n = *autoConfigs
		}
		t.Run(f.Name(), func(t *testing.T) { compareAuto(t, filepath.Join(envs, f.Name(), "bin", "python"), n) })
	}
}

const newestTransformers = "5.24.0"

// The number of cases in the comparisons of splits.
const splitCases = 40_000

func splitAtoms(all int) int { return all }

// TestPeerEveryCodePoint is TestEveryCodePoint with the reference engine itself (some minutes).
func TestPeerEveryCodePoint(t *testing.T) {
	raw, err := os.ReadFile(digestFile)
	if err != nil {
		t.Fatal(err)
	}
	texts := codePointTexts()
	var mu sync.Mutex
	digests := map[string]string{} // the digest line of each tokenizer
	for line := range strings.Lines(string(raw)) {
		digests[strings.Fields(line)[1]] = line
	}
	t.Run("of", func(t *testing.T) {
		for _, name := range bpetest.Names() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				tok := bpetest.Tokenizer(t, name)
				lines := make([][2]string, len(texts))
				for i, text := range texts {
					lines[i] = [2]string{"plain", text}
				}
				want := askReference[[]int32](t, "ask", bpetest.Read(t, name, bpe.FileJSON), lines)
				for i, text := range texts {
					if got := encode(t, tok, text, bpe.EncodeOptions{}); !checkIDs(t, text, got, want[i]) {
						t.FailNow()
					}
				}
				line := fmt.Sprintf("%s  %s\n", digestIDs(func(i int) []int32 { return want[i] }, len(texts)), name)
				mu.Lock()
				defer mu.Unlock()
				if digests[name] != line && !*update {
					t.Errorf("%s differs from the reference engine's current result: %s", digestFile, line)
				}
				digests[name] = line
			})
		}
	})
	if *update {
		var lines strings.Builder
		for _, name := range bpetest.Names() {
			lines.WriteString(digests[name])
		}
		if err := os.WriteFile(digestFile, []byte(lines.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

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
