package proxy_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

// TestSessionModel proves that a call is recorded with the adapter that answered. A call that got the
// engine's own model, or no model, has no name.
func TestSessionModel(t *testing.T) {
	t.Parallel()
	e := &adapters{Handler: newEngine(t), models: []string{"qwen3", "step-1", "team:step-1"}}
	r := newSessionRig(t, proxy.Config{}, e)
	if err := r.proxy.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	key := r.begin(t)
	var want []string
	for _, c := range [][2]string{
		// the name that the client uses, and the name in the record
		{"policy", ""},
		{"gpt-4", ""},
		{"qwen3", ""},
		{"step-1", "step-1"},
		{"step-1", "step-1"},
		{"policy", ""},
		{"policy:step-1", "step-1"},
		{"policy:", ""},
		{"qwen3:", ""},
		{"team:step-1", "team:step-1"},
		{"step-2", "step-2"}, // loaded later
	} {
		if c[0] == "step-2" {
			e.load("qwen3", "step-1", "step-2")
		}
		if status, text := r.call(t, key, strings.Replace(chatBody("single", len(want)%2 == 0, ""), "policy", c[0], 1)); status != http.StatusOK {
			t.Errorf("%s: %d %s", c[0], status, text)
		}
		want = append(want, c[1])
	}
	rec, got := r.record(t, key), []string(nil)
	for i := range rec.Calls {
		got = append(got, rec.Calls[i].Model)
	}
	if !slices.Equal(got, want) || rec.Head.Model != "qwen3" {
		t.Errorf("the models of the calls are %q, want %q; the model of the session is %q", got, want, rec.Head.Model)
	}
}
