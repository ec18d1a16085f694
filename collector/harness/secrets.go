package harness

import (
	"regexp"
	"slices"
	"strings"
)

// secretName matches the names of variables whose values are probably secrets. The Python package has
// the same rule (collecting/_settings.py).
var secretName = regexp.MustCompile(`(?i)(^|_)(secret|password|passwd|passphrase|token|(api|access|private|secret)_?key|pat|credentials?)$`)

// IsSecret reports whether the value of an environment variable is probably a secret: the variable
// has the name of a secret, and the value does not come from the attempt, as {key} does.
func IsSecret(name, value string) bool {
	return value != "" && secretName.MatchString(name) && !slices.ContainsFunc(placeholders, func(p string) bool { return strings.Contains(value, p) })
}
