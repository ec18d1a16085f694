package chat_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/tokenize/chat"
)

// Each case is taken from Python's Jinja2 3.1.6. If one fails, fix the code, not the case.
func TestSemantics(t *testing.T) {
	t.Parallel()
	vars := `{"d": {"b": 1, "a": 2, "items": 3}, "l": [3, 1, 2], "s": "añb", "none": 1, "x": "outer", "one": 1, "onef": 1.0, "big": 123456789012345678901234567890}`
	for _, c := range []struct{ name, src, want string }{
		{"key order", "{{ d }}", "{'b': 1, 'a': 2, 'items': 3}"},
		{"int and float apart", "{{ one }} {{ onef }} {{ one == onef }} {{ [one, onef]|tojson }}", "1 1.0 True [1, 1.0]"},
		{"big ints", "{{ big == 1 }} {{ big|tojson }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }}", "False 123456789012345678901234567890 -4 2 3.5"},
		{"floats", "{{ 10000000000000000.0 }} {{ 1000000000000000.0 }} {{ 0.0001 }} {{ 0.00001 }} {{ -0.0 }}", "1e+16 1000000000000000.0 0.0001 1e-05 -0.0"},
		{"a method hides a key", "{{ d.items() is iterable }} {{ d['items'] }} {{ d.b }}", "True 3 1"},
		{"a hidden attribute hides a key", "{{ {'__class__': 1}['__class__'] }}", "1"},
		{"undefined", "[{{ y }}]{{ y is defined }}{{ y|length }}{{ y|default('z') }}", "[]False0z"},
		{"code points", "{{ s|length }}{{ s[1] }}{{ s[::-1] }}{{ s[-1:] }}", "3ñbñab"},
		{"Markup escapes", "{{ ('<'|safe) + '<' }}{{ '<' + '<' }}{{ ('<'|safe) ~ '<' }}", "<&lt;<<<<"},
		{"loops forget", "{% for i in l %}{% set x = i %}{% endfor %}{{ x }}", "outer"},
		{"loops start anew", "{% for i in l %}{{ x }}{% set x = i %}{% endfor %}", "outerouterouter"},
		{"an if is not a scope", "{% if true %}{% set x = 2 %}{% endif %}{{ x }}", "2"},
		{"set later hides the input", "{% for i in [1] %}[{{ x }}]{% endfor %}{% set x = 1 %}", "[]"},
		{"namespace", "{% set ns = namespace(n=0) %}{% for i in l %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}", "6"},
		{"negative zero", "{{ 0 / -1 }}", "-0.0"},
		{"macros see late", "{% macro m() %}{{ v }}{% endmacro %}{% set v = 5 %}{{ m() }}", "5"},
		{"generators are used up", "{% set g = l|select('gt', 1) %}{{ g|list }}{{ g|list }}", "[3, 2][]"},
		{"loop looks ahead", "{% for i in l|select %}{{ loop.length }}{{ loop.last }}{% endfor %}", "3False3False3True"},
		{"tojson", `{{ {'k': ['<é>', none, true, 1.5], 2: {}}|tojson(indent=1) }}`, "{\n \"k\": [\n  \"<é>\",\n  null,\n  true,\n  1.5\n ],\n \"2\": {}\n}"},
		{"DEL", `{{ '\x7f'|tojson }}{{ {'\x7f': '\x7f'}|tojson(ensure_ascii=true) }}{{ ['\x7f'] }}`, "\"\x7f\"{\"\\u007f\": \"\\u007f\"}['\\x7f']"},
		{"trim and strip", "a\n  {% if true %}\n  b\n  {%- endif %}\n\nc", "a\n  b\nc"},
		{"raw", "{% raw %}{{ x }}{% endraw %}", "{{ x }}"},
		{"white space of raw", "a \n  {% raw %}\n{% x %}\n  {%-\u2003endraw +%}\n b {%- raw -%} {# {%+ endraw %}\nc", "a \n\n{% x %}\n b{# c"},
		{"a sigma at the end", "{{ 'ΑΣ ΣΑ'|lower }}{{ 'ß'|lower }}", "ας σαß"},
		{"several characters", "{{ 'ß'|upper }}{{ 'ﬁ'|capitalize }}{{ 'ŉ ᾳᾳ ﬃ'.title() }}{{ 'ᾀ'|title }}", "SSFiʼN ᾼᾳ FfiἈΙ"},
		{"digits", "{{ '1_0'|int }}{{ ' -٣𝟙_0 '|int }}{{ '1_0.5'|float }}{{ '_1'|int }}{{ '1__0'|int(2) }}{{ '1_e5'|float }}{{ '1._0'|float }}", "10-31010.5020.00.0"},
		{"signs", "{{ +one + +true - +-2 }}{{ +true }}{{ +big }}{{ +-0.0 }}", "41123456789012345678901234567890-0.0"},
		{"chains", "{{ 1 < 2 <= 2 < 3 }}{{ 1 < 2 > 2 < x }}{{ 1 in l == [3, 1, 2] }}{{ (1 < 2) == true }}", "TrueFalseTrueTrue"},
		{"else of a loop", "{% for i in [] %}{% else %}{{ x }}{% set x = 1 %}{{ x }}{% endfor %}{{ x }}{% for i in l %}{% else %}E{% endfor %}", "outer1outer"},
		{"else after no whole iteration", "{% for i in l %}{{ i }}{% continue %}{% else %}E{% endfor %}{% for i in l %}{% break %}{% else %}E{% endfor %}", "312EE"},
		{"break in an else", "{% for i in l %}{{ i }}{% for j in l if j > i %}{% else %}{{ loop.index }}{% break %}{% endfor %}{% endfor %}", "31"},
		{"with", "{% with x = 1, (y, z) = [x, l[0]] %}{{ x }}{{ y }}{{ z }}{% set v = 1 %}{% endwith %}{{ x }}{{ v }}{% with %}{{ x }}{% endwith %}", "1outer3outerouter"},
		{"sorted keys", "{{ {'b': {'d': 1, 'c': 2}, 'a': [], 'B': 0}|tojson(sort_keys=true) }}{{ {2: 0, 1.5: 0}|tojson(sort_keys=true, indent=0) }}", `{"B": 0, "a": [], "b": {"c": 2, "d": 1}}` + "{\n\"1.5\": 0,\n\"2\": 0\n}"},
		{"dictsort", "{{ {'b': 1, 'C': 3, 'a': 2}|dictsort }}{{ {'b': 1, 'C': 3}|dictsort(true) }}{{ d|dictsort(by='value', reverse=true) }}", "[('a', 2), ('b', 1), ('C', 3)][('C', 3), ('b', 1)][('items', 3), ('a', 2), ('b', 1)]"},
		{"a key that is a slice", "{{ {'a': 1}['a'[:1]] }}{{ l[l[1:][0]] }}{{ l[l[:2][1]:][0] }}{{ {3: 4}[(l[:1])[0]] }}", "1114"},
		{"comma before recursive", "{% for x in [1], recursive %}{{ x }}{% endfor %}", "[1]"},
		{"time", "{{ strftime_now('%d %b %Y') }}", "04 Jul 2026"},
		{"generation", "{% generation %}a{% set x = 1 %}{% endgeneration %}{{ x }}", "aouter"},
		{"break in a block that is set", "{% for i in l %}{{ i }}{% set x %}a{% break %}{% endset %}{{ x }}{% endfor %}{{ x }}{% for i in l %}{% set x %}{% continue %}{% endset %}b{% endfor %}", "3outer"},
		{"variables of a macro that are set first", "{% set kwargs = 'x' %}{% macro m() %}{% set kwargs = 1 %}{{ kwargs }}{% endmacro %}{{ m() }}{% macro n() %}{% if one %}{% set varargs = 2 %}{% endif %}{{ varargs }}{% endmacro %}{{ n() }}", "12"},
		{"in a range", "{{ 4 in range(0, 10, 2) }}{{ 5 in range(0, 10, 2) }}{{ 10 in range(10) }}{{ 2 in range(9, 0, -7) }}{{ true in range(2) }}{{ 1.0 in range(2) }}{{ 'a' in range(2) }}{{ big in range(2) }}", "TrueFalseFalseTrueTrueTrueFalseFalse"},
		{"first character", "{{ 'ñb'|first }}{{ ''|first }}{{ ('<b'|safe|first) + '<' }}", "ñ<<"},
		{"unknown filter in an if", "{% if false %}{{ x|nosuch }}{% endif %}ok", "ok"},
	} {
		got, err := render(c.name, c.src, testOptions(), input(t, []byte(vars)))
		if err != nil || got != c.want {
			t.Errorf("%s: Render(%s) = %q, %v, want %q", c.name, c.src, got, err, c.want)
		}
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, src string
		line      int
		is        error
		text      string
	}{
		{"raised", "\n\n{{ raise_exception('no') }}", 3, chat.ErrRaised, "no"},
		{"undefined attribute", "a\n{{ x.y.z }}", 2, nil, "'x' is undefined"},
		{"str and int", "{{ 'a' + 1 }}", 1, nil, "unsupported operand types for +: 'str' and 'int'"},
		{"in a macro", "{% macro m() %}\n{{ 1 / 0 }}{% endmacro %}\n{{ m() }}", 2, nil, "division by zero"},
		{"sorted values of two types", "{{ {'a': 1, 'b': 'c'}|dictsort(by='value') }}", 1, nil, "cannot be ordered"},
		{"two None in order", "{{ {'a': none, 'b': none}|dictsort(by='value') }}", 1, nil, "cannot be ordered"},
		{"sorted keys of two types", "{{ {1: 2, 'a': 3}|tojson(sort_keys=true) }}", 1, nil, "cannot be ordered"},
		{"sign of a str", "{{ +'a' }}", 1, nil, "bad operand type for unary +: 'str'"},
		{"end of raw is missing", "\n{% raw %}", 2, nil, "unterminated raw block"},
		{"break in an outer else", "{% for i in [] %}{% else %}{% break %}{% endfor %}", 1, nil, "outside of a loop"},
		{"append", "{{ [].append(1) }}", 1, nil, "unsafe"},
		{"unknown tag", "x\n{% nosuch %}", 2, nil, "unknown tag 'nosuch'"},
		{"an address", "{{ ['a'.upper] }}", 1, chat.ErrUnsupported, "the string form of '"},
		{"an address of a function", "{{ range ~ 'x' }}", 1, chat.ErrUnsupported, "the string form of '"},
		{"an address of a generator", "{% set x = [1]|map('string') %}{{ x|string|length }}", 1, chat.ErrUnsupported, "the string form of '"},
		{"no clock", "{{ strftime_now('%Y') }}", 1, chat.ErrUnsupported, "Input.Now"},
		{"unknown filter", "{{ x|nosuch }}", 1, nil, "no filter named 'nosuch'"},
		{"comma before in", "{% for x, in [[1]] %}{% endfor %}", 1, nil, "expected 'in'"},
		{"slice of an int", "{{ 5[1:] }}", 1, chat.ErrUnsupported, "a slice of 'int'"},
		{"sum beyond 64 bits", "{{ 9223372036854775807 + 1 }}", 1, chat.ErrUnsupported, "an int of more than 64 bits"},
		{"unknown filter after or", "{{ [1] or x|nosuch }}", 1, nil, "no filter named 'nosuch'"},
		{"keyword that the filter fills", "{{ [1]|select(value=0)|list }}", 1, nil, "multiple values for argument 'value'"},
		{"the same of map", "{{ [1]|map('int', context=0)|list }}", 1, nil, "multiple values for argument 'context'"},
		{"the same method of two characters", "{{ 'Hello'|map(attribute='upper')|unique|list }}", 1, chat.ErrUnsupported, "a key of type builtin_function_or_method"},
		{"the same method twice", "{% set s = 'ab' %}{{ s.upper == s.upper }}", 1, chat.ErrUnsupported, "a comparison of two values of type builtin_function_or_method"},
		{"not UTF-8", "a\xff", 0, nil, "not valid UTF-8"},
		{"end is missing", "{% if x %}\n", 1, nil, "expected elif or else or endif"},
		{"bracket", "{{ (1] }}", 1, nil, "expected ')'"},
		{"break", "{% break %}", 1, nil, "outside of a loop"},
		{"surrogate", `{{ '\ud83d' }}`, 1, nil, "not a character"},
	} {
		dst := []byte("kept")
		tpl, err := chat.Parse("file.jinja", c.src, chat.Options{})
		if err == nil {
			dst, err = tpl.Render(dst, chat.Input{})
		}
		e, ok := errors.AsType[*chat.Error](err)
		if !ok || e.Line != c.line || e.Template != "file.jinja" || !strings.Contains(e.Error(), c.text) || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: error %q, want *chat.Error with %q at line %d", c.name, err, c.text, c.line)
		}
		if string(dst) != "kept" {
			t.Errorf("%s: dst = %q, want it as it was", c.name, dst)
		}
	}
}

