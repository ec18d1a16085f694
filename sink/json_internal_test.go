package sink

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

var jsonTexts = []string{
	"", " ", "null", " true ", "false", "nul", "truee", "\"\"", `"a"`, `"a`, `a"`, "1", "-", "-0", "01", "1.", "1.5", ".5", "1e", "1e+", "1e5", "1E-05", "-1.25e+10", "1 2", "+1", "0x1", "NaN",
	"[]", "[ ]", "[1]", "[1,]", "[,1]", "[1 2]", "[1,2", "]", "[}", "{]", "{}", "{ }", `{"a"}`, `{"a":}`, `{"a":1}`, `{"a":1,}`, `{"a":1,"a":2}`, `{a:1}`, `{"a":1 "b":2}`, `{"a":{"b":[{},[],{"c":null}]}}`,
	`{"a":[1,{"b":2}],"c":3}`, `[[[]],{}]`, `[{]}`, `{[}]`, `{,}`, `{"a":1,,"b":2}`, "\ufeff1", "[1]x", "[1] \n\t\r",
	`"\""`, `"\\"`, `"\/\b\f\n\r\t"`, `"\u0041"`, `"\u004"`, `"\u00zz"`, `"\ud800"`, `"\udc00\ud800"`, `"\x"`, `"\`, `"\u`, "\"\n\"", "\"\x1f\"", "\"\x7f\"", "\"\x00\"",
	"\"ünï 漢字 🦙\"", "\"\xff\"", "\"12345678\xff\"", "\"1234567\xc3\"", "\xff", "\"\xed\xa0\x80\"", "[\"\xc3\\n\xa9\"]",
	`"12345678"`, `"1234567\n12345678\""`, "\"1234567\n8\"", `{"12345678901234567890":"12345678901234567890 \" \\ 漢"}`,
}

// jsonIsRight compares validJSON with the standard library.
func jsonIsRight(t *testing.T, text string) {
	t.Helper()
	if got, want := validJSON(text), json.Valid([]byte(text)) && utf8.ValidString(text); got != want {
		t.Errorf("validJSON(%.100q) = %v, want %v", text, got, want)
	}
}

func TestValidJSON(t *testing.T) {
	t.Parallel()
	for _, text := range jsonTexts {
		jsonIsRight(t, text)
		jsonIsRight(t, "["+text+"]")
		jsonIsRight(t, `{"key":`+text+`}`)
		for i := range len(text) {
			jsonIsRight(t, text[:i])
		}
	}
	for _, depth := range []int{63, 64, 65, 128, maxJSONDepth - 1, maxJSONDepth, maxJSONDepth + 1} {
		jsonIsRight(t, strings.Repeat("[", depth)+strings.Repeat("]", depth))
		jsonIsRight(t, strings.Repeat(`{"a":`, depth)+"1"+strings.Repeat("}", depth))
		jsonIsRight(t, strings.Repeat(`[{"a":`, depth/2)+"1"+strings.Repeat("}]", depth/2))
		jsonIsRight(t, strings.Repeat(`[{"a":`, depth/2)+"1"+strings.Repeat("]}", depth/2))
	}
}

func FuzzValidJSON(f *testing.F) {
	for _, text := range jsonTexts {
		f.Add(text)
	}
	f.Fuzz(jsonIsRight)
}
