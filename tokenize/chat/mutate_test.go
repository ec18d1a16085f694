package chat_test

import (
	"flag"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/tokenize/chat"
)

var mutated = flag.Int("mutated", 300, "mutated templates to compare")

// A mutator changes real templates: it drops, doubles and swaps words of tags, inserts pieces of
// other templates, and wraps pieces in loops, macros and blocks.
type mutator struct {
	templateGen
	pool  [][]string // the pieces of each template
	names []string
}

// pieceOf splits a template into text and tags, tokenOf splits a tag into words.
var (
	pieceOf = regexp.MustCompile(`(?s)\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}|[^{]+|\{`)
	tokenOf = regexp.MustCompile(`(?s)"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[A-Za-z_]\w*|\d+(?:\.\d+)?|\*\*|//|==|!=|<=|>=|\s+|.`)
	tagName = regexp.MustCompile(`^\{%[-+]?\s*(\w+)`)
	nameRE  = regexp.MustCompile(`^[A-Za-z_]`)
)

func newMutator(t *testing.T) *mutator {
	t.Helper()
	m := &mutator{templateGen: templateGen{conversationGen{Rand: source(t)}}}
	srcs := templates(t)
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(srcs)) {
		m.pool = append(m.pool, pieceOf.FindAllString(srcs[name], -1))
		for _, tok := range tokenOf.FindAllString(srcs[name], -1) {
			if nameRE.MatchString(tok) && !seen[tok] && len(tok) < 30 {
				seen[tok] = true
				m.names = append(m.names, tok)
			}
		}
	}
	return m
}

func isTag(piece string) bool {
	return len(piece) >= 4 && piece[0] == '{' && (piece[1] == '{' || piece[1] == '%')
}

// inside splits a tag into its start mark, its words and its end mark.
func inside(piece string) (open string, words []string, end string) {
	i, j := 2, len(piece)-2
	if strings.IndexByte("-+", piece[i]) >= 0 && i+1 < j {
		i++
	}
	if j > i && strings.IndexByte("-+", piece[j-1]) >= 0 {
		j--
	}
	return piece[:i], tokenOf.FindAllString(piece[i:j], -1), piece[j:]
}

func (m *mutator) template() string {
	p := slices.Clone(pick(m.Rand, m.pool...))
	if m.one(3) { // only a part
		if i, j, ok := m.balanced(p); ok {
			p = slices.Clone(p[i:j])
		}
	}
	for range 1 + m.IntN(3) {
		p = m.mutate(p)
	}
	return strings.Join(p, "")
}

func (m *mutator) mutate(p []string) []string {
	if len(p) == 0 {
		return []string{m.statement(2)}
	}
	i := m.tag(p)
	switch m.IntN(10) {
	case 0, 1, 2, 3, 4:
		if isTag(p[i]) {
			p[i] = m.words(p[i])
		}
	case 5:
		other := pick(m.Rand, m.pool...)
		if piece := other[m.tag(other)]; isTag(piece) && isTag(p[i]) && piece[1] == p[i][1] {
			p[i] = piece
		}
	case 6:
		if i, j, ok := m.balanced(p); ok {
			return m.wrap(p, i, j)
		}
	case 7:
		other := pick(m.Rand, m.pool...)
		if a, b, ok := m.balanced(other); ok {
			return slices.Insert(p, m.IntN(len(p)+1), other[a:b]...)
		}
	case 8:
		if i, j, ok := m.balanced(p); ok {
			if m.one(2) {
				return slices.Delete(p, i, j)
			}
			return slices.Insert(p, j, slices.Clone(p[i:j])...)
		}
	case 9:
		return slices.Insert(p, m.IntN(len(p)+1), m.statement(2))
	}
	return p
}

func (m *mutator) tag(p []string) int {
	i := m.IntN(len(p))
	for range p {
		if isTag(p[i]) {
			return i
		}
		i = (i + 1) % len(p)
	}
	return i
}

var operators = []string{"+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", ">", "<=", ">=", "in", "not in", "and", "or", "is", "|", ".", ",", "(", ")", "[", "]", ":", "="}

