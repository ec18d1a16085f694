package strictjson_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

var texts = []string{
	"", " ", "null", " true ", "false", "nul", "truee", "truefalse", `""`, `"a"`, `"a`, `a"`, "1 2", "[1]x", "[1] \n\t\r", "\ufeff1", "1\x00", "\x001",
	"0", "1", "-", "-0", "-0.5e+10", "01", "-01", "1.", "1.5", ".5", "1e", "1e+", "1e5", "1E-05", "-1.25e+10", "1E400", "+1", "0x1", "1e+-1", "NaN", "Infinity", "-Infinity", "-NaN",
	"[]", "[ ]", "[1]", "[1,]", "[,1]", "[1 2]", "[1,2", "]", "[}", "{]", "[[[]],{}]", "[{]}", "{[}]", "[" + strings.Repeat(",", 100),
	"{}", "{ }", `{"a"}`, `{"a":}`, `{"a":1}`, `{"a":1,}`, `{"a":1,,"b":2}`, `{a:1}`, `{"a" 1}`, `{"a":1 "b":2}`, "{,}", `{"a":{"b":[{},[],{"c":null}]}}`, `{"a":[1,{"b":2}],"c":3}`,
	`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"a":{"b":1,"c":{},"b":2}}`, `[{"a":1},{"a":1}]`, `{"a":{"a":{"a":1}},"b":1}`, `{"a":{"b":1},"b":2}`,
	`"\""`, `"\\"`, `"\/\b\f\n\r\t"`, `"\u0041\u00e9\u20AC"`, `"\u004"`, `"\u00zz"`, `"\x"`, `"\`, `"\u`, "\"\n\"", "\"\x1f\"", "\"\x7f\"", "\"\x00\"",
	`"\ud800"`, `"\udc00\ud800"`, `"\ud83d\ude00"`, `"\ud83dx"`, `"\ud83d\u0041"`, `"\ud83d\ud83d\ude00"`,
	"\"ünï 漢字 🦙\"", "\"\xff\"", "\"12345678\xff\"", "\"1234567\xc3\"", "\xff", "\"\xed\xa0\x80\"", "[\"\xc3\\n\xa9\"]", "\"\ufffd\"", `"\ud833d\uFFFD"`, `"\\ufffd\uFFFD"`,
	`"12345678"`, `"1234567\n12345678\""`, "\"1234567\n8\"", `{"12345678901234567890":"12345678901234567890 \" \\ 漢"}`,
	"[" + strings.Repeat(`"`+strings.Repeat("long", 20)+`",`, 3) + "1]", `["` + strings.Repeat(`\"ä`, 40) + `","` + strings.Repeat(`\"ä`, 40) + `"]`,
	strings.Repeat("[", 256) + strings.Repeat("]", 256), strings.Repeat("[", 257) + strings.Repeat("]", 257), strings.Repeat(`{"a":`, 257) + "1" + strings.Repeat("}", 257),
	strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000), strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001), strings.Repeat(`[{"a":`, 5000) + "1" + strings.Repeat("}]", 5000),
}

var escapes = regexp.MustCompile(`\\(u[0-9a-fA-F]{4}|.)`)