func TestFromJSON(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 902) + strings.Repeat("]", 902)
	for _, c := range []struct{ name, js, want, err string }{
		{"order", `{"z": 1, "a": 2, "z": 3}`, "{'z': 3, 'a': 2}", ""},
		{"numbers", `[1, 1.0, 1e2, -0, -0.0, 1E400, 9223372036854775808, NaN, -Infinity]`, "[1, 1.0, 100.0, 0, -0.0, inf, 9223372036854775808, nan, -inf]", ""},
		{"words", ` [true, false, null] `, "[True, False, None]", ""},
		{"escapes", `["\u00e9\n\t\"\\\/", "\ud83d\ude42"]`, `['é\n\t"\\/', '🙂']`, ""},
		{"empty", ``, "", "the text ends where a value is expected (byte 0)"},
		{"half a pair", `"\ud83d"`, "", "surrogate"},
		{"not UTF-8", "\"a\xff\"", "", "not UTF-8 (byte 2)"},
		{"deep", deep, "", "nested deeper than 900 levels"},
		{"digits", strings.Repeat("9", 4301), "", "more than 4300 digits"},
	} {
		v, err := chat.FromJSON([]byte(c.js))
		if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: FromJSON(%.40s) = %v, want an error with %q", c.name, c.js, err, c.err)
		}
		if err != nil {
			continue
		}
		m := chat.NewMap(1)
		m.Set("v", v)
		if got, err := render("print", "{{ v }}", chat.Options{}, chat.Input{Extra: m}); err != nil || got != c.want {
			t.Errorf("%s: FromJSON(%s) prints as %s, %v, want %s", c.name, c.js, got, err, c.want)
		}
	}
}

