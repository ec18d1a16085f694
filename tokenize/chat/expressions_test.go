package chat_test

import (
	"flag"
	"regexp"
	"strings"
	"testing"
)

// A templateGen generates random small templates, mostly without meaning: operators, filters,
// tests, slices, methods and statements, over a few variables of all kinds.
type templateGen struct{ conversationGen }

const templateVars = `{"s": "Hello, wörld  foo\nbar ", "t": "a,b,,c", "e": "", "n": 7, "z": 0, "m": -3, "f": 2.5, "g": -0.0, "big": 12345678901234567890123,
"b": true, "no": false, "nil": null, "l": [3, 1, 2], "el": [], "w": ["b", "A", "c", "a"], "mix": [1, "1", 1.0, true, null, [1]],
"d": {"b": 1, "a": [1, 2], "items": 5, "C": {"x": "y"}}, "ed": {}, "o": [{"k": "x", "v": 1, "p": {"q": 2}}, {"k": "Y", "v": 2.5, "p": {"q": 1}}, {"k": "x", "v": null}]}`

func (w *templateGen) name() string {
	return pick(w.Rand, "s", "t", "e", "n", "z", "m", "f", "g", "big", "b", "no", "nil", "l", "el", "w", "mix", "d", "ed", "o", "undef", "range(4)", "ns")
}

func (w *templateGen) literal() string {
	return pick(w.Rand, "0", "1", "2", "-1", "10", "1000", "3.0", "0.00000025", "10000000000000000.0", "'x'", "'a b'", `"it's"`, `'\n\t\x41\u00e9\q'`,
		"''", "'é🙂'", "'%s|%5d|%-4s|%.2f' ", "'<b>'", "true", "False", "none", "[]", "{}", "()", "[1, 'a']", "(1, 2)", "('a',)", "{'a': 1, 'b': 2}", "'abc' 'def'",
		"9223372036854775807", "{1: 'one', 1.0: 'eins', none: 0}", "[[1, 2], [3, 4]]", "'ß'", "'1_0'", "'٣'", "'İΣ Σ'", "'x-y_z 3d'")
}

func (w *templateGen) small() string {
	return pick(w.Rand, "0", "1", "2", "3", "-1", "-2", "5", "none", "n", "b", "'x'", "1.5", "undef")
}

func (w *templateGen) expr(depth int) string {
	if depth <= 0 {
		if w.one(2) {
			return w.name()
		}
		return w.literal()
	}
	sub := func() string { return w.expr(depth - 1 - w.IntN(2)) }
	paren := func() string {
		if w.one(3) {
			return sub()
		}
		return "(" + sub() + ")"
	}
	switch w.IntN(16) {
	case 0, 1:
		return paren() + " " + pick(w.Rand, "+", "-", "*", "/", "//", "~", "+", "~") + " " + paren()
	case 2:
		return pick(w.Rand, "n", "z", "m", "f", "g", "big", "b", "undef", "nil", "10", "2.5") + " % " + paren()
	case 3:
		op := func() string { return pick(w.Rand, " == ", " != ", " < ", " <= ", " > ", " >= ", " in ", " not in ") }
		return pick(w.Rand, paren()+op()+paren(), paren()+op()+paren()+op()+paren(), paren()+pick(w.Rand, " and ", " or ")+paren())
	case 4:
		return pick(w.Rand, "not ", "-", "+") + paren()
	case 5:
		return paren() + " if " + paren() + pick(w.Rand, " else "+paren(), "")
	case 6:
		return w.name() + "[" + pick(w.Rand, w.small(), w.small()+":", ":"+w.small(), w.small()+":"+w.small(), "::-1", ":", "'a'", "'k'", "'items'", "1.0") + "]"
	case 7:
		return pick(w.Rand, w.name(), paren()) + "." + pick(w.Rand, "a", "b", "C", "C.x", "k", "0", "1", "nope", "items()|list", "keys()|list", "values()|list", "get('a')", "get('zz', 3)", "append(1)", "pop()", "update({})")
	case 8, 9:
		return "(" + pick(w.Rand, w.name(), sub()) + "|" + w.filter() + ")"
	case 10:
		return "(" + pick(w.Rand, w.name(), paren()) + " is " + pick(w.Rand, "", "not ") + w.test() + ")"
	case 11, 12:
		return pick(w.Rand, "s", "t", "e", "'aXb'", "'  x '", "(s ~ t)", "'éÀß'", "'ǅ ΑΣ'") + "." + w.method()
	case 13:
		return "[" + sub() + ", " + sub() + "]"
	case 14:
		return "{'k': " + sub() + ", " + pick(w.Rand, "1", "'b'", "none", "(1, 2)", w.name()) + ": " + sub() + "}"
	}
	return "(" + sub() + ")"
}

