package tokenize_test

import (
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/tokenize"
)

func TestOutputVersions(t *testing.T) {
	t.Parallel()
	type spans = []tokenize.VersionSpan
	unknown := []int32{-1, -1, -1}
	for _, tt := range []struct {
		name  string
		word  string
		spans spans
		one   int32
		each  []int32
	}{
		{"no spans", "8", nil, 8, nil},
		{"a label", "default", nil, -1, nil},
		{"beyond int32", "2147483648", nil, -1, nil},
		{"negative", "-3", nil, -1, nil},
		{"one span", "8", spans{{"8", 0, 3}}, 8, nil},
		{"one span and no word", "", spans{{"8", 0, 3}}, 8, nil},
		{"one span with a label", "default", spans{{"default", 0, 3}}, -1, nil},
		{"two", "8", spans{{"7", 0, 1}, {"8", 1, 3}}, -1, []int32{7, 8, 8}},
		{"two, and the word is spelled otherwise", "08", spans{{"7", 0, 1}, {"8", 1, 3}}, -1, []int32{7, 8, 8}},
		{"three", "9", spans{{"7", 0, 1}, {"8", 1, 2}, {"9", 2, 3}}, -1, []int32{7, 8, 9}},
		{"the first is a label", "1", spans{{"default", 0, 2}, {"1", 2, 3}}, -1, []int32{-1, -1, 1}},
		{"one is beyond int32", "8", spans{{"99999999999", 0, 2}, {"8", 2, 3}}, -1, []int32{-1, -1, 8}},
		{"back to an older one", "7", spans{{"8", 0, 2}, {"7", 2, 3}}, -1, []int32{8, 8, 7}},
		{"none covers", "8", spans{}, -1, unknown},
		{"too short", "8", spans{{"7", 0, 1}, {"8", 1, 2}}, -1, unknown},
		{"one, too short", "8", spans{{"8", 0, 2}}, -1, unknown},
		{"too long", "8", spans{{"7", 0, 1}, {"8", 1, 4}}, -1, unknown},
		{"a gap", "8", spans{{"7", 0, 1}, {"8", 2, 3}}, -1, unknown},
		{"an overlap", "8", spans{{"7", 0, 2}, {"8", 1, 3}}, -1, unknown},
		{"out of order", "8", spans{{"8", 1, 3}, {"7", 0, 1}}, -1, unknown},
		{"an empty span", "8", spans{{"7", 0, 1}, {"9", 1, 1}, {"8", 1, 3}}, -1, unknown},
		{"negative places", "8", spans{{"7", -1, 1}, {"8", 1, 3}}, -1, unknown},
		{"another word", "9", spans{{"7", 0, 1}, {"8", 1, 3}}, -1, unknown},
		{"another word, of one span", "9", spans{{"8", 0, 3}}, -1, unknown},
		{"a label against a number", "default", spans{{"7", 0, 1}, {"8", 1, 3}}, -1, unknown},
	} {
		one, each := tokenize.OutputVersions(tt.word, tt.spans, 3)
		if one != tt.one || !slices.Equal(each, tt.each) || (each == nil) != (tt.each == nil) {
			t.Errorf("%s: %d %v, want %d %v", tt.name, one, each, tt.one, tt.each)
		}
	}
}

func TestVersionWord(t *testing.T) {
	t.Parallel()
	for number, want := range map[string]string{
		"8": "8", "8.0": "8", "1e2": "100", "8.5": "8.5", "-1": "-1", "1e400": "1e400", "3e9": "3e9", "123456789012345678901234567890": "123456789012345678901234567890",
	} {
		if got := tokenize.VersionWord(number); got != want {
			t.Errorf("%s: %s, want %s", number, got, want)
		}
	}
}
