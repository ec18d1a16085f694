package harness

import (
	"bytes"
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/collector/session"
)

// secretName matches the names of variables whose values are probably secrets.
var secretName = regexp.MustCompile(`(?i)(^|_)(secret|password|passwd|passphrase|token|(api|access|private|secret)_?key|pat|credentials?)$`)

// IsSecret reports whether the value of an environment variable is probably a secret: the variable
// has the name of a secret, and the value does not come from the attempt, as {key} does.
func IsSecret(name, value string) bool {
	return value != "" && secretName.MatchString(name) && !slices.ContainsFunc(placeholders, func(p string) bool { return strings.Contains(value, p) })
}

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
	secrets := slices.Clone(cfg.Secrets)
	for name, value := range cfg.Env {
		if IsSecret(name, value) {
			secrets = append(secrets, value)
		}
	}
	secrets = slices.DeleteFunc(secrets, func(s string) bool { return len(s) < shortestSecret })
	r := &redactor{longest: keyLength}
	forms := secrets
	for range 2 { // texts can be JSON, with JSON in a string, such as the arguments of a tool call
		for _, form := range slices.Clone(forms) {
			forms = append(forms, escaped(form), plainJSON(form))
		}
	}
	slices.SortFunc(forms, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	forms = slices.Compact(forms)
	var pairs []string
	for _, form := range forms { // longer forms come first, because a secret can be part of another
		pairs = append(pairs, form, redactedSecret)
		r.longest = max(r.longest, len(form))
	}
	r.values = strings.NewReplacer(pairs...)
	return r
}

// escaped returns a text as it is in a JSON string of encoding/json, and plainJSON as it is in a JSON
// string of most other programs, which do not escape <, > and &.
func escaped(text string) string {
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

// text replaces the secrets in a text, which can be JSON.
func (r *redactor) text(text string) string {
	return session.KeyPattern.ReplaceAllString(r.values.Replace(text), redactedKey)
}