func (w *templateGen) filter() string {
	arg := func() string { return w.expr(0) }
	return pick(w.Rand, "length", "count", "string", "trim", "lower", "upper", "capitalize", "title", "list", "first", "last", "safe",
		"int", "float", "int("+arg()+")", "float("+arg()+")",
		"tojson", "tojson(indent=2)", "tojson(sort_keys=true)", "tojson(separators=(',', ':'))", "tojson(ensure_ascii=true)", "tojson(indent=0)",
		"default('D')", "default('D', true)", "d("+arg()+")", "replace('a', 'b')", "replace("+arg()+", "+arg()+")", "replace('o', '0', 1)",
		"join", "join(', ')", "sort", "sort(reverse=true)", "sort(attribute='v')", "sort(attribute='k', reverse=true)",
		"unique|list", "map(attribute='k')|unique|list",
		"map('upper')|list", "map('int')|list", "map(attribute='k')|list", "map(attribute='p.q', default=9)|list", "map('string')|join('|')", "map('nope')|list", "map(attribute='zz')",
		"select|list", "select('float')|list", "select('string')|list", "reject('none')|list", "select('gt', 1)|list", "selectattr('v')|list", "selectattr('k', 'equalto', 'x')|list", "rejectattr('v', 'none')|list", "selectattr('k', 'in', ['x'])|map(attribute='v')|list",
		"dictsort", "dictsort(by='value')", "dictsort(true, reverse=true)", "items|list",
		"indent", "indent(2)", "indent(2, true)", "indent('> ', true, true)", "indent(first=true)",
		"trim('a')", "nosuch", "length()", "lower(1)", "list|length", "string|length")
}

func (w *templateGen) test() string {
	return pick(w.Rand, "defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "true", "false", "mapping", "sequence", "iterable",
		"in [1, 2, 's']", "in(s)", "equalto 7", "eq(1)", "ne 1", "gt 1", "lessthan(5)", "nosuch", "==(1)", "ge(1.0)", "in d")
}

func (w *templateGen) method() string {
	arg := func() string {
		return pick(w.Rand, "'a'", "'o'", "' '", "','", "''", "none", "1", "'lo'", "s", "undef", "'\\n'")
	}
	num := func() string { return pick(w.Rand, "0", "1", "2", "-1", "20", "none", "'x'") }
	return pick(w.Rand, "strip()", "lstrip()", "rstrip()", "strip("+arg()+")", "rstrip("+arg()+")", "split()", "split("+arg()+")", "split("+arg()+", "+num()+")", "split(none, 1)", "split(sep=',', maxsplit=1)",
		"startswith("+arg()+")", "endswith("+arg()+")", "startswith(('a', 'H'))", "replace("+arg()+", "+arg()+")", "replace('a', 'b', "+num()+")", "join(w)", "join(mix)", "join('abc')",
		"upper()", "lower()", "title()", "capitalize()", "nope()", "strip", "upper", "strip(1, 2)", "join()", "split(sep='')")
}

func (w *templateGen) template(depth int) string {
	var b strings.Builder
	for range 1 + w.IntN(3) {
		b.WriteString(w.statement(depth))
	}
	return b.String()
}