func (m *mutator) words(piece string) string {
	open, w, end := inside(piece)
	if len(w) == 0 {
		return piece
	}
	i := m.IntN(len(w))
	for range w { // prefer a word that is not white space
		if strings.TrimSpace(w[i]) != "" {
			break
		}
		i = (i + 1) % len(w)
	}
	switch m.IntN(12) {
	case 0:
		w = slices.Delete(w, i, i+1)
	case 1:
		w = slices.Insert(w, i, w[i], " ")
	case 2:
		j := m.IntN(len(w))
		w[i], w[j] = w[j], w[i]
	case 3:
		open, end = strings.TrimRight(open, "-+")+pick(m.Rand, "", "-", "+"), pick(m.Rand, "", "-", "+")+strings.TrimLeft(end, "-+")
		if open[1] == '{' || end[len(end)-1] == '}' && len(end) > 2 && end[len(end)-2] == '}' { // here + is an operator
			open, end = strings.TrimSuffix(open, "+"), strings.TrimPrefix(end, "+")
		}
	case 4:
		w = slices.Insert(w, i+1, "|"+m.filter())
	case 5:
		w = slices.Insert(w, i+1, pick(m.Rand, "[0]", "[-1]", "[1:]", "[:1]", "['content']", ".content", "|length", " is defined", " is string", " is not none", "|trim", ".strip()", "|tojson", " ~ 'x'", " + 1", ".split('\\n')", "[::-1]", ".items()", "()"))
	default:
		switch {
		case w[i][0] == '\'' || w[i][0] == '"' || w[i][0] >= '0' && w[i][0] <= '9':
			w[i] = m.literal()
		case slices.Contains(operators, w[i]):
			w[i] = pick(m.Rand, operators...)
			if nameRE.MatchString(w[i]) {
				w[i] = " " + w[i] + " "
			}
		case m.one(4):
			w[i] = "(" + m.expr(1) + ")"
		default:
			w[i] = pick(m.Rand, m.names...)
		}
	}
	return open + strings.Join(w, "") + end
}

// depth returns the change of the block depth at a tag.
func depth(piece string) int {
	name := tagName.FindStringSubmatch(piece)
	if name == nil {
		return 0
	}
	switch name[1] {
	case "for", "if", "macro", "filter", "generation", "with", "raw":
		return 1
	case "set":
		if !strings.Contains(piece, "=") {
			return 1
		}
	case "endfor", "endif", "endmacro", "endfilter", "endgeneration", "endwith", "endset", "endraw":
		return -1
	}
	return 0
}

// balanced returns a range of pieces that contains only whole blocks.
func (m *mutator) balanced(p []string) (i, j int, ok bool) {
	if len(p) == 0 {
		return 0, 0, false
	}
	i = m.IntN(len(p))
	level, most := 0, 1+m.IntN(40)
	for k := i; k < len(p); k++ {
		level += depth(p[k])
		if level < 0 || level == 0 && tagName.MatchString(p[k]) && strings.Contains(p[k], "el") && depth(p[k]) == 0 && !strings.Contains(p[k], "set") {
			break
		}
		if level == 0 {
			j, ok = k+1, true
			if k-i >= most {
				break
			}
		}
	}
	return i, j, ok
}

func (m *mutator) wrap(p []string, i, j int) []string {
	w := pick(m.Rand, [2]string{"{% for q in [1, 2] %}", "{% endfor %}"}, [2]string{"{% for message in messages %}", "{% endfor %}"}, [2]string{"{% macro mm(message, content='C') %}", "{% endmacro %}{{ mm(messages[0]) }}"},
		[2]string{"{% set zz %}", "{% endset %}{{ zz }}"}, [2]string{"{% set content = 'new' %}{% if messages %}", "{% endif %}"}, [2]string{"{% filter upper %}", "{% endfilter %}"}, [2]string{"{% with content = 'W' %}", "{% endwith %}{{ content }}"},
		[2]string{"{%- if loop is defined and loop.first -%}", "{%- else -%}E{%- endif -%}"},
		[2]string{"{% generation %}", "{% endgeneration %}"})
	return slices.Concat(p[:i:i], []string{w[0]}, p[i:j:j], []string{w[1]}, p[j:])
}

// TestMutatedAgainstPython compares mutated templates with Python, each with two conversations.
func TestMutatedAgainstPython(t *testing.T) {
	t.Parallel()
	m := newMutator(t)
	var c comparison
	for left := *mutated; left > 0; left -= 2000 {
		var requests []request
		for range min(left, 2000) {
			src := m.template()
			for range 3 { // most templates with syntax errors show little
				if _, err := chat.Parse("mutated", src, testOptions()); err == nil || m.one(4) {
					break
				}
				src = m.template()
			}
			for range 2 {
				requests = append(requests, request{Src: &src, Vars: []byte(m.variables())})
			}
		}
		c.run(t, nil, requests)
	}
	t.Logf("%d mutated templates: %s", *mutated, &c)
	if c.texts < c.renders/6 {
		t.Errorf("only %d of %d renders have output", c.texts, c.renders)
	}
}
