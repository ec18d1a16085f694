package chat_test

import (
	"errors"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/tokenize/chat"
)

var calls = flag.Int("calls", 2000, "calls of filters, tests, functions and methods to compare; 0: all")

// A callee is a filter, test, function or method, with its parameter names.
type callee struct {
	name   string
	params string
}

// callees parses a list of names, each with its parameters.
func callees(list string) []callee {
	var all []callee
	for entry := range strings.SplitSeq(list, ",") {
		name, params, _ := strings.Cut(strings.TrimSpace(entry), " ")
		all = append(all, callee{name, params})
	}
	return all
}

var (
	callFilters = callees(`capitalize s, count obj, d value default_value boolean, dictsort value case_sensitive by reverse, first seq, float value default,
		indent s width first blank, int value default, items value, join value d, last seq, length obj,
		list value, lower s, map value attribute default, reject value, rejectattr value, replace s old new count,
		safe value, select value, selectattr value, sort value reverse attribute, string object, title s,
		tojson x ensure_ascii indent separators sort_keys, trim value chars, unique value, upper s`)
	callTests = callees(`boolean value, defined value, eq a b, false value, float value, ge a b, gt a b, in value seq,
		integer value, iterable value, le a b, lt a b, mapping value, ne a b, none value, number value,
		sequence value, string value, true value, undefined value`)
	callGlobals     = callees(`range, namespace, raise_exception message, strftime_now format, f x y, un`)
	callStrMethods  = strings.Fields("strip lstrip rstrip split startswith endswith replace join lower upper capitalize title nope append")
	callDictMethods = strings.Fields("get items keys values clear pop popitem setdefault update nope a")
	callListMethods = strings.Fields("append clear pop reverse insert sort extend remove nope")
	callOthers      = []string{"undef.x", "none.get", "d.items().x", "ns.a", "ns.get"}
	callParams      = map[string]string{"split": "sep maxsplit", "strip": "chars", "replace": "old new count", "join": "iterable", "get": "key default"}

	callSubjects = []string{
		"undef", "nil", "b", "n", "m", "f", "big", "nan", "s", "t", "e", "('<a b>'|safe)", "l", "w", "el", "mix", "d", "ed", "o", "(1, 'a')", "(w|map('upper'))",
		"range(3)", "d.items()", "d.keys()", "ns", "'12'", "' 0.5 '",
	}
	callArgs  = []string{"undef", "none", "true", "0", "1", "-1", "2.5", "''", "'a'", "'k'", "('<b>'|safe)", "[1, 'a']", "{'a': 1}", "('a', 'b')", "range(2)", "big", "'upper'", "'string'", "w|map('upper')", "16"}
	callFew   = []string{"undef", "none", "2", "'a'", "'k'", "[1, 2]", "true", "'in'"}
	callFewer = []string{"none", "1", "'a'", "undef"}
)

// arguments returns argument lists for a callee: none and one to five, by position and by name,
// with wrong names and surplus ones.
func (c callee) arguments() []string {
	out := []string{"", "zzz=1", "1, zzz=1", "context=1", "environment=1", "eval_ctx=1", "env=1", "self=1", "caller=1"}
	out = append(out, callArgs...)
	for _, a := range callFew {
		for _, b := range callFew {
			out = append(out, a+", "+b)
		}
	}
	for _, a := range callFewer {
		for _, b := range callFewer {
			for _, c := range callFewer {
				out = append(out, a+", "+b+", "+c)
			}
		}
		out = append(out, a+", "+a+", "+a+", "+a, a+", "+a+", "+a+", "+a+", "+a, "1, 1, 1, 1, 1, "+a)
	}
	params := strings.Fields(c.params)
	for i, p := range params {
		for _, a := range callArgs {
			out = append(out, p+"="+a)
		}
		for _, a := range callFewer {
			out = append(out, "'a', "+p+"="+a, "1, "+p+"="+a, "'a', 'b', "+p+"="+a)
			for _, q := range params[i+1:] {
				for _, b := range callFewer {
					out = append(out, p+"="+a+", "+q+"="+b)
				}
			}
		}
	}
	return out
}

const callSetup = "{% macro f(x, y='D') %}{{ [x, y] }}{% endmacro %}{% set ns, un = namespace(a=1), 'abc'.upper %}"

// list returns a filter that collects the elements, if the callee returns a generator.
func (c callee) list() string {
	switch c.name {
	case "items", "map", "reject", "rejectattr", "select", "selectattr", "unique":
		return "|list"
	}
	return ""
}

