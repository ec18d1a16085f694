package chat_test

import (
	"flag"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize/chat"
)

var codePointStep = flag.Int("codepoints", 509, "compare one code point in so many with Python, besides the first 768 and the first and last of every category; 1: all")

// These templates use the functions whose result depends on single characters. Escapes must agree
// for every code point, Unicode categories and mappings only for those that the interpreter knows.
const (
	escapesOfText = `{{ s|tojson }}
{{ s|tojson(ensure_ascii=true) }}
{{ {s: [s]}|tojson(ensure_ascii=true, indent=1) }}
{{ {s: [s]}|tojson(separators=[',', ':'], sort_keys=true) }}
{{ ('<b>'|safe) + s }}|{{ ('<b>'|safe) ~ s }}`
	escapesOfEach = `{% for c in s %}{{ c|tojson(ensure_ascii=true) }}{{ {c: c}|tojson(ensure_ascii=true) }}{{ (''|safe) + c }}{% endfor %}`
	wordsOfText   = `{{ s|upper }}|{{ s|lower }}|{{ s|title }}|{{ s|capitalize }}|{{ s.title() }}
{{ [s] }}|{{ {s: (s,)} }}|{{ ((''|safe) + s)|list|length }}
{{ s.split() }}|{{ s|indent(1) }}`
	wordsOfEach = `{% for c in s %}{{ [c] }}{{ ['a"\'' ~ c] }}{{ c|upper }}{{ c|lower }}{{ c|title }}{{ ('a' ~ c ~ 'b')|title }}{{ c|capitalize }}{{ ('a' ~ c ~ 'b').title() }}{{ ('aΣ' ~ c)|lower }}{{ ('aΣ' ~ c ~ 'b')|lower -}}
{{ c|trim|length }}{{ c.strip()|length }}{{ ('x' ~ c ~ 'y').split()|length }}{{ ('x' ~ c ~ 'y')|indent(1)|length }}{{ c|int(7) }}
{% endfor %}`
)

// TestEveryCodePointAgainstPython compares every function that escapes, classifies or maps
// characters. The short form uses a sample of code points, make differential uses all.
func TestEveryCodePointAgainstPython(t *testing.T) {
	t.Parallel()
	unknown := unknownToPython(t)
	var all, words []rune
	for c := rune(0); c <= unicode.MaxRune; c++ {
		if utf8.ValidRune(c) && (*codePointStep <= 1 || c < 768 || c%rune(*codePointStep) == 0 || edge(c)) {
			all = append(all, c)
			if !unknown[c] {
				words = append(words, c)
			}
		}
	}
	var requests []request
	for _, of := range []struct {
		templates []string
		chars     []rune
	}{{[]string{escapesOfText, escapesOfEach}, all}, {[]string{wordsOfText, wordsOfEach}, words}} {
		for _, source := range of.templates {
			const chunk = 2048 // small enough for Python's time limit
			for from := 0; from < len(of.chars); from += chunk {
				text := string(of.chars[from:min(from+chunk, len(of.chars))])
				vars := fmt.Appendf(nil, `{"s": %s}`, quoted(text))
				requests = append(requests, request{Src: &source, Vars: vars})
			}
		}
	}
	answers := askPython(t, nil, requests)
	parsed, bad := map[string]*chat.Template{}, 0
	for i, r := range requests {
		if parsed[*r.Src] == nil {
			parsed[*r.Src] = parse(t, "test", *r.Src, testOptions())
		}
		if answers[i].Out == nil {
			t.Fatalf("Python: %+v for %.600s", answers[i], r.Vars)
		}
		out, err := parsed[*r.Src].Render(nil, input(t, r.Vars))
		if err != nil {
			t.Fatal(err)
		}
		theirs := strings.Split(*answers[i].Out, "\n")
		for n, ours := range strings.Split(string(out), "\n") {
			if n >= len(theirs) || ours != theirs[n] {
				if bad++; bad <= 20 {
					t.Errorf("%.60q, line %d: %s", *r.Src, n, firstDifference(ours, theirs[min(n, len(theirs)-1)]))
				}
			}
		}
	}
	t.Logf("%d code points escaped, %d classified and mapped", len(all), len(words))
}

// edge reports whether the category of a character differs from a neighbor's.
func edge(c rune) bool {
	of := func(c rune) string {
		for _, name := range categories {
			if unicode.Is(unicode.Categories[name], c) {
				return name
			}
		}
		return ""
	}
	return c > 0 && of(c) != of(c-1) || of(c) != of(c+1)
}

var categories = strings.Fields("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co")

// unknownToPython returns the characters of which the interpreter has other data. With Unicode 15.0
// there are none.
func unknownToPython(t *testing.T) map[rune]bool {
	t.Helper()
	const script = `import sys, unicodedata as u
if u.unidata_version != "15.0.0":
    print(*[c for c in range(sys.maxunicode + 1) if u.category(chr(c)) == "Cn"])`
	out, err := exec.Command(interpreter(), "-c", script).Output()
	if err != nil {
		t.Fatalf("%s: %v", interpreter(), err)
	}
	unknown := map[rune]bool{}
	if len(out) > 0 { // became lowercase letters in 15.0
		for _, c := range "\u10fc\ua7f2\ua7f3\ua7f4\uab69" {
			unknown[c] = true
		}
	}
	for word := range strings.FieldsSeq(string(out)) {
		c, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		unknown[rune(c)] = true
	}
	return unknown
}