func (w *templateGen) statement(depth int) string {
	e := func() string { return w.expr(1 + w.IntN(2)) }
	minus := func() string { return pick(w.Rand, "", "", "-", "+") }
	open, end := "{%"+minus()+" ", " "+pick(w.Rand, "", "", "-", "+")+"%}"
	if depth <= 0 || w.one(3) {
		return pick(w.Rand, "text\n", "  \n ", "<x> ", "") + "{{" + pick(w.Rand, "", "-") + " " + w.expr(2) + " " + pick(w.Rand, "", "-") + "}}" + pick(w.Rand, "\n", " \n  ", "", "|")
	}
	body := func() string { return w.template(depth - 1) }
	v := pick(w.Rand, "x", "y", "n", "s")
	switch w.IntN(14) {
	case 0:
		return open + "if " + e() + end + body() + open + "endif" + end
	case 1:
		return open + "if " + e() + end + body() + open + "elif " + e() + end + body() + open + "else" + end + body() + open + "endif" + end
	case 2:
		return open + "for x in " + w.name() + end + body() + "{{ loop." + pick(w.Rand, "index", "index0", "first", "last", "length", "revindex", "revindex0", "previtem", "nextitem", "nope") + " }}" + open + "endfor" + end
	case 3:
		return open + "for x in " + e() + " if " + e() + end + body() + pick(w.Rand, "", "{{ loop.last }}", "{{ loop.length }}") + open + "else" + end + "none" + open + "endfor" + end
	case 4:
		return open + "for a, y in " + pick(w.Rand, "d.items()", "d|dictsort", "o", "[(1, 2), [3, 4]]", "d|items", "['ab', 'cd']") + end + "{{ a }}={{ y }};" + body() + open + "endfor" + end
	case 5:
		return open + "set " + v + " = " + e() + end + body()
	case 6:
		return open + "set " + v + end + body() + open + "endset" + end + "[{{ " + v + " }}]"
	case 7:
		return open + "set ns.a = " + e() + end + "{{ ns.a }}"
	case 8:
		return open + "macro f(x, y='D', n)" + end + body() + open + "endmacro" + end
	case 9:
		return open + "macro f(x, y='D')" + end + "({{ x }}{{ y }}" + pick(w.Rand, "", "{{ n }}") + ")" + body() + open + "endmacro" + end +
			"{{ f(" + pick(w.Rand, "", "1", "1, 2", "1, 2, 3", "y=1", "x=1, y=2", "1, q=2") + ") }}"
	case 10:
		return open + "for x in " + pick(w.Rand, "[1, 2, 3]", "range(5)", "w") + end + body() + open + pick(w.Rand, "if loop.index > 1", "if x == 2", "if true") + end + open + pick(w.Rand, "break", "continue") + end + open + "endif" + end + "{{ x }}" + pick(w.Rand, "", open+"else"+end+"E") + open + "endfor" + end
	case 11:
		return open + "filter " + pick(w.Rand, "upper", "trim", "replace('a', 'b')", "indent(2)", "length") + end + body() + open + "endfilter" + end
	case 12:
		return open + "with " + v + " = " + e() + ", a = " + v + end + body() + open + "endwith" + end + "{{ " + v + " }}{{ a }}"
	}
	return pick(w.Rand, "{# note #}\n", "{#- note -#}", open+"raw"+end+" {{ raw }} "+open+"endraw"+end, open+"generation"+end+body()+open+"endgeneration"+end)
}

func TestExpressionsAgainstPython(t *testing.T) {
	t.Parallel()
	w := &templateGen{conversationGen{Rand: source(t)}}
	var requests []request
	for i := range *expressions {
		src := "{{ " + w.expr(1+w.IntN(3)) + " }}"
		if i%2 == 1 {
			src = "{% set ns = namespace(a=1) %}" + w.template(2)
		}
		requests = append(requests, request{Src: &src, Vars: []byte(strings.ReplaceAll(templateVars, "\n", " "))})
	}
	c := comparison{excuse: methodAsValue}
	c.run(t, nil, requests)
	t.Logf("%d random templates: %s", *expressions, &c)
	if c.limited > c.renders/200+1 {
		t.Errorf("%d of %d templates are beyond a limit", c.limited, c.renders)
	}
	if c.texts < c.renders/5 {
		t.Errorf("only %d of %d templates have output", c.texts, c.renders)
	}
}

// address matches an address that Python prints for a function, also after a filter changed it.
var address = regexp.MustCompile(`(?i)t 0[x0][0-9a-f]{6}`)

// methodAsValue matches an uncalled method. A filter can make the address in its text
// unrecognizable.
var methodAsValue = regexp.MustCompile(`(\.|\[')(items|keys|values|get|pop|append|update|split|strip|join|lower|upper|replace)('\])?([^a-z_('\]]|$)`)

var expressions = flag.Int("expressions", 2000, "random templates to compare")

const maxShown = 25
