package chat_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/tokenize/chat"
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
	answers := askPython(t, srcs, requests)
	parsed := map[string]*chat.Template{}
	for name, src := range srcs {
		tpl, err := chat.Parse(name, src, testOptions())
		if err != nil {
			t.Fatalf("Parse(%s) = %v", name, err)
		}
		parsed[name] = tpl
	}
	bad, texts := 0, 0
	for i, r := range requests {
		out, err := parsed[*r.Name].Render(nil, input(t, r.Vars))
		if answers[i].Out != nil {
			texts++
		}
		if d := compare(answers[i], string(out), err); d != "" {
			if bad++; bad <= 10 {
				t.Errorf("%s: %s\nvariables %s", *r.Name, d, r.Vars)
			}
		}
	}
	t.Logf("%d renders, %d with output, %d differ", len(requests), texts, bad)
	if texts < len(requests)/4 {
		t.Errorf("only %d of %d renders have output: the conversations are too wild to show anything", texts, len(requests))
	}
}

const conversations = 60
