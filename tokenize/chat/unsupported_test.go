package chat_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/tokenize/chat"
)

// unsupported lists names that a template must not use, by the statements that use NAME.
var unsupported = []struct {
	kind       string
	statements []string
	names      string
}{
	{"filter", []string{"{{ x|NAME }}", "{{ x|NAME(1)|list }}", "{{ x|map('NAME')|list }}", "{% filter NAME %}{% endfilter %}"}, `abs
		attr batch center e escape filesizeformat forceescape format groupby max min pprint random reverse round slice
		striptags sum truncate urlencode urlize wordcount wordwrap xmlattr`},
	{
		"test",
		[]string{"{{ x is NAME }}", "{{ x is not NAME(1) }}", "{{ x|select('NAME')|list }}", "{{ x|rejectattr('k', 'NAME')|list }}"},
		"callable divisibleby escaped even filter lower odd sameas test upper",
	},
	{"function", []string{"{{ NAME }}", "{{ NAME(1) }}", "{% set x = NAME.y %}"}, "cycler dict joiner lipsum self"},
	{"method", []string{"{{ x.NAME() }}", "{{ x['y'].NAME(1, 2)[0] }}"}, `as_integer_ratio bit_count bit_length casefold center
		close conjugate copy count denominator encode escape expandtabs find format format_map from_bytes fromhex fromkeys
		gi_running gi_suspended gi_yieldfrom hex imag index is_integer isalnum isalpha isascii isdecimal isdigit isdisjoint
		isidentifier islower isnumeric isprintable isspace istitle isupper ljust maketrans mapping numerator partition real
		removeprefix removesuffix rfind rindex rjust rpartition rsplit send splitlines striptags swapcase throw
		to_bytes translate unescape zfill`},
	{
		"loop",
		[]string{"{% for y in x %}{{ loop.NAME }}{% endfor %}", "{% for y in x %}{{ loop.NAME(y) }}{% endfor %}"},
		"changed cycle depth depth0",
	},
	{
		"macro",
		[]string{"{% macro m() %}{{ NAME }}{% endmacro %}", "{% macro m() %}{% if NAME %}{% endif %}{% endmacro %}"},
		"caller kwargs varargs",
	},
	{"tag", []string{"{% NAME x() %}{% endNAME %}"}, "autoescape block call extends from import include print"},
	{"operator", []string{"{{ x NAME 2 }}"}, "**"},
}

