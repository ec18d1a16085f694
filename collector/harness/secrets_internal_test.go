package harness

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/session"
)

// TestRedactor checks that a secret is found as it is, in JSON, and in JSON in JSON, as other programs
// write it too. Short values and values of ordinary variables stay.
func TestRedactor(t *testing.T) {
	t.Parallel()
	const odd = "p\"a<s&w\\ö\n😀rd-1"
	key := session.NewKey()
	r := newRedactor(&Config{
		Secrets: []string{odd, odd + "-longer", "short"},
		Env: map[string]string{
			"SOME_API_KEY": "value-of-the-api-key", "AWS_SECRET_ACCESS_KEY": "value-of-access", "PLAIN": "plain-value",
			"OPENAI_API_KEY": "{key}", "MAX_TOKENS": "1234567890", "A_TOKEN": "tiny",
		},
	})
	const kept = "short plain-value {key} 1234567890 tiny"
	text := strings.Join([]string{odd, odd + "-longer", "value-of-the-api-key", "value-of-access", string(key), kept}, " ")
	const want = "(secret) (secret) (secret) (secret) (session key) " + kept
	for depth := range 3 {
		for _, write := range writers {
			given, wanted := text, want
			for range depth {
				given, wanted = write(given), write(wanted)
			}
			if got := r.text(given); got != wanted {
				t.Errorf("depth %d: %q, want %q", depth, got, wanted)
			}
		}
	}
	for given, want := range map[string]string{ // json.dumps of Python, and the same in a string
		`log: {"a": "p\"a<s&w\\\u00f6\n\ud83d\ude00rd-1"}`:               `log: {"a": "(secret)"}`,
		`log: "{\"a\": \"p\\\"a<s&w\\\\\\u00f6\\n\\ud83d\\ude00rd-1\"}"`: `log: "{\"a\": \"(secret)\"}"`,
	} {
		if got := r.text(given); got != want {
			t.Errorf("%s: %s, want %s", given, got, want)
		}
	}
	raw, err := json.Marshal(map[string]string{"arguments": `{"a":` + `"` + escapedJSON(odd) + `"}`})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.text(string(raw)); got != `{"arguments":"{\"a\":\"(secret)\"}"}` || !json.Valid([]byte(got)) {
		t.Errorf("JSON %s", got)
	}
}

// TestRedactedJSON checks that only the strings of JSON change, at every depth, and that the JSON stays
// valid.
func TestRedactedJSON(t *testing.T) {
	t.Parallel()
	r := newRedactor(&Config{Secrets: []string{"12345678", "nextpassword", `pässwort"1`}})
	for given, want := range map[string]string{
		`{"n": 12345678, "s":"12345678", "12345678":[1.12345678e5]}`:        `{"n": 12345678, "s":"(secret)", "(secret)":[1.12345678e5]}`,
		`["line\nextpassword", "\\nextpassword", "\u006eextpassword"]`:      `["line\nextpassword", "\\(secret)", "(secret)"]`,
		`[{"a":"p\u00e4sswort\"1 \u00e4 <"}]`:                               `[{"a":"(secret) ä <"}]`,
		`[{"a":"\u00e4 \ud83d"}]`:                                           `[{"a":"\u00e4 \ud83d"}]`,
		`{"arguments":"{\"n\":12345678,\"p\":\"p\\u00E4sswort\\u00221\"}"}`: `{"arguments":"{\"n\":12345678,\"p\":\"(secret)\"}"}`,
		` [] `: ` [] `, `[`: `[`, "12345678": "(secret)",
	} {
		if got := r.text(given); got != want || json.Valid([]byte(given)) != json.Valid([]byte(got)) && given != "12345678" {
			t.Errorf("%s: %s, want %s", given, got, want)
		}
	}
}

// TestWriteAnswer checks that the final answer is written to no file that an agent linked.
func TestWriteAnswer(t *testing.T) {
	t.Parallel()
	folder, other := t.TempDir(), filepath.Join(t.TempDir(), "other")
	if err := os.Symlink(other, filepath.Join(folder, answerFile)); err != nil {
		t.Fatal(err)
	}
	err := writeAnswer(folder, "text")
	b, err2 := os.ReadFile(filepath.Join(folder, answerFile))
	if _, err3 := os.Lstat(other); err != nil || err2 != nil || string(b) != "text" || !errors.Is(err3, fs.ErrNotExist) {
		t.Errorf("%q, %v, %v, %v", b, err, err2, err3)
	}
}

// TestIsSecret reads the list of names and values that the Python package must treat in the same way.
func TestIsSecret(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("testdata/secrets.json")
	var list struct {
		Placeholders []string
		Variables    []struct {
			Name, Value string
			Secret      bool
		}
	}
	if err := errors.Join(err, json.Unmarshal(b, &list)); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(list.Placeholders, placeholders) || len(list.Variables) == 0 {
		t.Errorf("placeholders %v, want %v", list.Placeholders, placeholders)
	}
	for _, v := range list.Variables {
		if IsSecret(v.Name, v.Value) != v.Secret {
			t.Errorf("IsSecret(%q, %q) = %t", v.Name, v.Value, !v.Secret)
		}
	}
}

// TestCutSecret checks that the end of a long output file does not begin with a part of a secret.
func TestCutSecret(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	key := string(session.NewKey())
	for cut := range len(key) + 1 {
		rest := key[cut:] + strings.Repeat("x", 200) + "\n"
		text := "early " + key[:cut] + rest + strings.Repeat("y", maxOutput-len(rest)-1) + "\n"
		if err := os.WriteFile(filepath.Join(folder, "out"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readOutput(folder, "out", newRedactor(&Config{}))
		if err != nil || len(got) < maxOutput-300 || cut < len(key) && strings.Contains(string(got), key[max(cut, 3):]) {
			t.Fatalf("cut %d: %d bytes, %.80q, %v", cut, len(got), got, err)
		}
	}
}
