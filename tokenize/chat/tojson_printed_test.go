package chat_test

import (
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/tokenize/chat"
)

// TestPrintedAgain: printing a dict again gives the same text as the first time, and respects
// another style and another template's limit.
func TestPrintedAgain(t *testing.T) {
	t.Parallel()
	m := chat.NewMap(2)
	m.Set("b", chat.StringValue("é"))
	m.Set("a", chat.IntValue(1))
	in := chat.Input{Messages: chat.ListValue(chat.MapValue(m))}
	render := func(filter string, o chat.Options) (string, error) {
		tmpl := parse(t, "printed", "{% for m in messages %}{{ m | "+filter+" }}{% endfor %}", o)
		out, err := tmpl.Render(nil, in)
		return string(out), err
	}
	for range 2 {
		for filter, want := range map[string]string{
			"tojson":                        `{"b": "é", "a": 1}`,
			"tojson(ensure_ascii=true)":     `{"b": "\u00e9", "a": 1}`,
			"tojson(sort_keys=true)":        `{"a": 1, "b": "é"}`,
			"tojson(indent=1)":              "{\n \"b\": \"é\",\n \"a\": 1\n}",
			"tojson(separators=(',', ':'))": `{"b":"é","a":1}`,
		} {
			if got, err := render(filter, chat.Options{}); err != nil || got != want {
				t.Errorf("%s = %s, %v, want %s", filter, got, err, want)
			}
		}
		if got, err := render("tojson", chat.Options{MaxOutputBytes: 10}); err == nil || !strings.Contains(err.Error(), "10 bytes") {
			t.Errorf("beyond the limit: %q, %v", got, err)
		}
	}
}
