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

// sources calls yield with every Go file of the program, without tests and test support.
func sources(t *testing.T, yield func(path string, file *ast.File)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			support := strings.HasSuffix(name, "test") || name == "lettasim" || name == "live" || name == "gen" || name == "failpoint"
			if path != root && (strings.HasPrefix(name, ".") || name == "testdata" || support) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		yield(filepath.ToSlash(rel), file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
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

func add(all []text, dir, in, value string) []text {
	if !sentence.MatchString(value) || strings.Contains(value, `{"`) || strings.HasPrefix(value, "^") {
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
	sources(t, func(path string, file *ast.File) {
		dir, _ := strings.CutSuffix(path, "/"+filepath.Base(path))
		all = append(all, texts(dir, file)...)
	})
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
