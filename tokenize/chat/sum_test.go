package chat_test

import (
	"errors"
	"testing"

	"github.com/rollout-rl/rollout/tokenize/chat"
)

// TestSum: a chain of + has the same text or the same error as adding one term after the other.
func TestSum(t *testing.T) {
	t.Parallel()
	terms := []string{
		"'a'", "''", "word", "(word + 'x')", "m()", "[word, 'y'] | join('+')", "('z' * 3)", "({'k': [1]} | tojson)",
		"1", "2.5", "true", "none", "[1]", "missing", "('&' | safe)", "missing.attr", "m(missing.attr)",
	}
	before := "{% macro m(x='i') %}{{ x + 'n' + word }}{% endmacro %}"
	for _, a := range terms {
		for _, b := range terms {
			for _, c := range terms {
				steps := before + "{% set s = " + a + " + " + b + " %}{% set s = s + " + c + " %}"
				want, failed := sum(steps+"{{ s }}", chat.Options{})
				for _, chain := range []string{
					before + "{{ " + a + " + " + b + " + " + c + " }}",
					before + "{% set s = " + a + " + " + b + " + " + c + " %}{{ s }}",
				} {
					got, err := sum(chain, chat.Options{})
					if got != want || (err == nil) != (failed == nil) || err != nil && err.Error() != failed.Error() {
						t.Errorf("%s = %q, %v, want %q, %v", chain, got, err, want, failed)
					}
				}
			}
		}
	}
}

// TestSumLine: an error in a chain has the line of its +.
func TestSumLine(t *testing.T) {
	t.Parallel()
	for source, line := range map[string]int{
		"{{ 'a'\n+ 1\n+ 'b' }}":                2,
		"{{ 'a'\n+ 'b'\n+ 1 }}":                3,
		"{{ 'a'\n+ 'b'\n+ 'c' - 1 }}":          3,
		"{{ 'a'\n+ 'b'\n+ missing.attr }}":     2, // not added yet
		"{% set x = 'a'\n+ 'b'\n+ 1 %}{{ x }}": 3,
	} {
		_, err := sum(source, chat.Options{})
		if e, ok := errors.AsType[*chat.Error](err); !ok || e.Line != line {
			t.Errorf("%q: %v, want an error in line %d", source, err, line)
		}
	}
}

// TestSumLimit: a chain of texts pays for every intermediate text, although it does not create it.
func TestSumLimit(t *testing.T) {
	t.Parallel()
	const chain = "{{ word + '-' + word + '-' + word }}"
	for limit := int64(1); limit < 60; limit++ {
		_, err := sum(chain, chat.Options{MaxValueBytes: limit})
		if want := limit < 5+9+10+14; errors.Is(err, chat.ErrLimit) != want {
			t.Errorf("with %d bytes for values: %v, want an error: %v", limit, err, want)
		}
	}
	if _, err := sum(chain, chat.Options{MaxOutputBytes: 13}); !errors.Is(err, chat.ErrLimit) {
		t.Errorf("14 bytes of output with a limit of 13: %v", err)
	}
}

func sum(source string, opts chat.Options) (string, error) {
	extra := chat.NewMap(1)
	extra.Set("word", chat.StringValue("word"))
	return render("sum", source, opts, chat.Input{Extra: extra})
}
