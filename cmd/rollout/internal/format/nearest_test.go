package format

import (
	"testing"
)

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