// check compares the package with encoding/json and UTF-8: what it accepts, and what it reads. A
// strict scanner must refuse a text exactly if reading and printing it in another way loses something.
func check(t *testing.T, text string) {
	t.Helper()
	want := json.Valid([]byte(text)) && utf8.ValidString(text)
	if err := strictjson.Check(text, strictjson.GoOptions()); (err == nil) != want {
		t.Errorf("Check(%.100q) with the options of encoding/json = %v, want accepted: %v", text, err, want)
	}
	err := strictjson.Check(text, strictjson.Options{})
	bad, _ := errors.AsType[*strictjson.Error](err)
	switch {
	case err == nil && !want:
		t.Errorf("Check(%.100q) accepts what is not JSON", text)
	case err != nil && (bad == nil || bad.Offset < 0 || bad.Offset > len(text)):
		t.Errorf("Check(%.100q) = %v without a place in the text", text, err)
	case err != nil && want && !bad.Ambiguous:
		t.Errorf("Check(%.100q) = %v, but it is JSON", text, err)
	}
	if !want {
		return
	}
	s := strictjson.New(text, strictjson.GoOptions())
	ours := tree(s)
	if s.End() != nil {
		t.Fatalf("%.100q: Check accepts, reading is %v", text, s.Err())
	}
	theirs := reference(t, text)
	if a, b := fmt.Sprintf("%q", ours), fmt.Sprintf("%q", theirs); a != b {
		t.Errorf("%.100q is read as %.200s, want %.200s", text, a, b)
	}
	written := strings.Count(text, "\ufffd") // and not read for a lone surrogate
	for _, e := range escapes.FindAllString(text, -1) {
		if strings.EqualFold(e, `\ufffd`) {
			written++
		}
	}
	if lossless := lossless(theirs, 0) && written == strings.Count(fmt.Sprint(theirs), "\ufffd"); lossless != (err == nil) {
		t.Errorf("Check(%.100q) = %v, lossless: %v", text, err, lossless)
	}
}

// A pair is a member of an object. An object is a list of pairs.
type pair struct {
	name  string
	value any
}

// tree reads a value with every method of the scanner.
func tree(s *strictjson.Scanner) any {
	switch s.Kind() {
	case '{':
		object := []pair{}
		for name := range s.Members {
			object = append(object, pair{name, tree(s)})
		}
		return object
	case '[':
		list := []any{}
		for range s.Elements {
			list = append(list, tree(s))
		}
		return list
	case '"':
		return s.Text()
	case '0':
		return json.Number(s.Number())
	case 't', 'f':
		return s.Bool()
	}
	s.Null()
	return nil
}

// reference is tree with encoding/json.
func reference(t *testing.T, text string) any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var value func() any
	next := func() json.Token {
		token, err := d.Token()
		if err != nil {
			t.Fatalf("%.100q: encoding/json: %v", text, err)
		}
		return token
	}
	value = func() any {
		switch token := next(); token {
		case json.Delim('{'):
			object := []pair{}
			for d.More() {
				name, _ := next().(string)
				object = append(object, pair{name, value()})
			}
			next()
			return object
		case json.Delim('['):
			list := []any{}
			for d.More() {
				list = append(list, value())
			}
			next()
			return list
		default:
			return token
		}
	}
	return value()
}

// lossless reports whether no object has equal names and the nesting is not too deep.
func lossless(v any, depth int) bool {
	if depth > strictjson.DefaultDepth {
		return false
	}
	switch v := v.(type) {
	case []pair:
		names := map[string]bool{}
		for _, p := range v {
			if names[p.name] || !lossless(p.value, depth+1) {
				return false
			}
			names[p.name] = true
		}
		return depth < strictjson.DefaultDepth
	case []any:
		for _, e := range v {
			if !lossless(e, depth+1) {
				return false
			}
		}
		return depth < strictjson.DefaultDepth
	}
	return true
}

func TestTexts(t *testing.T) {
	t.Parallel()
	for _, text := range texts {
		check(t, text)
		if len(text) > 1000 {
			continue
		}
		check(t, "["+text+"]")
		check(t, `{"key":`+text+`}`)
		for i := range len(text) {
			check(t, text[:i])
		}
	}
}

// AppendText writes what Python's json.dumps(text, ensure_ascii=False) writes, also where encoding/json escapes more.
func TestAppendText(t *testing.T) {
	all := []string{"", "\xff", "a\xed\xa0\x80b", "\u2028\u2029", "<a href='&'>", "\b\f\n\r\t\"\\/", strings.Repeat("long", 9) + "\x00"}
	for c := range rune(0x3000) {
		all = append(all, string(c), "12345678"+string(c)+string(c)+"é")
	}
	for _, text := range all {
		var want strings.Builder
		e := json.NewEncoder(&want)
		e.SetEscapeHTML(false)
		if err := e.Encode(strings.ToValidUTF8(text, "\ufffd")); err != nil {
			t.Fatal(err)
		}
		escaped := strings.NewReplacer(`\u2028`, "\u2028", `\u2029`, "\u2029").Replace(strings.TrimSuffix(want.String(), "\n"))
		if got := string(strictjson.AppendText([]byte("x"), text)); got != "x"+escaped {
			t.Errorf("AppendText(%q) = %s, want x%s", text, got, escaped)
		}
	}
}