// TestValues builds an input with the constructors and reads it with the accessors.
func TestValues(t *testing.T) {
	t.Parallel()
	m := chat.NewMap(0)
	for i, k := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") { // more than linearKeys keys
		m.Set(k, chat.IntValue(int64(i)))
	}
	m.Set("c", chat.ListValue(chat.NoneValue(), chat.BoolValue(true), chat.FloatValue(2), chat.StringValue("a\xffb")))
	if v, ok := m.Get("z"); !ok || v.Kind() != chat.Int || m.Len() != 26 {
		t.Errorf("Get(z) = %v, %v of %d keys", v, ok, m.Len())
	}
	if _, ok := m.Get("zz"); ok {
		t.Error("Get(zz) found a key")
	}
	if k, _ := m.At(2); func() string { s, _ := k.Text(); return s }() != "c" {
		t.Errorf("At(2) = %v, want c in its first place", k)
	}
	const src = "{{ c }}{{ messages }}{{ tools }}{{ add_generation_prompt }}{{ eos_token is defined }}"
	got, err := render("x", src, chat.Options{}, chat.Input{Extra: m, AddGenerationPrompt: true})
	if want := "[None, True, 2.0, 'a\uFFFDb']NoneNoneTrueFalse"; err != nil || got != want {
		t.Errorf("Render = %q, %v, want %q", got, err, want)
	}
}

