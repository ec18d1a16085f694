package collector_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestMapsNameFilesThatExist(t *testing.T) {
	t.Parallel()
	const root = ".."
	there, docs := map[string]bool{}, []string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root {
			return fs.SkipDir
		}
		there[d.Name()] = true
		if d.Name() == "doc.go" && strings.HasPrefix(path, filepath.Join(root, "collector")) {
			docs = append(docs, path)
		}
		return nil
	})
	if err != nil || len(docs) < 8 {
		t.Fatalf("%d package comments: %v", len(docs), err)
	}
	names := regexp.MustCompile(`[\w*]+\.go\b`)
	for _, doc := range docs {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names.FindAllString(string(text), -1) {
			if !there[name] && !strings.Contains(name, "*") && name != "from_X.go" {
				t.Errorf("%s mentions %s, which does not exist", doc, name)
			}
		}
	}
}
