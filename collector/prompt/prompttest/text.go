package prompttest

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

var words = strings.Fields(`the a of server token and call which prompt is renders exactly history was in count however because model sampled
	tools we first then look at file line error check value returns every number between before after should must can not find where
	that this it from with without read write open close path folder name list map key byte string length index offset buffer queue worker
	request answer reply message agent step trace record row shard commit limit window cache retry timeout connection client thread lock
	small large empty wrong right same other new old next last whole part half double under over until while during again still already
	naïve café “quoted” Größe 日本語 データ → ≤ ≥ 👍 été résumé façade —`)

func word(r *rand.Rand) string { return words[r.IntN(90)] } // ASCII words only

func prose(r *rand.Rand, n int) string {
	var b strings.Builder
	start := true
	for i := range n {
		w := words[r.IntN(len(words))]
		if start && w[0] < 0x80 {
			w = strings.ToUpper(w[:1]) + w[1:]
		}
		start = false
		b.WriteString(w)
		if i == n-1 {
			break
		}
		switch u := r.Float64(); {
		case u < 0.06:
			b.WriteString(".\n")
			start = true
		case u < 0.07:
			b.WriteString(".\n\n")
			start = true
		case u < 0.12:
			b.WriteString(", ")
		case u < 0.14:
			fmt.Fprintf(&b, " (%d) ", r.IntN(10000))
		case u < 0.16:
			fmt.Fprintf(&b, ` "%s" `, word(r))
		default:
			b.WriteByte(' ')
		}
	}
	b.WriteByte('.')
	return b.String()
}

func source(r *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		b.WriteString(strings.Repeat("    ", r.IntN(4)))
		switch r.IntN(7) {
		case 0:
			fmt.Fprintf(&b, "def %s_%s(%s, %s=None):", word(r), word(r), word(r), word(r))
		case 1:
			fmt.Fprintf(&b, "if %s[%d] != \"%s\" and not %s:", word(r), r.IntN(100), word(r), word(r))
		case 2:
			fmt.Fprintf(&b, "return %s.%s(\"%s\\n\", %d)", word(r), word(r), word(r), r.IntN(1000))
		case 3:
			fmt.Fprintf(&b, "# %s", prose(r, 7))
		case 4:
			fmt.Fprintf(&b, "%s = {\"%s\": '%s', \"%s\": %.3f}", word(r), word(r), words[r.IntN(len(words))], word(r), r.Float64())
		case 5:
			fmt.Fprintf(&b, "assert re.match(r\"^\\w+\\s*=\\s*[%s]\", %s), \"%s\"", word(r), word(r), word(r))
		default:
			fmt.Fprintf(&b, "%s.%s(%s, %s=%d)", word(r), word(r), word(r), word(r), r.IntN(64))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// terminal returns n lines of terminal output, with colors and tabs.
func terminal(r *rand.Rand, n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte('\n')
		}
		switch r.IntN(4) {
		case 0:
			fmt.Fprintf(&b, "\x1b[32mok\x1b[0m\tsrc/%s/%s.py::%s\t%.3fs", word(r), word(r), word(r), r.Float64())
		case 1:
			fmt.Fprintf(&b, "\x1b[31mFAILED\x1b[0m src\\%s.py:%d: \"%s\" → %s", word(r), r.IntN(500), word(r), words[r.IntN(len(words))])
		default:
			b.WriteString(strings.ReplaceAll(prose(r, 9), "\n", " "))
		}
	}
	return b.String()
}