// TestConcurrent renders one template from many goroutines.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	srcs := templates(t)
	for _, name := range []string{"Qwen-Qwen3-0.6B.jinja", "openai-gpt-oss-120b.jinja"} {
		tpl := parse(t, name, srcs[name], testOptions())
		in := benchInput(t, 10)
		want, err := tpl.Render(nil, in)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 20 {
					got, err := tpl.Render(nil, in)
					if err != nil || string(got) != string(want) {
						t.Errorf("%s: a render among others differs: %v", name, err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
}

// Values are equal if their JSON is, including key order, whatever the notation of numbers.
func TestEqual(t *testing.T) {
	t.Parallel()
	const doc = `{"name":"a\u00e9","n":[1,2.5,null,true,99999999999999999999],"o":{}}`
	for other, want := range map[string]bool{
		`{"name": "aé", "n": [1, 25e-1, null, true, 99999999999999999999], "o": {}}`: true,
		`{"n":[1,2.5,null,true,99999999999999999999],"name":"aé","o":{}}`:            false,
		`{"name":"aé","n":[1.0,2.5,null,true,99999999999999999999],"o":{}}`:          false,
		`{"name":"aé","n":[1,2.5,null,1,99999999999999999999],"o":{}}`:               false,
		`{"name":"aé","n":[1,2.5,null,true,99999999999999999998],"o":{}}`:            false,
		`{"name":"aé","n":[1,2.5,null,true],"o":{}}`:                                 false,
		`{"name":"aé","n":[1,2.5,null,true,99999999999999999999],"o":{"p":1}}`:       false,
		`{"name":"ae","n":[1,2.5,null,true,99999999999999999999],"o":{}}`:            false,
		`[]`: false,
	} {
		a := fromJSON(t, []byte(doc))
		b := fromJSON(t, []byte(other))
		if a.Equal(b) != want || b.Equal(a) != want || !b.Equal(b) {
			t.Errorf("%s: equal %v, want %v", other, !want, want)
		}
	}
	if (chat.Value{}).Equal(chat.NoneValue()) || !(chat.Value{}).Equal(chat.Value{}) {
		t.Error("undefined is itself only")
	}
}

// TestPrintedAgain: printing a dict again gives the same text as the first time, and respects
// another style and another template's limit.
func TestPrintedAgain(t *testing.T) {
	t.Parallel()
	m := chat.NewMap(2)
	m.Set("b", chat.StringValue("é"))
	m.Set("a", chat.IntValue(1))
	in := chat.Input{Messages: chat.ListValue(chat.MapValue(m))}
	show := func(filter string, o chat.Options) (string, error) {
		return render("printed", "{% for m in messages %}{{ m | "+filter+" }}{% endfor %}", o, in)
	}
	for range 2 {
		for filter, want := range map[string]string{
			"tojson":                        `{"b": "é", "a": 1}`,
			"tojson(ensure_ascii=true)":     `{"b": "\u00e9", "a": 1}`,
			"tojson(sort_keys=true)":        `{"a": 1, "b": "é"}`,
			"tojson(indent=1)":              "{\n \"b\": \"é\",\n \"a\": 1\n}",
			"tojson(separators=(',', ':'))": `{"b":"é","a":1}`,
		} {
			if got, err := show(filter, chat.Options{}); err != nil || got != want {
				t.Errorf("%s = %s, %v, want %s", filter, got, err, want)
			}
		}
		if got, err := show("tojson", chat.Options{MaxOutputBytes: 10}); err == nil || !strings.Contains(err.Error(), "10 bytes") {
			t.Errorf("beyond the limit: %q, %v", got, err)
		}
	}
}
