package bpe_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
)

var (
	seed      = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of the random comparisons with the reference engine")
	peerTexts = flag.Int("texts", 2000, "random texts to compare with the reference engine, for each tokenizer")
)

// oneGoroutine is why tests are skipped under the race detector.
const oneGoroutine = "one goroutine: the race detector would see nothing, slowly"

// findPython returns the Python interpreter that has the reference engine.
var findPython = sync.OnceValues(func() (string, error) {
	path := os.Getenv("ROLLOUT_PYTHON")
	if path == "" {
		path = bpetest.Path("..", "..", ".build", "venv", "bin", "python")
	}
	if out, err := exec.Command(path, "-c", "import tokenizers").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s has no tokenizers: %w %s\nrun make python", path, err, out)
	}
	return path, nil
})

// python returns the interpreter, or skips the test.
func python(tb testing.TB) string {
	tb.Helper()
	if raceEnabled {
		tb.Skip(oneGoroutine)
	}
	if testing.Short() {
		tb.Skip("-short: skipping the comparison with the reference engine in Python")
	}
	path, err := findPython()
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// askReference sends the lines to the reference engine as JSON and returns its answers.
func askReference[Answer, Line any](tb testing.TB, command string, file []byte, lines []Line) []Answer {
	tb.Helper()
	return askScript[Answer](tb, python(tb), "peer.py", command, file, lines)
}

func askScript[Answer, Line any](tb testing.TB, interpreter, script, command string, file []byte, lines []Line) []Answer {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), bpe.FileJSON)
	if err := os.WriteFile(path, file, 0o600); err != nil {
		tb.Fatal(err)
	}
	var in bytes.Buffer
	enc := json.NewEncoder(&in)
	for _, l := range lines {
		if err := enc.Encode(l); err != nil {
			tb.Fatal(err)
		}
	}
	cmd := exec.CommandContext(tb.Context(), interpreter, filepath.Join("testdata", "python", script), command, path)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = &in, &stderr
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("%s %s: %v\n%s", script, command, err, stderr.String())
	}
	answers := make([]Answer, 0, len(lines))
	for line := range bytes.Lines(out) {
		answers = append(answers, unmarshal[Answer](tb, line))
	}
	if len(answers) != len(lines) {
		tb.Fatalf("%s %s: %d answers to %d lines", script, command, len(answers), len(lines))
	}
	return answers
}

// An exam collects texts to encode and ids to decode, and compares the results with one process of a
// reference engine.
type exam struct {
	tok   *bpe.Tokenizer
	lines [][2]any
	check []func(t *testing.T, answer []byte)
}

func (e *exam) encode(opts bpe.EncodeOptions, texts []string) {
	kind := "plain"
	switch {
	case opts.PostProcess:
		kind = "post"
	case opts.Added == bpe.AddedNone:
		kind = "none"
	}
	for _, text := range texts {
		e.lines = append(e.lines, [2]any{kind, text})
		e.check = append(e.check, func(t *testing.T, answer []byte) {
			t.Helper()
			checkIDs(t, text, encode(t, e.tok, text, opts), unmarshal[[]int32](t, answer))
		})
	}
}

// decodeRandom adds n lists of random ids.
func (e *exam) decodeRandom(rng *rand.Rand, n int) {
	for range n {
		ids := randomIDs(rng, e.tok, rng.IntN(40))
		e.lines = append(e.lines, [2]any{"decode", ids})
		e.check = append(e.check, func(t *testing.T, answer []byte) {
			t.Helper()
			want := unmarshal[[2]string](t, answer)
			checkText(t, e.tok, ids, bpe.DecodeOptions{SkipSpecial: true}, want[0], nil)
			checkText(t, e.tok, ids, bpe.DecodeOptions{}, want[1], nil)
		})
	}
}

func (e *exam) run(t *testing.T, interpreter, script string, file []byte) {
	t.Helper()
	for i, answer := range askScript[json.RawMessage](t, interpreter, script, "ask", file, e.lines) {
		if e.check[i](t, answer); t.Failed() {
			t.FailNow()
		}
	}
}

// TestPeerEncode checks that new random texts have the ids of the reference engine, and random ids
// its texts.
func TestPeerEncode(t *testing.T) {
	t.Parallel()
	t.Logf("go test ./tokenize/bpe -run 'TestPeer.*' -seed %d -args -texts %d", *seed, *peerTexts)
	for i, name := range bpetest.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			interpreter := python(t)
			rng := rand.New(rand.NewPCG(*seed, uint64(i)))
			e := exam{tok: bpetest.Tokenizer(t, name)}
			e.encode(bpe.EncodeOptions{}, append(hostileTexts(t, rng, *peerTexts), corpus(t, 300_000+rng.IntN(1000))...))
			e.encode(bpe.EncodeOptions{PostProcess: true}, hostileTexts(t, rng, *peerTexts/10))
			e.encode(bpe.EncodeOptions{Added: bpe.AddedNone}, hostileTexts(t, rng, *peerTexts/10))
			e.decodeRandom(rng, *peerTexts/2)
			e.run(t, interpreter, "peer.py", bpetest.Read(t, name, bpe.FileJSON))
		})
	}
}

