package config

import (
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/tokenize/chat"
)

// A run keeps whether the release of transformers was set, even if it was set to the default.
func TestReleaseOfAnEarlierInvocation(t *testing.T) {
	for _, tt := range []struct {
		given string // null: not set
		want  []chat.Transformers
	}{
		{`null`, nil},
		{`"4.57"`, []chat.Transformers{chat.Transformers457}},
		{`"5.0"`, []chat.Transformers{chat.Transformers50}},
	} {
		l := NewLoader(func(string) string { return "" })
		l.FromRun(Values{"tokens": {"transformers": []byte(tt.given)}}, "")
		if got := l.Config.Releases(); !slices.Equal(got, tt.want) {
			t.Errorf("%s: releases %v, want %v", tt.given, got, tt.want)
		}
	}
}
