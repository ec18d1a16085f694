package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/input"
)

// File strictly reads a YAML file. It adds unknown or repeated keys to l.Bad.
func (l *Loader) File(path string) error {
	b, err := input.Read(path, input.MaxConfig, input.Wait)
	if err != nil {
		return exit.Hint(exit.Usagef("configuration: %w", err), "use -c with the path of a YAML file")
	}
	dec := yaml.NewDecoder(bytes.NewReader(b))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil // an empty file does not set anything
		}
		l.notYAML(path, b, strings.TrimPrefix(err.Error(), "yaml: "))
		return nil
	}
	if values := countNodes(&doc, 0, 0); values > maxConfigNodes {
		l.complain(path, "expands to more than %d values through aliases", maxConfigNodes)
		return nil
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		l.complain(path, "more than one YAML document")
		return nil
	}
	l.mapping(path, "", doc.Content[0])
	return nil
}

// notYAML reports a YAML syntax error. The parameter said is the message from the YAML decoder.
func (l *Loader) notYAML(path string, text []byte, said string) {
	var line int
	if n, _ := fmt.Sscanf(said, "line %d:", &line); n == 0 {
		l.complain(path, "%s", said)
		return
	}
	_, said, _ = strings.Cut(said, ": ")
	if lines := strings.Split(string(text), "\n"); line >= 1 && line <= len(lines) && strings.HasPrefix(strings.TrimLeft(lines[line-1], " "), "\t") {
		said = "the line begins with a tab; indent YAML with spaces"
	}
	l.complain(fmt.Sprintf("%s:%d", path, line), "%s", said)
}

// maxConfigNodes is the maximum number of YAML nodes in a file after its aliases are expanded.
const maxConfigNodes = 100_000

// countNodes returns seen plus the number of nodes in n, with aliases expanded. It stops if the
// total exceeds maxConfigNodes or if the nesting is too deep for jsonOf.
func countNodes(n *yaml.Node, seen, depth int) int {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	seen++
	for _, e := range n.Content {
		if seen > maxConfigNodes || depth > 2*maxNesting {
			break
		}
		seen = countNodes(e, seen, depth+1)
	}
	return seen
}

// mapping reads one level of the file. The parameter prefix is "" or a section such as "server.".
func (l *Loader) mapping(path, prefix string, n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return // "server:" without a value
	}
	if n.Kind != yaml.MappingNode {
		l.complain(place(path, n), "%s must be a mapping of keys to values", orTop(prefix))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		full := prefix + key.Value
		if line, ok := seen[full]; ok {
			l.complain(place(path, key), "%s: duplicate key, first on line %d", full, line)
			continue
		}
		seen[full] = key.Line
		switch s := l.ByKey[full]; {
		case s != nil:
			l.value(path, s, value)
		case prefix == "" && l.ByKey[full+".urls"] != nil && value.Kind == yaml.SequenceNode:
			l.value(path, l.ByKey[full+".urls"], value) // "engine: [URL]" is short for "engine: {urls: [URL]}"
		case prefix == "" && l.isSection(full):
			l.mapping(path, full+".", value)
		default:
			l.unknown(place(path, key), prefix, full)
		}
	}
}

func (l *Loader) value(path string, s *Setting, n *yaml.Node) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	at := place(path, n)
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return // a key without a value keeps the default
	case n.Kind == yaml.ScalarNode:
		l.Put(s, at, n.Value)
	case n.Kind == yaml.SequenceNode && s.reset != nil && s.node != yaml.SequenceNode:
		var texts []string
		for _, e := range n.Content {
			if e.Kind != yaml.ScalarNode {
				l.complain(place(path, e), "%s: must be a list of strings", s.Key)
				return
			}
			texts = append(texts, e.Value)
		}
		l.Put(s, at, texts...)
	case s.object != nil && n.Kind == s.node:
		raw, err := jsonOf(n, s.texts)
		if err == nil && !s.texts {
			err = unambiguous(raw)
		}
		if err == nil {
			err = s.object(raw)
		}
		if err != nil {
			l.complain(at, "%s: %v", s.Key, err)
			return
		}
		s.Origin = at
	default:
		l.complain(at, "%s: must be %s", s.Key, s.shape())
	}
}

func (l *Loader) unknown(at, prefix, full string) {
	s, override := l.ofForeign(full)
	switch near := l.nearest(prefix, full); {
	case s != nil:
		l.complain(at, "%s: unknown key; did you mean %s?", full, s.Key)
	case override != "":
		l.complain(at, "%s: unknown key; %s", full, overrideHint(override))
	case near != "":
		l.complain(at, "%s: unknown key; did you mean %s?", full, near)
	default:
		l.complain(at, "%s: unknown key", full)
	}
}

// nearest returns the key that the user probably meant, or "". It also finds a key whose name is
// right but whose section is wrong.
func (l *Loader) nearest(prefix, full string) (near string) {
	var names []string
	for _, s := range l.Settings {
		if name, same := strings.CutPrefix(s.Key, prefix); same {
			names = append(names, name)
		}
		if section, _, _ := strings.Cut(s.Key, "."); prefix == "" {
			names = append(names, section)
		}
	}
	if near := format.Nearest(strings.TrimPrefix(full, prefix), names); near != "" {
		return prefix + near
	}
	name := "." + full[strings.LastIndexByte(full, '.')+1:]
	for _, s := range l.Settings {
		if strings.HasSuffix(s.Key, name) {
			near = s.Key
		}
	}
	return near
}

func (l *Loader) isSection(name string) bool {
	return slices.ContainsFunc(l.Settings, func(s *Setting) bool { return strings.HasPrefix(s.Key, name+".") })
}

func place(path string, n *yaml.Node) string { return fmt.Sprintf("%s:%d", path, n.Line) }

func orTop(prefix string) string {
	if prefix == "" {
		return "the file"
	}
	return strings.TrimSuffix(prefix, ".")
}

// shape describes the kind of value that a setting accepts in the file.
func (s *Setting) shape() string {
	switch {
	case s.node == yaml.SequenceNode && s.reset != nil:
		return "a list of URLs, or of mappings with a url"
	case s.node == yaml.MappingNode:
		return "a mapping"
	case s.node == yaml.SequenceNode:
		return "a list of mappings"
	case s.reset != nil:
		return "a list of strings"
	default:
		return "a single value"
	}
}
