// Package words_test keeps a list of every text that a user can see, so that a change of one is
// reviewed with all of them.
package words_test

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite testdata/messages.txt")

var root = filepath.Join("..", "..", "..", "..")

// A text is one string of the sources.
type text struct {
	dir, in string // the package's folder, and the function or declaration
	value   string
}

// walk calls yield with every file of the repository that has one of the extensions, but not in hidden
// folders, in testdata, or in folders whose names match skip.
func walk(t *testing.T, extensions string, skip *regexp.Regexp, yield func(path string, raw []byte)) {
	t.Helper()
	files := os.DirFS(root)
	err := fs.WalkDir(files, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := d.Name(); {
		case d.IsDir() && file != "." && (strings.HasPrefix(name, ".") && name != ".ci" || name == "testdata" || skip.MatchString(name)):
			return fs.SkipDir
		case d.IsDir() || !slices.Contains(strings.Fields(extensions), path.Ext(name)):
			return nil
		}
		raw, err := fs.ReadFile(files, file)
		yield(file, raw)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// support matches the folders of test support.
var support = regexp.MustCompile(`test$|^(lettasim|live|gen|failpoint)$`)

// sources calls yield with every Go file of the program, without tests and test support.
func sources(t *testing.T, yield func(path string, raw []byte, file *ast.File)) {
	t.Helper()
	walk(t, ".go", support, func(path string, raw []byte) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, raw, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		yield(path, raw, file)
	})
}

// sentence matches texts that are words, not data: two words with a space between.
var sentence = regexp.MustCompile(`[a-z]{2}\S* +\S*[a-z]{2}|[a-z]{2}.*%[svdqw]|%[svdqw].*[a-z]{2}`)

// texts returns every string of a file that a user can read. Concatenated strings are one text,
// with … for parts that are not constant.
func texts(dir string, file *ast.File) []text {
	var all []text
	for _, d := range file.Decls {
		in := "-"
		if f, ok := d.(*ast.FuncDecl); ok {
			in = f.Name.Name
			if f.Recv != nil {
				in = receiver(f.Recv.List[0].Type) + "." + in
			}
		}
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ImportSpec, *ast.Field:
				if f, ok := n.(*ast.Field); ok {
					f.Tag = nil
				}
				return true
			case *ast.CallExpr:
				return !isPattern(n)
			case *ast.BinaryExpr:
				if value, ok := joined(n); ok {
					all = add(all, dir, in, value)
					return false
				}
			case *ast.BasicLit:
				if n.Kind == token.STRING {
					all = add(all, dir, in, unquoted(n))
				}
			}
			return true
		})
	}
	return all
}

// add adds a text if it can be a message. A text with a zero byte is a part of a hash.
func add(all []text, dir, in, value string) []text {
	if strings.Contains(value, "\x00") || !sentence.MatchString(value) || strings.Contains(value, `{"`) || strings.HasPrefix(value, "^") {
		return all
	}
	return append(all, text{dir, in, value})
}

// isPattern reports whether a call compiles a regular expression.
func isPattern(c *ast.CallExpr) bool {
	s, ok := c.Fun.(*ast.SelectorExpr)
	return ok && (s.Sel.Name == "MustCompile" || s.Sel.Name == "Compile")
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}

// joined returns the value of concatenated strings, if one of them is constant.
func joined(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return joined(e.X)
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			return unquoted(e), true
		}
	case *ast.BinaryExpr:
		if e.Op != token.ADD {
			return "", false
		}
		a, constA := joined(e.X)
		b, constB := joined(e.Y)
		if !constA && !constB {
			return "", false
		}
		if !constA {
			a = "…"
		}
		if !constB {
			b = "…"
		}
		return a + b, true
	}
	return "", false
}

func unquoted(lit *ast.BasicLit) string {
	s, err := strconv.Unquote(lit.Value)
	if err != nil {
		return lit.Value
	}
	return s
}

// messages returns every text that a user can see.
func messages(t *testing.T) (all []text) {
	t.Helper()
	sources(t, func(file string, _ []byte, tree *ast.File) { all = append(all, texts(path.Dir(file), tree)...) })
	return all
}

// TestMessages compares the list with testdata/messages.txt. After a change of a message, run it
// with -update and read the whole list: one voice; what is wrong, where, and what to do.
func TestMessages(t *testing.T) {
	t.Parallel()
	all := messages(t)
	slices.SortStableFunc(all, func(a, b text) int {
		return cmp.Or(cmp.Compare(a.dir, b.dir), cmp.Compare(a.in, b.in), cmp.Compare(a.value, b.value))
	})
	all = slices.Compact(all)
	var out strings.Builder
	dir := ""
	for _, x := range all {
		if x.dir != dir {
			dir = x.dir
			fmt.Fprintf(&out, "\n== %s\n", dir)
		}
		fmt.Fprintf(&out, "%s: %s\n", x.in, strings.ReplaceAll(x.value, "\n", "\n    "))
	}
	golden := filepath.Join("testdata", "messages.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(out.String()), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != string(want) {
		t.Errorf("the messages have changed: read the whole list after go test ./cmd/rollout/internal/words -update\n%s", difference(string(want), got))
	}
}

func difference(want, got string) string {
	count := map[string]int{}
	for line := range strings.Lines(want) {
		count[line]--
	}
	for line := range strings.Lines(got) {
		count[line]++
	}
	var out []string
	for line, n := range count {
		if n != 0 {
			out = append(out, map[bool]string{true: "+ ", false: "- "}[n > 0]+line)
		}
	}
	slices.Sort(out)
	return strings.Join(out, "")
}

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
	walk(t, ".go .py .md .sh", regexp.MustCompile(`^(dist|run)$`), func(path string, raw []byte) {
		if strings.HasSuffix(path, ".go") {
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, raw, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range file.Comments {
				check(set.Position(c.Pos()).String(), c.Text())
			}
		} else if !strings.Contains(path, "/tests/") {
			text := strings.ReplaceAll(code.ReplaceAllString(string(raw), ""), "\n# ", "\n")
			for paragraph := range strings.SplitSeq(text, "\n\n") {
				check(path, paragraph)
			}
		}
	})
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
	sources(t, func(path string, raw []byte, _ *ast.File) {
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
