package main

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// repository is the root of the repository.
var repository = filepath.Join("..", "..")

// pages returns the documentation pages, from testdata/pages.txt. The tests of the Python package
// read the same list.
func pages(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "pages.txt"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(b))
}

// page returns the text of a page.
func page(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(repository, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A fence is a code block of a page.
type fence struct {
	language string
	lines    []string
}

// fences returns the code blocks of a page.
func fences(t *testing.T, name string) []fence {
	t.Helper()
	var all []fence
	open := false
	for line := range strings.Lines(page(t, name)) {
		line = strings.TrimRight(line, "\n")
		switch language, mark := strings.CutPrefix(line, "```"); {
		case mark && open && language != "":
			t.Fatalf("%s: %q opens a block inside a block", name, line)
		case mark && open:
			open = false
		case mark:
			open = true
			all = append(all, fence{language: language})
		case open:
			last := &all[len(all)-1]
			last.lines = append(last.lines, line)
		}
	}
	if open {
		t.Fatalf("%s: the last block is not closed", name)
	}
	return all
}

// runners maps the language of a code block to the test that runs it.
var runners = map[string]string{
	"sh":     "TestDocumentedCommands",
	"text":   "TestDocumentedCommands compares it with the output of the block before it",
	"python": "test_docs.py",
	"py":     "a test of its own, see fragments",
	"":       "none: the block contains no program",
}

// fragments maps the first lines of blocks that are not whole programs to the tests that run them.
var fragments = map[string]string{
	"import json":           "TestThoughtsAreNotScored, as a scorer",
	"def logprobs_of(ids):": "test_toy.py",
}

// command matches a line that a block without a language must not contain.
var command = regexp.MustCompile(`^\$? *(rollout|make|pip|docker|go|python3?|import|from|curl) `)

// Every page is in the list, and a test runs every code block of every page.
func TestEveryBlockOfEveryPageRuns(t *testing.T) {
	t.Parallel()
	var found []string
	err := filepath.WalkDir(repository, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if _, err := os.Stat(filepath.Join(file, "_commits")); err == nil { // a run's folder has a card
				return filepath.SkipDir
			}
			if name := d.Name(); len(name) > 2 && strings.HasPrefix(name, ".") || name == "testdata" || name == "dist" {
				return filepath.SkipDir
			}
		} else if strings.HasSuffix(file, ".md") {
			name, err := filepath.Rel(repository, file)
			found = append(found, filepath.ToSlash(name))
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	listed := pages(t)
	slices.Sort(listed)
	slices.Sort(found)
	if !slices.Equal(listed, found) {
		t.Errorf("testdata/pages.txt lists %q, the repository has %q", listed, found)
	}
	seen := 0
	for _, name := range listed {
		before := ""
		for _, f := range fences(t, name) {
			_, known := runners[f.language]
			switch {
			case !known:
				t.Errorf("%s: no test runs the blocks of %q", name, f.language)
			case len(f.lines) == 0:
				t.Errorf("%s: an empty block", name)
			case f.language == "text" && before != "sh":
				t.Errorf("%s: no test compares the output %q, because no block of sh is before it", name, f.lines[0])
			case f.language == "py" && fragments[f.lines[0]] == "":
				t.Errorf("%s: no test runs the fragment %q", name, f.lines[0])
			case f.language == "py":
				seen++
			case f.language == "" && slices.ContainsFunc(f.lines, command.MatchString):
				t.Errorf("%s: no test runs the block %q, because it has no language", name, f.lines[0])
			}
			before = f.language
		}
		if m := regexp.MustCompile(`\n\n {4}\S.*`).FindString(outside(page(t, name))); m != "" {
			t.Errorf("%s: no test runs %q: use a fence", name, strings.TrimSpace(m))
		}
	}
	if seen != len(fragments) {
		t.Errorf("the pages have %d fragments, want %d", seen, len(fragments))
	}
}

// outside returns a page without its code blocks.
func outside(text string) string {
	return regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(text, "")
}

// Every link of a page leads to a file of the repository, and to a heading if it names one.
func TestLinksOfPages(t *testing.T) {
	t.Parallel()
	links := 0
	for _, name := range pages(t) {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(outside(page(t, name)), -1) {
			target, heading, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			links++
			if target == "" {
				target = name
			} else {
				target = path.Join(path.Dir(name), target)
			}
			if _, err := os.Stat(filepath.Join(repository, filepath.FromSlash(target))); err != nil {
				t.Errorf("%s: the link %q: %v", name, m[1], err)
			} else if heading != "" && !slices.Contains(anchors(page(t, target)), heading) {
				t.Errorf("%s: the link %q: %s has no such heading", name, m[1], target)
			}
		}
	}
	if links < 30 {
		t.Errorf("%d links were found: where are the others?", links)
	}
}

// Every page that a message names is in the repository, and has the section that it names.
func TestPagesOfMessages(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join("internal", "words", "testdata", "messages.txt"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`(?:(A [a-z ]+), in )?\b([a-z]+/[a-z/]*README\.md)`).FindAllStringSubmatch(string(b), -1)
	for _, m := range named {
		if text := page(t, m[2]); m[1] != "" && !strings.Contains(text, "\n## "+m[1]+"\n") {
			t.Errorf("%s has no section %q, which a message names", m[2], m[1])
		}
	}
	if len(named) < 3 {
		t.Errorf("%d messages name pages: where are the others?", len(named))
	}
}

// anchors returns the names that GitHub gives to the headings of a page.
func anchors(text string) []string {
	var all []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(outside(text), -1) {
		all = append(all, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, m[1]))
	}
	return all
}

// A new user reads the README in a few minutes, and the changelog at a glance.
func TestPagesAreShort(t *testing.T) {
	t.Parallel()
	if n := len(strings.Fields(page(t, "README.md"))); n > 1500 {
		t.Errorf("README.md has %d words, want at most 1,500: move details to the page of their folder", n)
	}
	if n := strings.Count(page(t, "CHANGELOG.md"), "\n"); n > 60 {
		t.Errorf("CHANGELOG.md has %d lines, want at most 60", n)
	}
}
