package pattern

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestHostile checks that no pattern needs much time or memory to compile.
func TestHostile(t *testing.T) {
	t.Parallel()
	repeat := func(format string, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, 0x4E00+i)
		}
		return b.String()
	}
	for name, expr := range map[string]string{
		"many sets":         "x" + repeat("[%c]", 800),
		"many optional":     "x" + repeat("%c?", 60),
		"optional to match": "x" + strings.Repeat("a?", 1000),
		"optional classes":  "x" + strings.Repeat("[ab]?[bc]?[cd]?", 200) + "e",
		"repeated":          "(?:(?:a{1,30}b){1,30}c){1,30}",
		"nested":            strings.Repeat("(?:", 49) + "a" + strings.Repeat("{1,2})", 49),
		"ambiguous":         "(?:[ab]*a[ab]{60}c)|x",
		"exponential":       "[ab]*a[ab][ab][ab][ab][ab][ab][ab][ab][ab][ab]c|x",
		"counted":           "x" + strings.Repeat("[a-z]{0,9}[0-9]{0,9}", 60),
		"alternatives":      repeat("%c.?.?.?.?|", 300) + "x",
		"long class":        "[" + repeat("%c", 1300) + "]",
		"ranges":            "x" + repeat(`[%c-\x{10000}]?`, 60),
		"deep class":        strings.Repeat("[^", 49) + "a" + strings.Repeat("]", 49),
		"many classes":      "x(?:" + repeat("%c|", 60) + "a)?" + strings.Repeat("(?:.?.?.?a)?", 100),
		"and":               strings.Repeat("[", 40) + "a" + strings.Repeat("&&[^b]]", 40),
	} {
		start := time.Now()
		p, err := Compile(expr)
		took := time.Since(start)
		size := 0
		if p != nil {
			size = len(p.ascii) + len(p.begins) + len(p.first) + 2*len(p.index) + 256*len(p.block) + 4*len(p.table)
		}
		t.Logf("%s: %v, %d bytes, %.80v", name, took, size, err)
		if took > 2*time.Second || size > 4<<20 {
			t.Errorf("%s: compiled in %v to %d bytes", name, took, size)
		}
	}
}
