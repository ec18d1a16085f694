package harness

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/rollout-rl/rollout/collector/session"
)

// A redactor replaces secrets in texts: the keys of all sessions, and values of variables.
type redactor struct {
	values  *strings.Replacer
	longest int // the length of the longest secret, in bytes
}

// These texts replace secrets.
const (
	redactedKey    = "(session key)"
	redactedSecret = "(secret)"
)

const (
	// shortestSecret is the minimum length of a value that is replaced, in bytes. A shorter value can
	// be part of ordinary words.
	shortestSecret = 8
	keyLength      = 64 // at least the length of a session's key
)

// newRedactor returns a redactor for the configuration of an attempt.
func newRedactor(cfg *Config) *redactor {
	forms := slices.Clone(cfg.Secrets)
	for name, value := range cfg.Env {
		if IsSecret(name, value) {
			forms = append(forms, value)
		}
	}
	forms = slices.DeleteFunc(forms, func(s string) bool { return len(s) < shortestSecret })
	for range 2 { // a text can contain JSON, with JSON in a string, such as the arguments of a tool call
		for _, form := range slices.Clone(forms) {
			for _, write := range writers {
				forms = append(forms, write(form))
			}
		}
		slices.Sort(forms)
		forms = slices.Compact(forms)
	}
	slices.SortFunc(forms, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	r := &redactor{longest: keyLength}
	var pairs []string
	for _, form := range forms { // longer forms come first, because a secret can be part of another
		pairs = append(pairs, form, redactedSecret)
		r.longest = max(r.longest, len(form))
	}
	r.values = strings.NewReplacer(pairs...)
	return r
}

// text replaces the secrets in a text. In a JSON object or array, it replaces them only in strings, so
// that the result is valid. In any other text, it also finds the forms that they have in JSON.
func (r *redactor) text(text string) string {
	if b := strings.TrimSpace(text); b != "" && (b[0] == '{' || b[0] == '[') && json.Valid([]byte(b)) {
		return r.json(text)
	}
	return session.KeyPattern.ReplaceAllString(r.values.Replace(text), redactedKey)
}

// json replaces the secrets in the strings of valid JSON. Everything else stays as it is.
func (r *redactor) json(text string) string {
	var out strings.Builder
	for {
		at := strings.IndexByte(text, '"')
		if at < 0 {
			out.WriteString(text)
			return out.String()
		}
		end := at + 1
		for text[end] != '"' { // ends, because the JSON is valid
			if text[end] == '\\' {
				end++
			}
			end++
		}
		written := text[at : end+1]
		var value string
		_ = json.Unmarshal([]byte(written), &value) // cannot fail
		if clean := r.text(value); clean != value {
			written = `"` + plainJSON(clean) + `"`
		}
		out.WriteString(text[:at] + written)
		text = text[end+1:]
	}
}

// writers return a text as it is in a JSON string: of encoding/json, of programs that do not escape <,
// > and &, and of programs that escape everything but ASCII.
var writers = []func(text string) string{
	escapedJSON, plainJSON,
	func(text string) string { return asciiJSON(text, `\u%04x`) }, // Python
	func(text string) string { return asciiJSON(text, `\u%04X`) },
}

func escapedJSON(text string) string {
	b, _ := json.Marshal(text) // cannot fail
	return string(b[1 : len(b)-1])
}

func plainJSON(text string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // cannot fail
	return strings.TrimSuffix(b.String()[1:], "\"\n")
}

func asciiJSON(text, format string) string {
	var out strings.Builder
	for _, c := range plainJSON(text) {
		if c < 0x7f {
			out.WriteRune(c)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, c) {
			_, _ = fmt.Fprintf(&out, format, unit)
		}
	}
	return out.String()
}
