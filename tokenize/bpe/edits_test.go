package bpe_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

var edits = flag.Int("edits", 4000, "edited files to compare with the reference engine")

// TestPeerEdits edits small files at random: it replaces a value, or renames, duplicates, drops or
// invents a name. It checks that Parse rejects what the reference engine rejects, and that files
// accepted by both give the same ids. Parse can reject more.
func TestPeerEdits(t *testing.T) {
	python(t)
	t.Parallel()
	t.Logf("go test ./tokenize/bpe -run TestPeerEdits -seed %d", *seed)
	rng := rand.New(rand.NewPCG(*seed, 900))
	files := append(smallFiles(), addedFile(), smallFile(map[string]any{
		"pre_tokenizer":  object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
		"post_processor": object{"type": "Sequence", "processors": []object{template("<s>", "<s>", 259, 259)}},
		"normalizer":     object{"type": "Sequence", "normalizers": []object{{"type": "NFC"}}},
	}), smallFile(map[string]any{"pre_tokenizer": object{"type": "Sequence", "pretokenizers": []object{
		{"type": "Digits", "individual_digits": true},
		{"type": "Split", "pattern": object{"String": "a"}, "behavior": "MergedWithPrevious", "invert": false},
		{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
	}}}), charFile(nil), charFile(map[string]any{ // like Gemma's
		"normalizer":    replacePart(" ", "▁"),
		"pre_tokenizer": object{"type": "Split", "pattern": object{"String": " "}, "behavior": "MergedWithPrevious", "invert": false},
		"decoder":       object{"type": "Sequence", "decoders": []object{replacePart("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"}}},
	}), charFile(map[string]any{
		"normalizer":    nil,
		"pre_tokenizer": object{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false},
		"decoder":       object{"type": "Sequence", "decoders": []object{{"type": "ByteFallback"}, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false}}},
	}))
	texts := []string{"abc ab<s>ab", "ca e\u0301 \u00e8<b>x <l> <r>  12", "ab a\nabca 日本 \u00e9"}
	cases, wholes := make([]smallCase, *edits), make([]string, *edits)
	for i := range cases {
		tree := parseTree(t, files[rng.IntN(len(files))])
		wholes[i] = tree.String()
		for range 1 + rng.IntN(2) {
			tree.edit(rng)
		}
		cases[i] = smallCase{File: []byte(tree.String()), Texts: texts, IDs: [][]int32{}}
	}

	var both, ours, theirs, bad int
	for i, want := range askCases(t, cases) {
		c, problem := &cases[i], ""
		switch {
		case c.err != nil && want.Error != "":
			both++
		case c.err != nil:
			ours++
		case want.Error != "":
			problem = "accepted here, refused by the reference engine"
		case slices.ContainsFunc(slices.Concat(want.IDs, want.Post), func(ids []int32) bool { return ids == nil }):
			problem = "accepted here, the reference engine panics"
		default:
			theirs++
			problem = c.compare(t, want)
		}
		if problem != "" {
			t.Errorf("%s: %s", problem, changed(string(c.File), wholes[i]))
			if bad++; bad > 10 {
				t.FailNow()
			}
		}
	}
	t.Logf("%d files: refused by both %d, by us alone %d, accepted by both %d", len(cases), both, ours, theirs)
}

// changed returns the part of file that differs from whole, with some context.
func changed(file, whole string) string {
	a, b := 0, 0
	for a < min(len(file), len(whole)) && file[a] == whole[a] {
		a++
	}
	for b < min(len(file), len(whole))-a && file[len(file)-1-b] == whole[len(whole)-1-b] {
		b++
	}
	return "…" + file[max(0, a-60):min(len(file), len(file)-b+40)] + "…"
}

// A tree is a JSON value whose objects keep their order and can have duplicate names.
type tree struct {
	open  byte     // '{', '[', or 0 for a scalar
	names []string // for objects, with quotes
	nodes []*tree
	text  string // for scalars
}

