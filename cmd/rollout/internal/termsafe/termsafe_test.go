package termsafe_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"unicode"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
)

func TestText(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, in, want string }{
		{"ASCII", `a "b" <c> \d`, `a "b" <c> \d`},
		{"letters", "zürich 数据 👩\u200d👩\u200d👧 سلام می\u200cخواهم e\u0301", "zürich 数据 👩\u200d👩\u200d👧 سلام می\u200cخواهم e\u0301"},
		{"spaces", "a\u00a0b\u3000c", "a\u00a0b\u3000c"},
		{"colour", "\x1b[31mred\x1b[0m", `\u001b[31mred\u001b[0m`},
		{"title", "\x1b]0;mine\a", `\u001b]0;mine\u0007`},
		{"C1", "a\u009b31mb\u0085c", `a\u009b31mb\u0085c`},
		{"direction", "\u202egnp.exe\u2066x\u2069\u200f\u061c", `\u202egnp.exe\u2066x\u2069\u200f\u061c`},
		{"separators", "a\u2028b\u2029c", `a\u2028b\u2029c`},
		{"unseen", "a\u200bb\ufeffc\u00add\u2060", `a\u200bb\ufeffc\u00add\u2060`},
		{"tags", "a\U000e0041", `a\udb40\udc41`},
		{"private", "\ue000\U0010fffd", `\ue000\udbff\udffd`},
		{"no UTF-8", "a\xffb\xe2\x80", `a\xffb\xe2\x80`},
		{"NUL and DEL", "a\x00b\x7f", `a\u0000b\u007f`},
		{"lines", "a\r\n   b\n\n\tc\n", "a b c"},
		{"return", "12%\r99%", "12% 99%"},
		{"tab", "a\tb", "a b"},
		{"the replacement character itself", "\ufffd", "\ufffd"},
		{"empty", "", ""},
	} {
		if got := termsafe.Text(tt.in, 100); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	for _, tt := range []struct {
		in    string
		width int
		want  string
	}{
		{"hello", 5, "hello"},
		{"hello", 4, "hel…"},
		{"hello", 1, "…"},
		{"hello", 0, ""},
		{"fünfe", 5, "fünfe"},
		{"fünfer", 5, "fünf…"},
		{"\x1b[31m", 8, `\u001b[…`},
		{"\x1b[31m", 6, `…`},
		{"a\x1b[31m", 9, `a\u001b[…`},
		{"abc\n", 3, "abc"},
	} {
		if got := termsafe.Text(tt.in, tt.width); got != tt.want {
			t.Errorf("%q to %d: %q, want %q", tt.in, tt.width, got, tt.want)
		}
	}
}

// FuzzText checks that Text gives one visible line within the width, and is idempotent.
func FuzzText(f *testing.F) {
	for _, s := range []string{"", "a\x1b[2Jb", "\u202e\u2066", "\xff\xfe", "a\r\n b", strings.Repeat("ü\x9b", 300), "\U000e0041"} {
		f.Add(s, 20)
	}
	f.Fuzz(func(t *testing.T, s string, width int) {
		width = max(0, width%1000)
		got := termsafe.Text(s, width)
		if n := utf8.RuneCountInString(got); n > width {
			t.Fatalf("%q has %d characters, want %d at most", got, n, width)
		}
		if r := strange(got); r != 0 {
			t.Fatalf("%q holds %U", got, r)
		}
		if again := termsafe.Text(got, width); again != got {
			t.Fatalf("%q became %q", got, again)
		}
		// The Writer agrees with Text for any split of the bytes.
		var whole, pieces bytes.Buffer
		w := termsafe.NewWriter(&whole)
		_, _ = io.WriteString(w, s)
		_ = w.Flush()
		w = termsafe.NewWriter(&pieces)
		_, _ = io.Copy(w, iotest.OneByteReader(strings.NewReader(s)))
		_ = w.Flush()
		if whole.String() != pieces.String() {
			t.Fatalf("%q in pieces is %q, else %q", s, pieces.String(), whole.String())
		}
		if r := strange(strings.NewReplacer("\n", "", "\t", "").Replace(whole.String())); r != 0 {
			t.Fatalf("%q holds %U", whole.String(), r)
		}
	})
}

