package bpe_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/tokenize/bpe"
)

var randomTokenizers = flag.Int("tokenizers", 3000, "random tokenizers to compare with the reference engine")

// TestPeerTokenizers checks that random tokenizers give the ids and texts of the reference engine
// or are rejected, and that we reject what it rejects.
func TestPeerTokenizers(t *testing.T) {
	python(t)
	t.Parallel()
	t.Logf("go test ./tokenize/bpe -run TestPeerTokenizers -seed %d -args -tokenizers %d", *seed, *randomTokenizers)
	const batch = 1000
	refused := map[string]int{}
	taken, bad := 0, 0
	for first := 0; first < *randomTokenizers; first += batch {
		cases := make([]smallCase, min(batch, *randomTokenizers-first))
		for i := range cases {
			cases[i] = randomCase(rand.New(rand.NewPCG(*seed, uint64(first+i))))
		}
		for i, want := range askCases(t, cases) {
			reason, problem := cases[i].judge(t, want)
			if reason != "" {
				refused[reason]++
			} else {
				taken++
			}
			if problem != "" {
				t.Errorf("tokenizer %d (seed %d): %s\n%s", first+i, *seed, problem, cases[i].brief())
				if bad++; bad == 4 {
					t.FailNow()
				}
			}
		}
	}
	t.Logf("%d of %d tokenizers compared", taken, *randomTokenizers)
	for _, reason := range slices.SortedFunc(maps.Keys(refused), func(a, b string) int { return refused[b] - refused[a] }) {
		t.Logf("%6d refused: %s", refused[reason], reason)
	}
	if taken < *randomTokenizers/2 {
		t.Errorf("%d of %d tokenizers compared: too many are refused", taken, *randomTokenizers)
	}
}

// askCases parses the files, here and with the reference engine, which can loop or panic on a file
// that Parse rejects: it gets no texts for it.
func askCases(t *testing.T, cases []smallCase) []smallAnswer {
	t.Helper()
	for i := range cases {
		c := &cases[i]
		if c.tok, c.err = bpe.Parse(c.File, bpe.Options{Experimental: true}); c.err != nil {
			c.Texts, c.IDs = []string{}, [][]int32{}
		}
	}
	return askReference[smallAnswer](t, "cases", nil, cases)
}

// judge compares a case with the reference engine.
func (c *smallCase) judge(t *testing.T, want smallAnswer) (reason, problem string) {
	t.Helper()
	err := c.err
	defer func() {
		if p := recover(); p != nil { // report the case, not the stack
			problem = fmt.Sprint("panic: ", p)
		}
	}()
	switch {
	case err != nil && want.Error != "":
		return "by the reference engine as well", ""
	case err != nil && !errors.Is(err, bpe.ErrUnsupported) && !strings.Contains(err.Error(), "have the same id"):
		return "corrupt", fmt.Sprintf("Parse = %v, and the reference engine reads it", err)
	case err != nil:
		return reasonOf(err), ""
	case want.Error != "":
		return "", "Parse succeeds, the reference engine says " + want.Error
	}
	return "", c.compare(t, want)
}

var quoted = regexp.MustCompile(`["\[0-9].*`)

// reasonOf returns an error's text without details of a single file.
func reasonOf(err error) string {
	_, text, _ := strings.Cut(err.Error(), bpe.ErrUnsupported.Error()+": ")
	return strings.TrimSpace(quoted.ReplaceAllString(text, "…"))
}

func replaced(file []byte, part string, with any) []byte {
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(file, &parts); err != nil {
		panic(err)
	}
	parts[part] = marshal(with)
	return marshal(parts)
}

func marshal(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}