// TestUnsupportedNames: Parse refuses a template with an unsupported name, also in a branch that no
// render enters. The error has the name, the line and the remedy.
func TestUnsupportedNames(t *testing.T) {
	t.Parallel()
	refused := func(statement, name string) {
		t.Helper()
		_, err := chat.Parse("file.jinja", "\n{% if false %}\n"+statement+"{% endif %}", chat.Options{})
		var e *chat.Error
		if !errors.As(err, &e) || !errors.Is(err, chat.ErrUnsupported) || e.Line != 3 ||
			!strings.Contains(err.Error(), name) || !strings.HasSuffix(err.Error(), " (rewrite this line without it, here and on the server)") {
			t.Errorf("Parse(%s) = %v, want an error with %s at line 3", statement, err, name)
		}
	}
	for _, u := range unsupported {
		for name := range strings.FieldsSeq(u.names) {
			for _, statement := range u.statements {
				refused(strings.ReplaceAll(statement, "NAME", name), name)
			}
		}
	}
	for statement, what := range map[string]string{
		"{% for y in x recursive %}{% endfor %}": "a recursive loop",
		"{% macro m(caller) %}{% endmacro %}":    "a macro parameter named 'caller'",
		"{{ '%s' % x }}":                         "operator % on a string",
		"{{ x(*y) }}":                            "call with *",
		"{{ x(**y) }}":                           "call with **",
		"{{ x[1, 2] }}":                          "a subscript with several keys",
		"{{ x[] }}":                              "a subscript without a key",
		"{{ x[(y[1:]), 2:] }}":                   "a subscript with several keys",
		"{{ x[::2] }}":                           "a slice with a step",
		"{{ x[1::-1] }}":                         "a slice with a step",
		"{{ 0x1F }}":                             `the number "0x1F`,
		"{{ 1e5 }}":                              `the number "1e5`,
		"{{ 1_000 }}":                            `the number "1_000`,
		"{{ 007 }}":                              `the number "007`,
		"{{ 9223372036854775808 }}":              "an int of more than 64 bits",
		`{{ '\a' }}`:                             `the escape \a`,
		`{{ '\101' }}`:                           `the escape \1`,
		`{{ '\N{DASH}' }}`:                       `the escape \N`,
		"{{ x.__class__ }}":                      "attribute '__class__'",
		"{{ namespace(x) }}":                     "a positional argument of namespace",
		"{{ namespace(_x=1) }}":                  "the attribute '_x' of a namespace",
		"{% set ns._x = 1 %}":                    "the attribute '_x' of a namespace",
		"{{ strftime_now('%U') }}":               "the strftime format",
		"{% for y in x %}{% with loop = 1 %}{% endwith %}{% endfor %}": "an assignment to the variable 'loop'",
		"{{ x|join(',', 'k') }}":     "argument 'attribute'",
		"{{ x|int(0, 16) }}":         "argument 'base'",
		"{{ x.startswith('a', 1) }}": "argument 'start'",
		"{% for y in x %}{% macro m(loop) %}{% endmacro %}{% endfor %}": "a macro parameter named 'loop' inside a loop",
		"{% for y in x %}{% set loop.a = 1 %}{% endfor %}":              "an assignment to the variable 'loop'",
		"{{ x[::-'1'] }}": "a slice with a step",
		"{% set kwargs = 1 %}{% macro m() %}{{ kwargs }}{% set kwargs = 2 %}{% endmacro %}":                          "variable 'kwargs' in a macro",
		"{% macro m() %}{% for y in x %}{{ varargs }}{% endfor %}{% set varargs = 2 %}{% endmacro %}":                "variable 'varargs' in a macro",
		"{% macro m() %}{% macro n(caller_, kwargs) %}{% endmacro %}{% if x %}{{ caller }}{% endif %}{% endmacro %}": "variable 'caller' in a macro",
		"{% set y %}{{ x|unique }}{% endset %}{% if x %}{{ x|unique(attribute='k') }}{% endif %}":                    "argument 'attribute'",
	} {
		refused(statement, what)
	}
	for _, supported := range []string{"{% set dict = {} %}{{ dict }}", "{{ x.title }}{{ x.index }}", "{% macro m(kwargs, varargs) %}{{ kwargs }}{{ varargs }}{% endmacro %}"} {
		if _, err := chat.Parse("file.jinja", supported, chat.Options{}); err != nil {
			t.Errorf("Parse(%s) = %v", supported, err)
		}
	}
}

