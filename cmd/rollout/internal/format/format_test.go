package format

import (
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
)

// Folded text keeps every word, and its lines fit if the words do.
func TestFold(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text, want string }{
		{"short", "  a  one two\n", "  a  one two\n"},
		{"exact", "  a  one two three\n", "  a  one two three\n"},
		{"long", "  a  one two three four five six\n\nb\n", "  a  one two three\n     four five six\n\nb\n"},
		{"no end", "  a  one two three four", "  a  one two three\n     four"},
		{"wide runes", "  ä  öne twö thrée fóur", "  ä  öne twö thrée\n     fóur"},
		{"one word", "  a  onetwothreefourfivesix seven", "  a  onetwothreefourfivesix seven"},
	} {
		if got := Fold(tt.text, 18, 5); got != tt.want {
			t.Errorf("%s:\n%q, want\n%q", tt.name, got, tt.want)
		}
	}
	if n := Columns("\x1b[31mfünf!\x1b[0m\n"); n != 6 {
		t.Errorf("visible = %d, want 6", n)
	}
}

func TestHumanNumbers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ got, want string }{
		{Count(0), "0"},
		{Count(999), "999"},
		{Count(1000), "1,000"},
		{Count(99_999), "99,999"},
		{Count(100_000), "100k"},
		{Count(999_600), "1.00M"},
		{Count(1_234_567), "1.23M"},
		{Count(12_345_678_901), "12.3G"},
		{Bytes(0), "0 B"},
		{Bytes(1500), "1.50 kB"},
		{Bytes(256 << 20), "268 MB"},
		{Rate(0.25), "0.25"},
		{Rate(12.34), "12.3"},
		{Rate(1234.5), "1,235"},
		{Duration(420 * time.Millisecond), "0.42s"},
		{Duration(65 * time.Second), "1m05s"},
		{Duration(123 * time.Minute), "2h03m"},
		{Percent(1, 3), "33.3%"},
		{Percent(1, 0), "0%"},
		{termsafe.Text("a\nb\x1b", 10), `a b\u001b`},
		{termsafe.Text("日本語日本語", 4), "日本語…"},
		{Size(3 << 19), "1536KiB"},
		{Size(1000), "1kB"},
		{Size(0), "0B"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	words := []string{"collect", "simulate", "inspect", "verify", "max-in-flight"}
	for _, tt := range []struct{ word, want string }{
		{"colect", "collect"}, {"simulte", "simulate"}, {"inspct", "inspect"}, {"max-inflight", "max-in-flight"}, {"xyz", ""}, {"", ""},
	} {
		if got := Nearest(tt.word, words); got != tt.want {
			t.Errorf("nearest(%q) = %q, want %q", tt.word, got, tt.want)
		}
	}
}