// randomIDs returns ids with tokens. Some are special, and many are parts of characters.
func randomIDs(rng *rand.Rand, tok *bpe.Tokenizer, n int) []int32 {
	added := tok.Added()
	ids := make([]int32, 0, n)
	for len(ids) < n {
		id := int32(rng.IntN(tok.VocabSize()))
		switch rng.IntN(4) {
		case 0:
			id = added[rng.IntN(len(added))].ID
		case 1:
			id = int32(rng.IntN(400))
		}
		if tok.Has(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// edit returns a stored tokenizer.json with parts replaced.
func edit(tb testing.TB, name string, parts map[string]any) []byte {
	tb.Helper()
	file := unmarshal[map[string]json.RawMessage](tb, bpetest.Read(tb, name, bpe.FileJSON))
	for key, v := range parts {
		if change, ok := v.(func([]byte) []byte); ok {
			file[key] = change(file[key])
			continue
		}
		file[key] = marshal(v)
	}
	return marshal(file)
}

type object = map[string]any

func splitPart(pattern, behavior string, invert bool) object {
	return object{"type": "Sequence", "pretokenizers": []object{
		{"type": "Split", "pattern": object{"Regex": pattern}, "behavior": behavior, "invert": invert},
		{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
	}}
}

func template(prefix, suffix string, ids ...int) object {
	return object{
		"type": "TemplateProcessing",
		"single": []object{
			{"SpecialToken": object{"id": prefix, "type_id": 0}},
			{"Sequence": object{"id": "A", "type_id": 0}},
			{"SpecialToken": object{"id": suffix, "type_id": 0}},
		},
		"pair": []object{{"Sequence": object{"id": "A", "type_id": 0}}, {"Sequence": object{"id": "B", "type_id": 0}}},
		"special_tokens": object{
			prefix: object{"id": prefix, "ids": ids[:1], "tokens": []string{prefix}},
			suffix: object{"id": suffix, "ids": ids[1:], "tokens": []string{suffix}},
		},
	}
}

// variants returns tokenizers that no stored file has. Each uses a stored vocabulary with another
// pipeline, so that every implemented feature is compared with the reference engine.
func variants(tb testing.TB) map[string][]byte {
	tb.Helper()
	added := func(normalized bool) (out []object) {
		base, next := bpetest.Tokenizer(tb, "qwen3"), int32(151643)
		for i, token := range []string{
			"<l>|lstrip", "<r>|rstrip", "<lr>|lstrip rstrip special", "cat|single_word", " x|rstrip",
			"e\u0301a|lstrip", "catalog", "é", "ab|single_word lstrip", "\n|rstrip",
		} {
			content, flags, _ := strings.Cut(token, "|")
			// The byte 0xE9 is spelled é, so the token é has another meaning.
			id, ok := base.ID(content)
			if !ok {
				id, next = next, next+1
			}
			o := addedPart(int(id), content, strings.Fields(flags)...)
			o["normalized"] = normalized != (i%3 == 2)
			out = append(out, o)
		}
		return out
	}
	return map[string][]byte{
		"added small": addedFile(),
		"gpt2 pattern": edit(tb, "qwen3", map[string]any{
			"normalizer":    nil,
			"pre_tokenizer": object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
		}),
		"o200k removed and inverted": edit(tb, "gpt-oss", map[string]any{
			"pre_tokenizer": splitPart(bpe.PatternO200K, "Removed", true),
			"model": func(raw []byte) []byte {
				out := bytes.Replace(raw, []byte(`"ignore_merges": true`), []byte(`"ignore_merges": false`), 1)
				if bytes.Equal(raw, out) {
					tb.Fatal("no ignore_merges to change")
				}
				return out
			},
		}),
		"kimi pattern": edit(tb, "gpt-oss", map[string]any{"pre_tokenizer": splitPart(bpe.PatternKimi, "Isolated", false)}),
		"added flags": edit(tb, "qwen3", map[string]any{
			"added_tokens":   added(false),
			"post_processor": template("<l>", "<r>", 151643, 151644, 5),
		}),
		"added flags normalized": edit(tb, "qwen3", map[string]any{
			"normalizer":   object{"type": "Sequence", "normalizers": []object{{"type": "NFC"}}},
			"added_tokens": added(true),
			"post_processor": object{"type": "Sequence", "processors": []object{
				{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true},
				template("<l>", "<r>", 151643, 151644),
			}},
		}),
	}
}

func TestPeerVariants(t *testing.T) {
	interpreter := python(t)
	t.Parallel()
	files := variants(t)
	maps.Copy(files, charVariants(t))
	for name, file := range files {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tok, err := bpe.Parse(file, bpe.Options{Experimental: true})
			if err != nil {
				t.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(*seed, uint64(len(name))))
			n := *peerTexts / 2
			texts := hostileTexts(t, rng, n)
			inside := []string{"<a<", "<b", ">", "ca", "<l>", "<r>", "<lr>", "cat", " x", "éa", "e\u0301a", "catalog", "é", "ab", "\n", " ", "  ", "\u00a0", "a", "b", "x", "_", "ा", "Ⓐ", "c", "文", "々", "〇", "\u0301"}
			for range n {
				texts = append(texts, newByteGenerator(rng).text(12, inside))
			}
			e := exam{tok: tok}
			e.encode(bpe.EncodeOptions{}, texts)
			e.encode(bpe.EncodeOptions{PostProcess: true}, texts[n*9/10:n*11/10])
			e.run(t, interpreter, "peer.py", file)
		})
	}
}
