package spelling_test

import (
	"testing"

	"github.com/rollout-rl/rollout/collector/letta/spelling"
)

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"abc", "", 3},
		{"abcde", "abcde", 0},
		{"abcde", "abced", 1},
		{"abced", "abcdef", 2},
		{"ab", "ba", 1},
		{"temprature", "temperature", 1},
		{"abcd", "badc", 2},
		{"kitten", "sitting", 3},
	} {
		if got := spelling.Distance(test.a, test.b); got != test.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", test.a, test.b, got, test.want)
		}
		if got := spelling.Distance(test.b, test.a); got != test.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", test.b, test.a, got, test.want)
		}
	}
}
