package chat_test

import (
	"maps"
	"slices"
	"testing"
)

// TestAgainstPython renders random conversations with all stored templates, here and in Python. The
// bytes are the same, and both fail for the same ones.
func TestAgainstPython(t *testing.T) {
	t.Parallel()
	srcs := templates(t)
	k := &conversationGen{Rand: source(t)}
	var requests []request
	names := slices.Sorted(maps.Keys(srcs))
	for range conversations {
		vars := []byte(k.variables())
		for i := range names {
			requests = append(requests, request{Name: &names[i], Vars: vars})
		}
	}
	var c comparison
	c.run(t, srcs, requests)
	t.Logf("%d conversations: %s", conversations, &c)
	if c.addresses+c.limited > 0 || len(c.refused) > 0 {
		t.Errorf("some renders cannot be compared: %s", &c)
	}
	if c.texts < c.renders/4 {
		t.Errorf("only %d of %d renders have output: the conversations are too wild to show anything", c.texts, c.renders)
	}
}

const conversations = 60
