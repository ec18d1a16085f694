package messages_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rollout-rl/rollout/collector/tap/translate/messages"
)

// seeds returns the requests in testdata.
func seeds(tb testing.TB) (out []string) {
	tb.Helper()
	entries, err := os.ReadDir("testdata/request")
	if err != nil {
		tb.Fatal(err)
	}
	for _, e := range entries {
		a, err := txtar.ParseFile("testdata/request/" + e.Name())
		if err != nil {
			tb.Fatal(err)
		}
		for _, f := range a.Files {
			if f.Name == "request" {
				out = append(out, string(f.Data))
			}
		}
	}
	a, err := txtar.ParseFile("testdata/refused.txtar")
	if err != nil || len(out) == 0 {
		tb.Fatal(err)
	}
	for _, f := range a.Files {
		body, _, _ := strings.Cut(string(f.Data), "\n")
		out = append(out, body)
	}
	return out
}

// FuzzRequest checks that every request is translated or refused. A chat completion must be JSON with
// the members that an engine needs, and an error must have a message. Without max_tokens, the result is
// the same.
func FuzzRequest(f *testing.F) {
	for _, s := range seeds(f) {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		call, err := messages.Dialect{}.Request(body)
		counted, countErr := messages.Dialect{}.Count(body)
		if err != nil {
			if e := asError(err); e == nil || e.Status != 400 || e.Message == "" || !json.Valid(messages.Dialect{}.Error(e)) {
				t.Fatalf("%#v", err)
			}
			if countErr == nil && !strings.Contains(err.Error(), "max_tokens") {
				t.Fatalf("Count accepts what Request refuses: %v", err)
			}
			return
		}
		var c struct {
			Model    *string
			Messages []struct {
				Role    string
				Content any
			}
			Stream any
		}
		if err := json.Unmarshal(call.Chat, &c); err != nil || c.Model == nil || len(c.Messages) == 0 || c.Stream != nil {
			t.Fatalf("%v: %s", err, call.Chat)
		}
		if last := c.Messages[len(c.Messages)-1]; last.Role == "assistant" || last.Content == nil {
			t.Fatalf("the last message is %+v", last)
		}
		if countErr != nil || string(counted.Chat) != string(call.Chat) {
			t.Fatalf("Count gives %s, %v; want %s", counted.Chat, countErr, call.Chat)
		}
	})
}