func allCalls() []string {
	var out []string
	add := func(format string, args ...any) {
		out = append(out, callSetup+"{{ ["+fmt.Sprintf(format, args...)+"] }}")
	}
	for _, s := range callSubjects {
		for _, c := range callFilters {
			for _, a := range c.arguments() {
				add("%s|%s(%s)%s", s, c.name, a, c.list())
			}
			add("%s|%s%s", s, c.name, c.list())
		}
		for _, c := range callTests {
			for _, a := range c.arguments()[:30] {
				add("%s is %s(%s)", s, c.name, a)
			}
			for p := range strings.FieldsSeq(c.params) {
				add("%s is %s(%s=1)", s, c.name, p)
			}
			add("%s is %s", s, c.name)
			add("[%s]|select('%s', 1)|list", s, c.name)
		}
	}
	for _, c := range callGlobals {
		for _, a := range c.arguments() {
			out = append(out, callSetup+fmt.Sprintf("{%% for i in [1, 2] %%}{{ [%s(%s)] }}{%% endfor %%}", c.name, a))
		}
	}
	methods := func(names []string, subjects ...string) {
		for _, s := range subjects {
			for _, n := range names {
				for _, a := range (callee{n, callParams[n]}).arguments() {
					add("%s.%s(%s)", s, n, a)
				}
				add("%s['%s']()", s, n)
			}
		}
	}
	methods(callStrMethods, "s", "t")
	methods(callDictMethods, "d", "{1: 2, 'a': 'b'}")
	methods(callListMethods, "l", "mix")
	for _, m := range callOthers {
		for _, a := range (callee{m, ""}).arguments() {
			add("%s(%s)", m, a)
		}
	}
	return out
}

// TestCallsAgainstPython calls every filter, test, function and method with right and wrong
// arguments, here and in Python. An error only here must be one that the package documents.
func TestCallsAgainstPython(t *testing.T) {
	t.Parallel()
	srcs := allCalls()
	total := len(srcs)
	if *calls > 0 && *calls < total {
		r := source(t)
		r.Shuffle(total, func(i, j int) { srcs[i], srcs[j] = srcs[j], srcs[i] })
		srcs = srcs[:*calls]
	}
	vars := []byte(strings.Replace(strings.ReplaceAll(templateVars, "\n", " "), "{", `{"nan": NaN, `, 1))
	c := comparison{excuse: changedAddress}
	for chunk := range slices.Chunk(srcs, 50_000) {
		requests := make([]request, len(chunk))
		for i := range chunk {
			requests[i] = request{Src: &chunk[i], Vars: vars}
		}
		c.run(t, nil, requests)
	}
	t.Logf("%d of %d calls: %s", len(srcs), total, &c)
}

// changedAddress matches a filter on the text of a generator, which contains an address.
var changedAddress = regexp.MustCompile(`map\('upper'\)\)\|(capitalize|replace|title|trim|upper)`)

// A comparison counts how our renders compare with Python's.
type comparison struct {
	renders, texts, addresses, skipped, limited, bad int
	refused                                          map[string]int // by unsupported feature
	excuse                                           *regexp.Regexp // matches templates that cannot be compared
}

func (c *comparison) String() string {
	return fmt.Sprintf("%d renders, %d with output, %d of them addresses, %d that Python did not finish, %d beyond a limit, refused %v, %d differ",
		c.renders, c.texts, c.addresses, c.skipped, c.limited, c.refused, c.bad)
}

// run renders the requests, with templates of sources or their own, on both sides.
func (c *comparison) run(t *testing.T, sources map[string]string, requests []request) {
	t.Helper()
	if c.refused == nil {
		c.refused = map[string]int{}
	}
	answers := askPython(t, sources, requests)
	parsed := map[string]*chat.Template{}
	for name, src := range sources {
		parsed[name] = parse(t, name, src, testOptions())
	}
	for i, r := range requests {
		a := answers[i]
		c.renders++
		var tpl *chat.Template
		var out []byte
		var err error
		what := ""
		if r.Name != nil {
			tpl, what = parsed[*r.Name], fmt.Sprintf("%s with %s", *r.Name, r.Vars)
		} else {
			tpl, err = chat.Parse("random", *r.Src, testOptions())
			what = fmt.Sprintf("%.600s", *r.Src)
		}
		if err == nil {
			out, err = tpl.Render(nil, input(t, r.Vars))
		}
		if a.Out != nil {
			c.texts++
		}
		switch {
		case a.Skip != nil:
			c.skipped++
		case a.Out != nil && address.MatchString(*a.Out):
			c.addresses++
		case errors.Is(err, chat.ErrLimit) && a.Out != nil:
			c.limited++
		case errors.Is(err, chat.ErrUnsupported) && a.Out != nil:
			_, what, _ := strings.Cut(err.Error(), chat.ErrUnsupported.Error()+": ")
			c.refused[what]++
		case err != nil && a.Out != nil && strings.Contains(err.Error(), "named 'nosuch'"):
			c.refused["an unknown name"]++ // Python has computed a constant such as 1 or x|nosuch without looking it up
		default:
			if d := compare(a, string(out), err); d != "" && (c.excuse == nil || !c.excuse.MatchString(*r.Src)) {
				if c.bad++; c.bad <= maxShown {
					t.Errorf("%s\n%s", what, d)
				}
			}
		}
	}
}
