package tokenizetest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// OtherTypes contains JSON values of every type. Tests use them to replace a value with a value of
// another type.
var OtherTypes = []string{
	"null", "true", "7", "-1.5", "1e999", "123456789012345678901234567890", `"x"`, `"` + strings.Repeat("long ", 200) + `"`, "[]", `[[1,"a"]]`, "{}", `{"a":{"b":1}}`,
}

// A Place is the byte range [From, To) of a value in a JSON text.
type Place struct{ From, To int }

// Places returns the place of each value in a JSON text. A key of the map is the path of a value,
// such as /a/0/b. The path of the whole text is /. Places covers only the first four elements of
// each list.
func Places(tb testing.TB, text string) map[string]Place {
	tb.Helper()
	all := map[string]Place{}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	token := func() json.Token {
		t, err := d.Token()
		if err != nil {
			tb.Fatal(err)
		}
		return t
	}
	var value func(path string, kept bool)
	value = func(path string, kept bool) {
		from := int(d.InputOffset())
		for strings.IndexByte(" \t\r\n:,", text[from]) >= 0 {
			from++
		}
		switch token() {
		case json.Delim('{'):
			for d.More() {
				value(path+"/"+fmt.Sprint(token()), kept)
			}
			token()
		case json.Delim('['):
			for i := 0; d.More(); i++ {
				value(path+"/"+strconv.Itoa(i), kept && i < 4)
			}
			token()
		}
		if kept {
			all[cmp.Or(path, "/")] = Place{from, int(d.InputOffset())}
		}
	}
	value("", true)
	return all
}

// SameType reports whether the JSON values at the start of a and b have the same type. It treats
// true and false as different types.
func SameType(a, b string) bool {
	kind := func(text string) byte {
		if c := text[0]; c == '-' || c >= '0' && c <= '9' {
			return '0'
		}
		return text[0]
	}
	return kind(a) == kind(b)
}

// Starred returns the path with each index replaced by an asterisk.
func Starred(path string) string {
	parts := strings.Split(path, "/")
	for i := range parts {
		if _, err := strconv.Atoi(parts[i]); err == nil {
			parts[i] = "*"
		}
	}
	return strings.Join(parts, "/")
}
