package format

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
)

// Shell quotes a path for a shell. The result is for commands that the user can copy.
func Shell(path string) string {
	if strings.HasPrefix(path, "-") {
		path = "./" + path // otherwise the path would be parsed as a flag
	}
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+:,@%", r) || r >= 0x80
	}
	switch {
	case !utf8.ValidString(path) || strings.IndexFunc(path, func(r rune) bool { return !unicode.IsGraphic(r) }) >= 0:
		var b strings.Builder
		for _, r := range []byte(path) {
			switch {
			case r < ' ' || r >= 0x7f:
				termsafe.Fprintf(&b, `\x%02x`, r)
			case r == '\'' || r == '\\':
				b.WriteByte('\\')
				fallthrough
			default:
				b.WriteByte(r)
			}
		}
		return "$'" + b.String() + "'"
	case path != "" && strings.IndexFunc(path, func(r rune) bool { return !plain(r) }) < 0:
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
