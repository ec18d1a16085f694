package words_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// plain has phrases that read as translated, and what to write. A phrase is in the list only if
// correct English hardly needs it.
var plain = []struct {
	phrase *regexp.Regexp
	write  string
}{
	{regexp.MustCompile(`(?i)\b(anew|whence|thereof|thereby|therein|thereto|wherein|whereof|whereupon|hitherto|hereof|upon|shall|hence)\b`), "a modern word: again, from where, so, must"},
	{regexp.MustCompile(`(?i)\b(nobody|somebody|whoever)\b`), "who it is: no caller, the user, another process"},
	{regexp.MustCompile(`(?i)\b(that|those|the ones?) of\b`), "the noun again"},
	{regexp.MustCompile(`[^.](goes|go|went) on\b`), "continue"},
	{regexp.MustCompile(`\btr(ied|ies) again\b`), "retry"},
	{regexp.MustCompile(`\bin the middle of \w+ing\b`), "while"},
	{regexp.MustCompile(`\b(lies|lie) (in|at|behind|beside|here|on|there)\b`), "is"},
	{regexp.MustCompile(`\bstands? (here|there|in (the|a|its)|behind|at|beside|once|in front)\b`), "is"},
	{regexp.MustCompile(`\bbears?\b`), "contains, has"},
	{regexp.MustCompile(`\b(reads?|gives?|given|gave) back\b`), "read, return, release"},
	{regexp.MustCompile(`\bmay not\b`), "must not, or might not"},
	{regexp.MustCompile(`\b(is|are|was|were|been|being) told\b`), "receive, get, is notified"},
	{regexp.MustCompile(`\btells? (whether|what|which|how|why|where|if|it|of|the|them)\b`), "report, return, print"},
	{regexp.MustCompile(`(^|[.:;] )Of (the|a|all|these|those|each|several|two|its)\b`), "the subject first"},
	{regexp.MustCompile(`(^|\. )What [^.?!]*\.`), "the noun in place of What"},
	{regexp.MustCompile(`\b(it|he|that|this|which|who|they|these) (is|are|was|were) no (\w+)\b`), "is not a"},
}

// correct matches phrases of the list that are correct English.
var correct = regexp.MustCompile(`\bno (longer|more|less|one|earlier|later)$|^nobody$`)

// code matches the lines of a script that build a text.
var code = regexp.MustCompile(`(?m)^.*\bf".*$`)

// TestPlainEnglish checks the comments of all Go files, the messages of the program, the sources of
// the Python package, and the pages for the phrases of plain.
func TestPlainEnglish(t *testing.T) {
	t.Parallel()
	checked := 0
	check := func(place, text string) {
		checked++
		text = strings.Join(strings.Fields(text), " ")
		for _, p := range plain {
			for _, at := range p.phrase.FindAllStringIndex(text, -1) {
				if !correct.MatchString(text[at[0]:at[1]]) {
					t.Errorf("%s: %q in %q: write %s", place, text[at[0]:at[1]], text[max(0, at[0]-60):min(len(text), at[1]+40)], p.write)
				}
			}
		}
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") && name != ".ci" || name == "testdata" || name == "dist" || name == "run") {
				return fs.SkipDir
			}
			return nil
		}
		place, _ := filepath.Rel(root, path) // path is below root
		switch filepath.Ext(name) {
		case ".go":
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
			if err != nil {
				return err
			}
			for _, c := range file.Comments {
				check(set.Position(c.Pos()).String(), c.Text())
			}
		case ".py", ".md", ".sh":
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if strings.Contains(place, "/tests/") {
				return nil
			}
			text := strings.ReplaceAll(code.ReplaceAllString(string(b), ""), "\n# ", "\n")
			for paragraph := range strings.SplitSeq(text, "\n\n") {
				check(place, paragraph)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, message := range messages(t) {
		check("message of "+message.dir+", "+message.in, message.value)
	}
	if checked < 10_000 {
		t.Errorf("%d texts were checked: where are the others?", checked)
	}
}

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