func FuzzCheck(f *testing.F) {
	for _, text := range texts {
		f.Add(text)
	}
	f.Fuzz(check)
}

func TestErrors(t *testing.T) {
	t.Parallel()
	nonFinite := strictjson.Options{NonFinite: true}
	for _, tt := range []struct {
		text string
		opts strictjson.Options
		want string // empty: accepted
	}{
		{`{"a":1,"a":2}`, strictjson.Options{}, "a: duplicate key (byte 7)"},
		{`{"a":1,"\u0061":2}`, strictjson.Options{EqualNames: true}, ""},
		{`{"b":[0,{"x y":1,"x y":2}]}`, strictjson.Options{}, `"x y": duplicate key (byte 17)`},
		{`{"` + strings.Repeat("n", 100) + `":1,"` + strings.Repeat("n", 100) + `":1}`, strictjson.Options{}, `"` + strings.Repeat("n", 60) + `": duplicate key (byte 106)`},
		{`["\ud83d"]`, strictjson.Options{}, `\ud83d: an unpaired surrogate (byte 2)`},
		{`["\ud83d"]`, strictjson.Options{HalfPairs: true}, ""},
		{"[\"a\xff\"]", strictjson.Options{}, "not UTF-8 (byte 3)"},
		{"[\"\ufffd\xff\"]", strictjson.Options{}, "not UTF-8 (byte 5)"},
		{"[[[]]]", strictjson.Options{MaxDepth: 2}, "nested deeper than 2 levels (byte 2)"},
		{"[NaN,Infinity,-Infinity]", nonFinite, ""},
		{"[NaN]", strictjson.Options{}, `"N" where a value is expected (byte 1)`},
		{"[Nan]", nonFinite, `"N" where a number is expected (byte 1)`},
		{"-NaN", nonFinite, `"-" where a number is expected (byte 0)`},
		{"[1", strictjson.Options{}, "the text ends where ',' or ']' is expected (byte 2)"},
		{`{"a" 1}`, strictjson.Options{}, `"1" where ':' is expected (byte 5)`},
		{`{"a":1}}`, strictjson.Options{}, `"}" where the end is expected (byte 7)`},
		{`"\x"`, strictjson.Options{}, "an unknown escape in a string (byte 1)"},
		{"\"\n\"", strictjson.Options{}, "a control character in a string (byte 1)"},
	} {
		err := strictjson.Check(tt.text, tt.opts)
		if got := fmt.Sprint(err); (err == nil) != (tt.want == "") || err != nil && !strings.HasSuffix(got, tt.want) {
			t.Errorf("Check(%.60q) = %v, want %q", tt.text, err, tt.want)
		}
	}
}

// TestPath checks that an error names the members and elements around it, and that a mismatch names
// both types.
func TestPath(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, want string }{
		{`{"a":[0,{"b":true}]}`, "a: element 1: b: a boolean where a number is expected (byte 13)"},
		{`{"a":[0,{"b":null}]}`, "a: element 1: b: null where a number is expected (byte 13)"},
		{`{"a":{}}`, "a: an object where a list is expected (byte 5)"},
		{`[]`, "a list where an object is expected (byte 0)"},
		{`{"a":[7]}`, "a: element 0: a number where an object is expected (byte 6)"},
	} {
		s := strictjson.New(tt.text, strictjson.Options{})
		for range s.Members {
			for i := range s.Elements {
				if i == 0 && s.Kind() == '0' && strings.Contains(tt.text, "7") || i == 1 {
					for range s.Members {
						s.Number()
					}
				}
			}
		}
		if err := s.End(); err == nil || err.Error() != tt.want {
			t.Errorf("%s: %v, want %s", tt.text, err, tt.want)
		}
	}
}

