package chat_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/tokenize/chat"
)

// hostile lists templates that would run forever, use all memory, or overflow the stack. Each must
// return an error that names the limit, or Python's own error.
var hostile = []struct{ name, src string }{
	{"loops in loops", "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}"},
	{"giant range", "{% for a in range(1000000000000000000) %}{% endfor %}"},
	{"range to the edge", "{{ range(-9223372036854775807, 9223372036854775807)|list }}"},
	{"macro for ever", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"},
	{"two macros", "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}"},
	{"macro tree", "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}"},
	{"string times int", "{{ 'x' * 1000000000000 }}"},
	{"int times string", "{{ 1000000000000 * 'x' }}"},
	{"doubling text", "{% set ns = namespace(s='x' * 1000) %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s|length }}"},
	{"doubling lists", "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}"},
	{"shared lists printed", "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}"},
	{"shared lists as JSON", "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s|tojson }}"},
	{"shared lists compared", "{% set ns = namespace(s=[1], t=[1]) %}{% for i in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ ns.s == ns.t }}"},
	{"deep list printed", "{% set ns = namespace(s=[]) %}{% for i in range(99999) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s }}"},
	{"squaring", "{% set ns = namespace(n=3) %}{% for i in range(99) %}{% set ns.n = ns.n * ns.n %}{% endfor %}{{ ns.n }}"},
	{"indent", "{{ 'x\\ny'|indent(1000000000000) }}"},
	{"tojson indent", "{{ [1]|tojson(indent=1000000000000) }}"},
	{"replace nothing", "{% set s = 'x' * 1000000 %}{{ s.replace('', s) }}"},
	{"join", "{{ ('x' * 1000000).join(range(99999)|map('string')) }}"},
	{"endless output", "{% set s = 'x' * 1000000 %}{% for i in range(99999) %}{{ s }}{% endfor %}"},
	{"endless text", "{% for a in range(99999) %}{% for b in range(99999) %}" + strings.Repeat("x", 5000) + "{% endfor %}{% endfor %}"},
	{"split in a loop", "{% set s = 'a ' * 1000000 %}{% for i in range(99999) %}{% set x = s.split() %}{% endfor %}"},
	{"sort in a loop", "{% set l = range(99999)|list %}{% for i in range(99999) %}{% set x = l|sort %}{% endfor %}"},
	{"parentheses", "{{ " + strings.Repeat("(", 100000) + "1" + strings.Repeat(")", 100000) + " }}"},
	{"brackets", "{{ " + strings.Repeat("[", 100000) + strings.Repeat("]", 100000) + " }}"},
	{"minuses", "{{ " + strings.Repeat("-", 100000) + "1 }}"},
	{"nots", "{{ " + strings.Repeat("not ", 100000) + "1 }}"},
	{"ifs", strings.Repeat("{% if 1 %}", 50000) + strings.Repeat("{% endif %}", 50000)},
	{"attributes", "{{ a" + strings.Repeat(".a", 100000) + " }}"},
	{"filters", "{{ a" + strings.Repeat("|string", 100000) + " }}"},
	{"conditions", "{{ " + strings.Repeat("1 if 0 else ", 50000) + "1 }}"},
	{"sums", "{{ 1" + strings.Repeat(" + 1", 200000) + " }}{{ 1 / 0 }}"},
	{"concatenations", "{{ 'x'" + strings.Repeat(" ~ 'x'", 100000) + " }}{{ 1 / 0 }}"},
	{"elifs", "{% if 0 %}" + strings.Repeat("{% elif 0 %}", 50000) + "{% endif %}{{ 1 / 0 }}"},
	{"ands", "{{ 1" + strings.Repeat(" and 1", 100000) + " }}{{ 1 / 0 }}"},
}

// TestHostile keeps every hostile template within its limits, and far below the deadline.
func TestHostile(t *testing.T) {
	opts := chat.Options{MaxSteps: 2_000_000, MaxValueBytes: 64 << 20, MaxOutputBytes: 4 << 20}
	for _, c := range hostile {
		t.Run(c.name, func(t *testing.T) {
			got := measure(c.src, opts)
			if got.err == nil {
				t.Fatal("Render succeeded, want an error")
			}
			var e *chat.Error
			if !errors.As(got.err, &e) || e.Template != "hostile" {
				t.Errorf("error %v (%T), want *chat.Error with the name", got.err, got.err)
			}
			if len(got.err.Error()) > 500 {
				t.Errorf("error text of %d bytes", len(got.err.Error()))
			}
			if got.took > 20*time.Second || got.bytes > 1<<30 {
				t.Errorf("took %v and %d MiB in all", got.took, got.bytes>>20)
			}
			t.Logf("%v in %v", got.err, got.took)
		})
	}
}

// TestCheap: an operation does not pay for memory that it does not use.
func TestCheap(t *testing.T) {
	t.Parallel()
	vars := chat.NewMap(1)
	vars.Set("s", chat.StringValue("<"+strings.Repeat("x", 999)))
	for _, src := range []string{"{{ s|first }}", "{{ 99999 in range(100000) }}", "{{ s|upper|length }}", "{{ ((''|safe) + s)|length }}"} {
		if _, err := render("x", src, chat.Options{MaxValueBytes: 3500}, chat.Input{Extra: vars}); err != nil {
			t.Errorf("Render(%s): %v", src, err)
		}
	}
}

// TestIdenticalElements: comparing containers pays for each element, also if both have the same one.
func TestIdenticalElements(t *testing.T) {
	t.Parallel()
	list := slices.Repeat([]chat.Value{chat.MapValue(chat.NewMap(0))}, 4096)
	vars := chat.NewMap(4)
	vars.Set("a", chat.ListValue(list...))
	vars.Set("b", chat.ListValue(slices.Clone(list)...))
	for _, name := range []string{"c", "d"} {
		m := chat.NewMap(4096)
		for i, v := range list {
			m.Set(strconv.Itoa(i), v)
		}
		vars.Set(name, chat.MapValue(m))
	}
	for _, test := range []string{"a == b", "c == d"} {
		src := "{% for i in range(100) %}{% if not " + test + " %}{{ 1 / 0 }}{% endif %}{% endfor %}"
		_, err := render("x", src, chat.Options{MaxSteps: 50_000}, chat.Input{Extra: vars})
		if !errors.Is(err, chat.ErrLimit) {
			t.Errorf("%s: error %v, want ErrLimit", test, err)
		}
	}
}

// TestLimitsAreNamed also checks that a limit below 1 is the default.
func TestLimitsAreNamed(t *testing.T) {
	t.Parallel()
	below := chat.Options{MaxSourceBytes: -1, MaxNesting: -1, MaxOutputBytes: -1, MaxValueBytes: -1, MaxSteps: -1, MaxDepth: -1}
	for _, c := range []struct {
		name, src string
		opts      chat.Options
	}{
		{"source", strings.Repeat("x", 101), chat.Options{MaxSourceBytes: 100}},
		{"nesting", "{{ ((((1)))) }}", chat.Options{MaxNesting: 4}},
		{"output", "{% for i in range(20) %}xxxxxxxxxx{% endfor %}", chat.Options{MaxOutputBytes: 100}},
		{"values", "{{ ('x' * 200)|length }}", chat.Options{MaxValueBytes: 100}},
		{"steps", "{% for i in range(200) %}{% endfor %}", chat.Options{MaxSteps: 100}},
		{"depth", "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(12) }}", chat.Options{MaxDepth: 10}},
	} {
		if _, err := render("x", c.src, c.opts, chat.Input{}); !errors.Is(err, chat.ErrLimit) {
			t.Errorf("%s: error %v, want ErrLimit", c.name, err)
		}
		for _, opts := range []chat.Options{{}, below} { // the same template renders within the default limits
			if _, err := render("x", c.src, opts, chat.Input{}); err != nil {
				t.Errorf("%s: with default limits: %v", c.name, err)
			}
		}
	}
}
