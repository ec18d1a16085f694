package chat_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/tokenize/chat"
	"github.com/rollout-rl/rollout/tokenize/tokenizetest"
)

// fixedNow returns the time of the stored outputs.
func fixedNow() time.Time { return time.Date(2026, 7, 4, 12, 30, 0, 0, time.UTC) }

// testOptions returns the special tokens of the stored outputs.
func testOptions() chat.Options {
	return chat.Options{
		BOSToken: "<s_bos>", EOSToken: "<s_eos>",
		Tokens: map[string]string{"unk_token": "<unk>", "pad_token": "<pad>"},
	}
}

func stored[T any](tb testing.TB, name string) (v T) {
	tb.Helper()
	b, err := tokenizetest.Gunzip(filepath.Join("..", "..", "testdata", "chat-templates", name))
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

func templates(tb testing.TB) map[string]string {
	tb.Helper()
	return stored[map[string]string](tb, "templates.json.gz")
}

func fromJSON(tb testing.TB, js []byte) chat.Value {
	tb.Helper()
	v, err := chat.FromJSON(js)
	if err != nil {
		tb.Fatalf("FromJSON(%.200s) = %v", js, err)
	}
	return v
}

func input(tb testing.TB, js []byte) chat.Input {
	tb.Helper()
	return chat.Input{Extra: fromJSON(tb, js).Map(), Now: fixedNow()}
}

func parse(tb testing.TB, name, source string, opts chat.Options) *chat.Template {
	tb.Helper()
	tpl, err := chat.Parse(name, source, opts)
	if err != nil {
		tb.Fatal(err)
	}
	return tpl
}

// render parses and renders source.
func render(name, source string, opts chat.Options, in chat.Input) (string, error) {
	tpl, err := chat.Parse(name, source, opts)
	if err != nil {
		return "", err
	}
	out, err := tpl.Render(nil, in)
	return string(out), err
}

// TestStored renders every template with every conversation. The output equals Python's byte for
// byte, and there is an error if Python raised one.
func TestStored(t *testing.T) {
	t.Parallel()
	cases := stored[map[string]json.RawMessage](t, "cases.json.gz")
	want := stored[map[string]map[string]answer](t, "expected.json.gz")
	srcs := templates(t)
	n, texts := 0, 0
	for name, src := range srcs {
		tpl, perr := chat.Parse(name, src, testOptions())
		for id, js := range cases {
			n++
			w := want[name][id]
			var got []byte
			err := perr
			if err == nil {
				got, err = tpl.Render(nil, input(t, js))
			}
			if d := compare(w, string(got), err); d != "" {
				t.Errorf("%s, %s: %s", name, id, d)
			}
			if w.Out != nil {
				texts++
			}
		}
	}
	if n != 82*13 || texts != 908 {
		t.Errorf("ran %d cases with %d outputs, want 1066 with 908", n, texts)
	}
}

// firstDifference returns both sides around the first byte that differs.
func firstDifference(got, want string) string {
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	cut := func(s string) string { return s[max(0, min(i-40, len(s))):min(i+40, len(s))] }
	return fmt.Sprintf("at byte %d: got %q, want %q", i, cut(got), cut(want))
}
