package translate_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/tap/translate"
	"github.com/rollout-rl/rollout/collector/tap/translate/messages"
	"github.com/rollout-rl/rollout/collector/tap/translate/responses"
)

var update = flag.Bool("update", false, "rewrite README.md")

// TestReadme compares README.md with the tables of the dialects. With -update, it rewrites the tables.
func TestReadme(t *testing.T) {
	old, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	head, _, found := strings.Cut(string(old), "## OpenAI's Responses API\n")
	if !found {
		t.Fatal("README.md has no section \"OpenAI's Responses API\"")
	}
	want := head + "## OpenAI's Responses API\n\n" + translate.Markdown(responses.Dialect{}.Tables()) +
		"## Anthropic's Messages API\n\n" + translate.Markdown(messages.Dialect{}.Tables())
	want = strings.TrimRight(want, "\n") + "\n"
	if want == string(old) {
		return
	}
	if !*update {
		t.Fatal("README.md differs from the tables of the dialects; -update rewrites it")
	}
	if err := os.WriteFile("README.md", []byte(want), 0o666); err != nil {
		t.Fatal(err)
	}
}
