package words_test

import (
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// private matches words that this code once used for concepts that have names: a trip, a probe, a
// reset, a charge and a refund of the breaker, the record of a server run, redacted texts.
var private = regexp.MustCompile(`(?i)\b(streaks?|acquit\w*|mourn\w*|recollect\w*|repay\w*|stillest|suspects?)\b|(?i:own)Words\b`)

// translated matches "is no x" and "are no x", except in correct English: there is no x, is no
// longer, is no more. Write "is not a row" instead of "is no row".
var translated = regexp.MustCompile(`(\w+ )?\b(?:is|are) no ([\w-]+)`)

// TestPrivateWords checks that the sources contain neither.
func TestPrivateWords(t *testing.T) {
	t.Parallel()
	sources(t, func(path string, _ *ast.File) {
		raw, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(raw), "\n") {
			if m := private.FindString(line); m != "" {
				t.Errorf("%s:%d: %q is a private word; use the words of collector/doc.go", path, i+1, m)
			}
			if m := translated.FindStringSubmatch(line); m != nil && !strings.EqualFold(m[1], "there ") && m[2] != "longer" && m[2] != "more" && m[2] != "one" {
				t.Errorf("%s:%d: %q: write %q", path, i+1, m[0], fmt.Sprintf("%sis not a %s", m[1], m[2]))
			}
		}
	})
}
