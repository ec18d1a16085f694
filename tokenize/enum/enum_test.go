package enum_test

import (
	"testing"

	"github.com/rollout-rl/rollout/tokenize/enum"
)

type colour uint8

var colours = enum.List[colour]{Noun: "colour", Words: []string{"", "red", "green"}}

// TestList checks that values survive Marshal and Unmarshal, and that unknown ones are errors.
func TestList(t *testing.T) {
	t.Parallel()
	for want, word := range colours.Words {
		b, err := colours.Marshal(colour(want))
		if err != nil || string(b) != word || colours.String(colour(want)) != word {
			t.Errorf("%d is written as %q and %q, %v; want %q", want, b, colours.String(colour(want)), err, word)
		}
		got := colour(9)
		if err := colours.Unmarshal(b, &got); err != nil || got != colour(want) {
			t.Errorf("%q is read as %d, %v; want %d", b, got, err, want)
		}
	}

	if got := colours.String(3); got != "colour(3)" {
		t.Errorf("a value without a word reads %q", got)
	}
	if b, err := colours.Marshal(3); err == nil || err.Error() != "unknown colour 3" {
		t.Errorf("a value without a word is written as %q, %v", b, err)
	}
	kept := colour(2)
	if err := colours.Unmarshal([]byte("blue"), &kept); err == nil || err.Error() != `colour "blue" is not one of red, green` || kept != 2 {
		t.Errorf("a word that is not in the list: %v, and the value is %d", err, kept)
	}
}