// TestUnsupportedValues: a render refuses what Parse cannot see. An attribute of a Python object is
// not taken for undefined or for an element of that name.
func TestUnsupportedValues(t *testing.T) {
	t.Parallel()
	for _, src := range []string{
		"{% set s = '%s' %}{{ s % 1 }}", "{% set f = 'round' %}{{ [1]|map(f)|list }}", "{% set t = 'odd' %}{{ [1]|select(t)|list }}",
		"{{ s.find }}", "{{ s['find'] }}", "{{ s.find is defined }}", "{{ [s]|map(attribute='count')|list }}", "{{ (s|safe).unescape }}",
		"{{ d.copy }}", "{% set c = d.fromkeys %}{{ c }}", "{{ l.index }}", "{{ (1, 2).count }}", "{{ 5.real }}", "{{ true.imag }}", "{{ 1.5['hex'] }}",
		"{{ range(3).start }}", "{{ d.keys().mapping }}", "{{ (l|map('string')).send }}",
		"{% for i in l %}{% set o = loop %}{{ o.depth }}{% endfor %}", "{% macro m() %}{% endmacro %}{{ m.name }}",
		"{{ d.keys() < d.keys() }}", "{{ d.keys() == d.keys() }}", "{{ range(2) in [range(2)] }}", "{{ s.upper == s.upper }}", "{{ range(9)[1:] }}",
		"{{ 9223372036854775807 + 1 }}", "{{ -9223372036854775807 - 2 }}", "{{ 9223372036854775807 * 2 }}", "{{ n + 1 }}", "{{ n < 1 }}",
		"{{ n == 1.5 }}", "{{ 5.5 // 2 }}", "{{ 5 % 2.5 }}", "{{ l < l }}", "{{ l * 2 }}", "{{ {(1, 2): 3} }}", "{{ d[(1, 2)] }}",
		"{{ '99999999999999999999'|int }}", "{{ d|dictsort(reverse=1) }}",
		"{% set g = l|map('string') %}{{ g|first }}{{ g|list }}", "{% for i in l %}{{ loop|list }}{% endfor %}",
		"{% set g = l|map('string') %}{% set h = [g]|map('list') %}{{ g|list }}{{ h|list }}", "{% set g = l|map('string') %}{{ [[g]]|map('first')|map('list')|list }}",
		"{% set ns = namespace(a=1) %}{{ ns }}", "{% set ns = namespace(a=1) %}{{ [ns]|map(attribute='a')|list }}",
		"{{ d['__class__'] }}", "{{ [d]|sort(attribute='a,b') }}", "{{ d[1:] }}", "{% set f = 'int' %}{{ ['x']|map(f, base=16)|list }}",
		"{{ [range] }}", "{{ s.upper }}", "{{ (s|safe).upper }}", "{% for i in l %}{{ loop }}{% endfor %}", "{{ l|map('string') }}", "{{ [[1]]|map(attribute='٣')|list }}",
	} {
		tpl := parse(t, "file.jinja", src, chat.Options{})
		out, err := tpl.Render(nil, input(t, []byte(`{"s": "a", "l": [1], "n": 99999999999999999999, "d": {"copy": 1, "fromkeys": 2}}`)))
		if !errors.Is(err, chat.ErrUnsupported) || !strings.Contains(err.Error(), "rewrite this line") {
			t.Errorf("%s: Render = %s, %v, want ErrUnsupported", src, out, err)
		}
	}
}

// TestEveryNameOfPython: each filter and test of Jinja and each method of Python's types is either
// supported or refused by name. The README lists the supported filters.
func TestEveryNameOfPython(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: skipping the comparison with Python's Jinja2")
	}
	const script = `from jinja2 import filters, tests
methods = sum(map(dir, (str, list, tuple, dict, int, float, {}.keys())), [])
for kind, names in {"filter": filters.FILTERS, "test": tests.TESTS, "method": methods}.items():
    for name in sorted(set(names)):
        if name[0].isalpha():
            print(kind, name)`
	out, err := exec.Command(interpreter(), "-c", script).Output()
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join("..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	supported := strings.Fields(`append capitalize clear endswith extend get insert items join keys lower lstrip pop popitem
		remove replace reverse rstrip setdefault sort split startswith strip title update upper values`)
	n := 0
	for line := range strings.Lines(string(out)) {
		kind, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		n++
		for _, u := range unsupported {
			if u.kind != kind {
				continue
			}
			_, err := chat.Parse("name", strings.ReplaceAll(u.statements[0], "NAME", name), chat.Options{})
			refused := slices.Contains(strings.Fields(u.names), name)
			if kind == "filter" && !refused && !bytes.Contains(readme, []byte("`"+name+"`")) {
				t.Errorf("filter %s is not in the README", name)
			}
			if kind == "method" && !refused && !slices.Contains(supported, name) {
				t.Errorf("method %s is neither supported nor refused", name)
			}
			if refused != errors.Is(err, chat.ErrUnsupported) || !refused && err != nil {
				t.Errorf("%s %s: Parse = %v, refused %v", kind, name, err, refused)
			}
		}
	}
	if n < 150 {
		t.Errorf("Python printed %d names", n)
	}
}