// strange returns the first character that must not be shown, or 0.
func strange(s string) rune {
	if !utf8.ValidString(s) {
		return utf8.RuneError
	}
	for _, r := range s {
		if !unicode.IsGraphic(r) && r != '\u200c' && r != '\u200d' {
			return r
		}
	}
	return 0
}

type named struct{ name string }

func (n named) String() string { return n.name }

// TestOperands checks that operands of every kind are escaped, except Own and numbers.
func TestOperands(t *testing.T) {
	t.Parallel()
	evil := "\x1b[2J\nrollout: ok"
	want := `\u001b[2J rollout: ok`
	for name, v := range map[string]any{
		"string": evil, "bytes": []byte(evil), "error": fmt.Errorf("%w", errors.New(evil)), "stringer": named{evil},
		"pointer": &named{evil}, "of a type": named{evil}.String(),
	} {
		if got := termsafe.Sprintf("%s", v); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	for _, v := range []any{[]string{evil}, map[string]string{evil: evil}, struct{ A string }{evil}, []error{errors.New(evil)}, [1]any{evil}} {
		if got := termsafe.Sprintf("%v", v); strange(got) != 0 {
			t.Errorf("%T: %q", v, got)
		}
	}
	if got := termsafe.Sprintf("%-6s|%4d|%*d|%.2f|%q|%s\n", "a", 7, 3, 5, 1.5, evil, termsafe.Own("\x1b[1mours\n")); got != "a     |   7|  5|1.50|\"\\x1b[2J\\nrollout: ok\"|\x1b[1mours\n\n" {
		t.Errorf("%q", got)
	}
	if n := utf8.RuneCountInString(termsafe.Sprintf("%s", strings.Repeat("x", 1<<20))); n != termsafe.MaxText {
		t.Errorf("a megabyte is shown as %d characters", n)
	}
}

// TestWriterKeepsJSON checks that JSON keeps its value through a Writer.
func TestWriterKeepsJSON(t *testing.T) {
	t.Parallel()
	in := map[string]string{"\u202ekey": "\x1b\u009b\u2028\u007f\U000e0041\U0001f600 \t\n\"\\"}
	var b bytes.Buffer
	enc := json.NewEncoder(termsafe.NewWriter(&b))
	enc.SetEscapeHTML(false)
	if err := enc.Encode(in); err != nil {
		t.Fatal(err)
	}
	if r := strange(strings.TrimSuffix(b.String(), "\n")); r != 0 {
		t.Errorf("%q holds %U", b.String(), r)
	}
	var out map[string]string
	if err := json.Unmarshal(b.Bytes(), &out); err != nil || out["\u202ekey"] != in["\u202ekey"] {
		t.Errorf("%q became %q (%v)", in, out, err)
	}
}

// TestWriterColours checks that our color sequences pass once allowed, and no others.
func TestWriterColours(t *testing.T) {
	t.Parallel()
	const drawn = "\r\x1b[2A\x1b[2K\x1b[31;1mbad\x1b[0m\n"
	for _, tt := range []struct {
		colours  bool
		in, want string
	}{
		{true, drawn, drawn},
		{false, drawn, `\u000d\u001b[2A\u001b[2K\u001b[31;1mbad\u001b[0m` + "\n"},
		{true, "\x1b]0;x\a\x1b[5n\x1b[2J\r50%\x1b[", `\u001b]0;x\u0007\u001b[5n\u001b[2J\u000d50%\u001b[`},
	} {
		var b bytes.Buffer
		w := termsafe.NewWriter(&b)
		if tt.colours {
			w.Colours()
		}
		if n, err := io.WriteString(w, tt.in); err != nil || n != len(tt.in) || b.String() != tt.want {
			t.Errorf("%q became %q, want %q (%d, %v)", tt.in, b.String(), tt.want, n, err)
		}
	}
	if f, ok := termsafe.File(termsafe.NewWriter(os.Stderr)); !ok || f != os.Stderr {
		t.Error("the file behind a writer is not found")
	}
	if _, ok := termsafe.File(termsafe.NewWriter(io.Discard)); ok {
		t.Error("a file where there is none")
	}
}