func parseTree(tb testing.TB, raw []byte) *tree {
	tb.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var parse func() *tree
	parse = func() *tree {
		tok, err := d.Token()
		if err != nil {
			tb.Fatal(err)
		}
		open, ok := tok.(json.Delim)
		if !ok {
			return &tree{text: string(marshal(tok))}
		}
		n := &tree{open: byte(open)}
		for d.More() {
			if open == '{' {
				name, err := d.Token()
				if err != nil {
					tb.Fatal(err)
				}
				n.names = append(n.names, string(marshal(name)))
			}
			n.nodes = append(n.nodes, parse())
		}
		if _, err := d.Token(); err != nil {
			tb.Fatal(err)
		}
		return n
	}
	return parse()
}

func (n *tree) String() string {
	if n.open == 0 {
		return n.text
	}
	var parts []string
	for i, c := range n.nodes {
		part := c.String()
		if n.open == '{' {
			part = n.names[i] + ":" + part
		}
		parts = append(parts, part)
	}
	return string(n.open) + strings.Join(parts, ",") + string(n.open+2)
}

// madeUp are values to put in place of others.
var madeUp = []string{
	"null", "true", "false", "0", "1", "-1", "1.5", "256", "259", "260", "4294967296", "1e2", "-0", "01", "1.", "x",
	`""`, `"a"`, `"x"`, `"1.0"`, `"2.0"`, `"BPE"`, `"NFC"`, `"ByteLevel"`, `"Isolated"`, `"a b"`, `"a  b"`, `"ab c"`, `" a"`, `"a "`, `"a"`, `"\ud800"`, `"\u0061"`,
	`[]`, `{}`, `["a","b"]`, `["a"]`, `["a","b","c"]`, `["","a"]`, `[1,2]`, `["a b"]`, `{"type":"NFC"}`, `{"type":"ByteLevel"}`, `[null]`, `"#version: 0.2"`,
}

var madeUpNames = []string{"type", "extra", "ignore_merges", "dropout", "unk_token", "id", "use_regex", "Type", "version", "padding", "a", "abc"}

// edit changes one position of n.
func (n *tree) edit(rng *rand.Rand) {
	for range 1 + rng.IntN(5) {
		if len(n.nodes) == 0 {
			break
		}
		if c := n.nodes[rng.IntN(len(n.nodes))]; c.open != 0 {
			n = c
		}
	}
	if len(n.nodes) == 0 {
		n.nodes = append(n.nodes, &tree{text: madeUp[rng.IntN(len(madeUp))]})
		n.names = append(n.names, `"type"`)
		return
	}
	i := rng.IntN(len(n.nodes))
	value := &tree{text: madeUp[rng.IntN(len(madeUp))]}
	add := func(name string, c *tree) {
		at := rng.IntN(len(n.nodes) + 1)
		n.nodes = slices.Insert(n.nodes, at, c)
		if n.open == '{' {
			n.names = slices.Insert(n.names, at, name)
		}
	}
	name := ""
	if n.open == '{' {
		name = n.names[i]
	}
	switch rng.IntN(8) {
	case 0, 1, 2: // another value
		n.nodes[i] = value
	case 3: // drop it
		n.nodes = slices.Delete(n.nodes, i, i+1)
		if n.open == '{' {
			n.names = slices.Delete(n.names, i, i+1)
		}
	case 4: // duplicate it
		add(name, n.nodes[i])
	case 5: // duplicate it with another value
		add(name, value)
	case 6: // change the case of a name
		if n.open == '{' {
			n.names[i] = [...]string{strings.ToUpper(name), strings.Replace(name, "_", "-", 1), `"` + strings.ToUpper(name[1:2]) + name[2:]}[rng.IntN(3)]
		}
	case 7: // add a name
		add(`"`+madeUpNames[rng.IntN(len(madeUpNames))]+`"`, value)
	}
}
