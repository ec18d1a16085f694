package licenses_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/licenses"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/view/web"
)

var update = flag.Bool("update", false, "write licenses.txt anew")

// A module is a module that the binary links.
type module struct {
	path, version, dir string
	folders            map[string]bool // of the linked packages, and their parents
}

func linked(t *testing.T) []*module {
	t.Helper()
	all := map[string]*module{}
	for _, system := range []string{"linux", "darwin", "windows"} {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Version}}\t{{.Dir}}\t{{$.Dir}}{{end}}{{end}}", "github.com/rollout-rl/rollout/cmd/rollout")
		cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH=amd64", "CGO_ENABLED=0")
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		for line := range strings.Lines(string(out)) {
			f := strings.Split(strings.TrimSpace(line), "\t")
			if len(f) != 4 {
				continue
			}
			m := all[f[0]]
			if m == nil {
				m = &module{path: f[0], version: f[1], dir: f[2], folders: map[string]bool{}}
				all[f[0]] = m
			}
			for dir := f[3]; len(dir) >= len(m.dir); dir = filepath.Dir(dir) {
				m.folders[dir] = true
			}
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *module) int { return cmp.Compare(a.path, b.path) })
}

var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-._].*)?$`)

func (m *module) texts(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for dir := range m.folders {
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if f.IsDir() || !licenceFile.MatchString(f.Name()) || strings.HasSuffix(f.Name(), ".go") {
				continue
			}
			b, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err != nil {
				t.Fatal(err)
			}
			name, _ := filepath.Rel(m.dir, filepath.Join(dir, f.Name()))
			out[filepath.ToSlash(name)] = string(b)
		}
	}
	return out
}

// Licenses that are allowed, each with words that only its text has.
var allowed = []struct{ name, words string }{
	{"Apache-2.0", "apache license version 2 0"},
	{"MIT", "permission is hereby granted free of charge to any person obtaining a copy"},
	{"BSD", "redistribution and use in source and binary forms with or without modification are permitted"},
	{"ISC", "permission to use copy modify and or distribute this software for any purpose"},
	{"ISC", "permission to use copy modify and distribute this software for any purpose"},
	{"Zlib", "altered source versions must be plainly marked as such"},
	{"MPL-2.0", "mozilla public license version 2 0"},
}

// Words of licenses that are not allowed.
var refused = []string{
	"general public license", "lesser general", "gnu gpl", "affero", "creative commons", "attribution 4 0", "freetype project license", "the freetype",
	"server side public", "business source", "commons clause", "eclipse public", "common development and distribution", "european union public", "boost software",
	"all rights reserved no part", "non commercial",
}

// reviewed lists texts that name a refused license but were read: the code that they cover is not
// in the binary.
var reviewed = map[string]string{
	"github.com/apache/arrow/go/v17 LICENSE.txt": "a list for all of Arrow's languages; what it names beside Apache-2.0, MIT and BSD is of C++, Python and R code",
}

// classify returns the licenses of a text, and the refused words in it.
func classify(text string) (names, against []string) {
	words := strings.Join(strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }), " ")
	for _, l := range allowed {
		if strings.Contains(words, l.words) && !slices.Contains(names, l.name) {
			names = append(names, l.name)
		}
	}
	for _, w := range refused {
		if strings.Contains(words, w) {
			against = append(against, w)
		}
	}
	return names, against
}

// Every linked module and every library of the page has an allowed license, and licenses.txt contains
// exactly these.
func TestLicenses(t *testing.T) {
	t.Parallel()
	goroot, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := linked(t)
	root := strings.TrimSpace(string(goroot))
	modules = append(modules, &module{path: "Go's standard library", dir: root, folders: map[string]bool{root: true}})
	var out strings.Builder
	out.WriteString("The licences of what rollout is built from. Its own is Apache-2.0.\n")
	first := map[string]string{} // module with the same text
	for _, m := range modules {
		texts := m.texts(t)
		found := map[string]bool{}
		fmt.Fprintf(&out, "\n%s\n%s %s\n", strings.Repeat("=", 80), m.path, m.version)
		for _, name := range slices.Sorted(maps.Keys(texts)) {
			names, against := classify(texts[name])
			for _, l := range names {
				found[l] = true
			}
			if len(against) > 0 && reviewed[m.path+" "+name] == "" {
				t.Errorf("%s %s: %s has the words %q, which speak of a licence that is not allowed", m.path, m.version, name, against)
			}
			text := strings.TrimSpace(strings.ReplaceAll(texts[name], "\r\n", "\n"))
			if same := first[text]; same != "" {
				fmt.Fprintf(&out, "\n--- %s: the same text as %s\n", name, same)
				continue
			}
			first[text] = m.path + " " + name
			fmt.Fprintf(&out, "\n--- %s\n%s\n", name, text)
		}
		if len(found) == 0 {
			t.Errorf("%s %s: no licence that is allowed in %v", m.path, m.version, slices.Sorted(maps.Keys(texts)))
		}
		t.Logf("%s %s: %s", m.path, m.version, strings.Join(slices.Sorted(maps.Keys(found)), ", "))
	}
	out.WriteString("\n" + web.Licenses) // of the libraries in the page
	for part := range strings.SplitSeq(web.Licenses, strings.Repeat("=", 80)+"\n") {
		name, text, _ := strings.Cut(part, "\n")
		if names, against := classify(text); name != "" && (len(names) == 0 || len(against) > 0) {
			t.Errorf("%s: licences %q, refused words %q", name, names, against)
		}
	}
	if *update {
		if err := os.WriteFile("licenses.txt", []byte(out.String()), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	if licenses.Text != out.String() {
		t.Error("licenses.txt does not match the modules in go.mod: run make licenses")
	}
}

// classify finds licenses that are not allowed.
func TestClassify(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, want string }{
		{"                                 Apache License\n                           Version 2.0, January 2004", "[Apache-2.0] []"},
		{"Permission is hereby granted, free of charge, to any person obtaining\na copy", "[MIT] []"},
		{"// Redistribution and use in source and binary forms, with or without\n// modification, are permitted", "[BSD] []"},
		{"Permission to use, copy, modify, and/or distribute this software for any\npurpose", "[ISC] []"},
		{"Mozilla Public License Version 2.0", "[MPL-2.0] []"},
		{"Use of the Freetype-Go software is subject to your choice of exactly one of\nthe following two licenses:\n  * The FreeType License\n  * The GNU General Public License (GPL), version 2 or later", "[] [\"general public license\" \"the freetype\"]"},
		{"Creative Commons Attribution 4.0 International Public License", "[] [\"creative commons\" \"attribution 4 0\"]"},
		{"GNU LESSER GENERAL PUBLIC LICENSE", "[] [\"general public license\" \"lesser general\"]"},
		{"Do what you want.", "[] []"},
	} {
		names, against := classify(tt.text)
		if got := fmt.Sprintf("%v %q", names, against); got != tt.want {
			t.Errorf("%.40q is %s, want %s", tt.text, got, tt.want)
		}
	}
}
