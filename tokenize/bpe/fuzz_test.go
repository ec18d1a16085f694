package bpe_test

import (
	"errors"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
	"github.com/rollout-rl/rollout/tokenize/bpe/internal/pattern"
)

// twin is a tokenizer and its slow reference.
type twin struct {
	tok  *bpe.Tokenizer
	slow *slowTokenizer
}

// newTwins returns functions that make a twin on first use. Some have another pattern than their file,
// so that a few files cover all patterns. None normalizes.
func newTwins() (twins []func(tb testing.TB) twin) {
	for _, base := range [][]string{
		{"llama3.1", "", bpe.PatternO200K},
		{"deepseek-v3", "", bpe.PatternCL100K, bpe.PatternKimi, bpe.PatternQwen35, bpe.PatternGPT2},
		{"mistral-nemo-tekken", ""},
	} {
		var slow *slowTokenizer
		for _, expr := range base[1:] {
			var made twin
			twins = append(twins, func(tb testing.TB) twin {
				tb.Helper()
				if made.tok != nil {
					return made
				}
				file := bpetest.Read(tb, base[0], bpe.FileJSON)
				if slow == nil {
					slow = newSlowTokenizer(tb, file)
				}
				double := *slow
				if expr != "" {
					file = edit(tb, base[0], map[string]any{"pre_tokenizer": splitPart(expr, "Isolated", false)})
					double.patterns = []*pattern.Pattern{compilePattern(tb, expr)}
				}
				tok, err := bpe.Parse(file, bpe.Options{Experimental: true})
				if err != nil {
					tb.Fatal(err)
				}
				made = twin{tok, &double}
				return made
			})
		}
	}
	return twins
}

// FuzzEncode compares with the slow tokenizer, and decodes the result.
func FuzzEncode(f *testing.F) {
	if raceEnabled {
		f.Skip(oneGoroutine)
	}
	twins := newTwins()
	for i := range twins {
		for _, text := range []string{
			"", "Hello, world! It's 12345 o'clock.", "I'VE  \n\n\n been'ſ \t here\r\n", "日本語のテキスト、漢字とカナ・ー。", "über ÉCOLE naïve e\u0301",
			"<|im_start|>user\n<|eot_id|><｜User｜><s>[INST]", "{\"a\": [1, 2.5e10, null]}//\n/\r", "a\xffb\xe2\x82\xf0\x9f\x98", "\u0301\u0301x ा ्", "〇々漢字'll𠀀", "'ſt I'ſx !漢 \t漢é 漢's", "ア・イー゛あ゙い",
			"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "HTTPServerError XMLHttpRequest ﬁ",
		} {
			f.Add(byte(i), text)
		}
	}
	f.Fuzz(func(t *testing.T, which byte, text string) {
		if len(text) > 2000 {
			return
		}
		w := twins[int(which)%len(twins)](t)
		got := encode(t, w.tok, text, bpe.EncodeOptions{})
		valid := utf8.ValidString(text)
		if valid {
			if got, want := w.tok.Pretokens(text), w.slow.pretokens(text); !slices.Equal(got, want) {
				t.Errorf("pre-tokens of %q = %q, want %q", text, got, want)
			}
			checkIDs(t, text, got, w.slow.encode(text))
		}
		if back := decode(t, w.tok, got, bpe.DecodeOptions{}); valid && back != text {
			t.Errorf("AppendText(AppendTokens(%q)) = %q", text, back)
		}
		plain := encode(t, w.tok, text, bpe.EncodeOptions{Added: bpe.AddedNone})
		if back := decode(t, w.tok, plain, bpe.DecodeOptions{}); valid && back != text {
			t.Errorf("AppendText(AppendTokens(%q, AddedNone)) = %q", text, back)
		}
	})
}

// FuzzLoad corrupts or replaces a small tokenizer.json or tekken.json, and checks that the result is a
// known error or a working tokenizer. The fuzz input is only the corruption, so that it stays small.
func FuzzLoad(f *testing.F) {
	files := append(smallFiles(), charFile(nil))
	tekken := byte(len(files))
	files = append(files, tekkenFile(nil), tekkenFile(map[string]any{"special_tokens": []object{{"rank": 0, "token_str": "<s>", "is_control": true}}}))
	whole := byte(len(files))
	for _, which := range []byte{0, tekken} {
		f.Add(which, uint16(0), uint16(0), "", uint16(0), uint16(0), "")
		f.Add(which+1, uint16(40), uint16(5), "null", uint16(900), uint16(0), "\\ud83d\\ude00")
	}
	f.Add(byte(2), uint16(2000), uint16(1), "4194303", uint16(1), uint16(0), "\"model\":{},")
	f.Add(whole, uint16(0), uint16(0), "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}", uint16(0), uint16(0), "")
	f.Fuzz(func(t *testing.T, which byte, at1, cut1 uint16, put1 string, at2, cut2 uint16, put2 string) {
		raw := []byte(put1)
		if which %= whole + 1; which < whole {
			raw = damage(damage(files[which], at1, cut1, put1), at2, cut2, put2)
		}
		parse := func(raw []byte) (*bpe.Tokenizer, error) { return bpe.Parse(raw, bpe.Options{Experimental: true}) }
		if tekken <= which && which < whole {
			parse = loadTekken
		}
		tok, err := parse(raw)
		if err != nil {
			if !errors.Is(err, bpe.ErrCorrupt) && !errors.Is(err, bpe.ErrUnsupported) {
				t.Fatalf("Parse: %v, of no known kind", err)
			}
			return
		}
		const text = "abc <s>é\u0301 12\x00"
		ids := encode(t, tok, text, bpe.EncodeOptions{PostProcess: true})
		for _, id := range ids {
			if !tok.Has(id) {
				t.Fatalf("AppendTokens returned id %d, which no token has", id)
			}
		}
		decode(t, tok, ids, bpe.DecodeOptions{})
		if tekken <= which && which < whole {
			plain := encode(t, tok, text, bpe.EncodeOptions{Added: bpe.AddedNone})
			if got := decode(t, tok, plain, bpe.DecodeOptions{}); got != text {
				t.Errorf("AppendText(AppendTokens(%q)) = %q", text, got)
			}
		}
	})
}

// damage returns file with up to 15 bytes at position at replaced by put.
func damage(file []byte, at, cut uint16, put string) []byte {
	from := int(at) % (len(file) + 1)
	to := min(len(file), from+int(cut%16))
	return slices.Concat(file[:from], []byte(put), file[to:])
}
