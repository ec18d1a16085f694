package plainjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// checkScan checks that Scan accepts what encoding/json accepts, except JSON that encoding/json
// changes silently: repeated keys, half surrogate pairs, deep nesting, other encodings.
func checkScan(t *testing.T, text []byte) {
	t.Helper()
	err := Scan(text, nil)
	_, strict := errors.AsType[*AmbiguousError](err)
	switch valid := json.Valid(text); {
	case err == nil && !valid:
		t.Errorf("%q is taken, and is not JSON", text)
	case err == nil:
		var v any
		if json.Unmarshal(text, &v) != nil {
			return // a number that no float64 can hold
		}
		b, _ := json.Marshal(v)
		if bytes.ContainsRune(b, utf8.RuneError) && !bytes.ContainsRune(text, utf8.RuneError) && !bytes.Contains(bytes.ToLower(text), []byte(`\ufffd`)) {
			t.Errorf("%q is taken, and reads as %s", text, b)
		}
	case valid && !strict && !errors.Is(err, ErrNotUTF8):
		t.Errorf("%q is JSON: %v", text, err)
	}
}

func FuzzScanJSON(f *testing.F) {
	for _, text := range []string{
		"", " ", "{}", "[]", "[1,]", `{"a":1,}`, `{"a" 1}`, `{a:1}`, "null", "nul", "truefalse", "01", "-", "-0.5e+10", "1.", "1e", "\"\x01\"", `"\x"`,
		`"\ud800"`, `"\ud83d\ude00"`, `"\ude00\ud83d"`, `"\ud83dx"`, `"\u12"`, `{"a":{"b":[1,{"c":null}]},"a":2}`, `{"a":1,"\u0061":2}`, "\"\xff\"", "1 2", "\xef\xbb\xbf{}",
		strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth), strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1),
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(checkScan)
}

// TestKeysGivenTwice checks that keys are compared after decoding, in objects of any size.
func TestKeysGivenTwice(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, fewKeys - 1, fewKeys, fewKeys + 1, 40} {
		var keys []string
		for i := range n {
			keys = append(keys, fmt.Sprintf(`"k%d":%d`, i, i))
		}
		object := "{" + strings.Join(keys, ",")
		if err := Scan([]byte(object+"}"), nil); err != nil {
			t.Errorf("%d keys: %v", n, err)
		}
		for _, again := range []string{"k0", fmt.Sprintf("k%d", n-1), `\u006b0`} {
			if err := Scan([]byte(object+`,"`+again+`":0}`), nil); err == nil {
				t.Errorf("%d keys, then %s again: taken", n, again)
			}
		}
	}
}
