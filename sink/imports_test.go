package sink_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestOneFileImportsArrow tests that only arrow.go imports arrow/go.
func TestOneFileImportsArrow(t *testing.T) {
	t.Parallel()
	var owners []string
	err := fs.WalkDir(os.DirFS(".."), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != "." {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), "../"+path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return strings.HasPrefix(i.Path.Value, `"github.com/apache/arrow/`) }) {
			owners = append(owners, path)
		}
		return nil
	})
	if err != nil || len(owners) != 1 || owners[0] != "sink/arrow.go" {
		t.Errorf("arrow/go is imported by %q, want sink/arrow.go alone (%v)", owners, err)
	}
}

// TestImports tests that the sink does not depend on the sources of samples.
func TestImports(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Skipf("go list: %v", err) // the test binary runs without the go command
	}
	for dep := range strings.FieldsSeq(string(out)) {
		if rest, ok := strings.CutPrefix(dep, "github.com/rollout-rl/rollout/"); ok && !strings.HasPrefix(rest, "sink") && rest != "tokenize" && rest != "tokenize/enum" && rest != "tokenize/strictjson" && rest != "tokenize/internal/textview" {
			t.Errorf("sink depends on %s", dep)
		}
	}
}
