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
				bad := 0
				for i, text := range texts {
					if got := encode(t, tok, text, bpe.EncodeOptions{}); !checkIDs(t, text, got, want[i]) {
						if bad++; bad == 3 {
							t.FailNow()
						}
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