// TestEqualNames checks that names are compared without escapes, in objects of any size.
func TestEqualNames(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 11, 12, 13, 14, 40} {
		var members []string
		for i := range n {
			members = append(members, fmt.Sprintf(`"k%d":{"k0":0}`, i))
		}
		object := "{" + strings.Join(members, ",")
		if err := strictjson.Check(object+"}", strictjson.Options{}); err != nil {
			t.Errorf("%d names: %v", n, err)
		}
		for _, again := range []string{"k0", fmt.Sprintf("k%d", n-1), `\u006b0`} {
			if err := strictjson.Check(object+`,"`+again+`":0}`, strictjson.Options{}); err == nil {
				t.Errorf("%d names, then %s again: accepted", n, again)
			}
		}
	}
}

// TestSkipped checks that values are skipped if they are not read, and that a mark leads back.
func TestSkipped(t *testing.T) {
	t.Parallel()
	s := strictjson.New(` { "a" : [1, "x]"] , "b":"y\n" } `, strictjson.Options{})
	var got []string
	s.Kind()
	start := s.Mark()
	for range 2 {
		for name := range s.Members {
			if name == "b" {
				from := s.Offset()
				got = append(got, s.Text(), s.Since(from))
			}
		}
		if err := s.End(); err != nil {
			t.Fatal(err)
		}
		s.Fail("no more")
		if s.Err() == nil || s.Raw() != "" {
			t.Error("Fail leaves no error")
		}
		s.Return(start)
	}
	if want := "[y\n \"y\\n\" y\n \"y\\n\"]"; fmt.Sprint(got) != want {
		t.Errorf("read %q, want %s", got, want)
	}
	s = strictjson.New(`{"a":{"b":1},"b":2}`, strictjson.Options{})
	for range s.Members { // looks into each object, and returns to its start
		at := s.Mark()
		if s.Kind() == '{' {
			for range s.Members {
				break
			}
			s.Return(at)
		}
	}
	if err := s.End(); err != nil {
		t.Error(err)
	}
	s = strictjson.New(` { "a" : [1, "x]"] , "b":"y\n" } `, strictjson.Options{})
	if got := s.Raw(); got != `{ "a" : [1, "x]"] , "b":"y\n" }` {
		t.Errorf("Raw() = %s", got)
	}
}

// TestPlainEnd compares the search by eight bytes with a search byte by byte.
func TestPlainEnd(t *testing.T) {
	t.Parallel()
	one := func(s string, i int) int {
		for i < len(s) && s[i] >= 0x20 && s[i] != '"' && s[i] != '\\' {
			i++
		}
		return i
	}
	r := rand.New(rand.NewPCG(1, 2))
	near := []byte{0, 1, 0x1f, 0x20, 0x21, '"', '"' + 1, '\\' - 1, '\\', '\\' + 1, 0x7f, 0x80, 0xa2, 0xdc, 0xff}
	for range 200_000 {
		s := make([]byte, r.IntN(28))
		for i := range s {
			if s[i] = 'a'; r.IntN(6) == 0 {
				s[i] = near[r.IntN(len(near))]
			}
		}
		i := r.IntN(len(s) + 1)
		if got, want := strictjson.PlainEnd(string(s), i), one(string(s), i); got != want {
			t.Fatalf("PlainEnd(%q, %d) = %d, want %d", s, i, got, want)
		}
	}
}

// TestEscapesAtEveryPlace reads strings with an escape at each offset, because the buffer of unescaped
// bytes must have room for the longest character wherever it stands.
func TestEscapesAtEveryPlace(t *testing.T) {
	t.Parallel()
	for _, escape := range []string{`\n`, `\u0041`, `\u00e9`, `\u65e5`, `\ud83d\ude00`} {
		for n := range 8 * 300 {
			before := n / 8
			text := `"` + strings.Repeat("y", n%8) + `\n` + strings.Repeat("x", before) + escape + `end"`
			var want string
			if err := json.Unmarshal([]byte(text), &want); err != nil {
				t.Fatal(err)
			}
			s := strictjson.New(text, strictjson.Options{})
			if got := s.Text(); got != want || s.End() != nil {
				t.Fatalf("%s after %d bytes: %q, %v", escape, before, got, s.Err())
			}
		}
	}
}
