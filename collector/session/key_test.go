package session_test

import (
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/session"
)

// TestKeyPattern proves that the pattern finds each whole key in the texts in which an agent can
// leave it, and nothing else.
func TestKeyPattern(t *testing.T) {
	t.Parallel()
	for range 100 {
		key := string(session.NewKey())
		for _, text := range []string{ // @ is the key
			"@",
			"OPENAI_API_KEY=@\n",
			"http://127.0.0.1:8284/r/@/v1/chat/completions?x=1",
			`{"key":"@","out":"line\n@\n"}`,
			"agent@end-@_@.",
			"@@",
			"@ABC",
		} {
			want := strings.Repeat(key+" ", strings.Count(text, "@"))
			found := session.KeyPattern.FindAllString(strings.ReplaceAll(text, "@", key), -1)
			if got := strings.Join(append(found, ""), " "); got != want {
				t.Fatalf("in %q: found %q, want %q", text, got, want)
			}
		}
	}
	key := string(session.NewKey())
	for _, text := range []string{
		"", session.KeyPrefix, key[:len(key)-1], "s" + key[1:], strings.ToLower(key),
		"network-3f2b1c0a9d8e7f6a5b4c3d2e1f0a9b8c", "framework-independent-library-for-rollouts",
	} {
		if session.KeyPattern.MatchString(text) {
			t.Errorf("%q matches", text)
		}
	}
}
