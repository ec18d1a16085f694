package chat_test

import (
	"errors"
	"flag"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/tokenize/chat"
)

var hostiles = flag.Int("hostile", 400, "calls with hostile arguments to render; 0: all")

// hostileSetup creates large operands of all kinds within the limits of a hostile render.
const hostileSetup = `{% set N = 1000000000 %}{% set s = 'ab' * 32768 %}{% set u = 'aé' * 20000 %}{% set sp = 'a ' * 32768 %}{% set nl = '\n' * 65536 %}{% set tab = '\t' * 65536 %}` +
	`{% set hay = 'a' * 65536 %}{% set needle = 'a' * 32768 ~ 'b' %}{% set m = ('<&' * 32768)|safe %}{% set dig = '7' * 4000 %}{% set r = range(8192) %}{% set two = [hay ~ 'x', hay ~ 'y'] %}` +
	`{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(40) %}{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}{% set sh = ns.a %}{% set sh2 = ns.b %}`

var (
	hostileSubjects = strings.Fields("s u sp nl tab hay m l w r d ds o sh big N dig d.items() l|map('string')")
	hostileArgs     = []string{"", "N", "1", "-N", "s", "needle", "'a'", "''", "N, 'x'", "1, 'x'", "s, s", "'a', s", "'', s", "hay, 'x'", "w", "l", "sh", "attribute='k'", "true", "N, true, true", "s, true, true", "indent=N", "indent=s", "separators=(s, s)", "sort_keys=true", "by='value'", "0, N", "default='x'", "(needle, needle, needle)", "'%s', N"}
	hostileOps      = []string{
		"s + s", "s ~ s", "l + l", "s * N", "N * s", "s * 0", "'' * N", "s == s ~ ''", "two[0] == two[1]", "two[0] < two[1]", "two[0] in two[1]", "needle in hay", "'b' in hay", "needle not in hay",
		"u|tojson", "u|tojson(true)", "s[::-1]", "u[1:]", "u[::-1]", "u[-1]", "u[30000]", "s[N:]", "l[::-1]", "l[1:]", "l == l + []", "9 in l", "N in r", "'b' in r", "u|first", "l[:] == l[::-1][::-1]", "hay in w", "w == w + []", "sh == sh2", "sh in [sh2]", "d == ds",
		"big == big", "big|string", "dig|float ~ ''",
		"[s, s, s]|string", "w|string", "sh|string", "d|string", "{s: 1, needle: 2}", "{s: 1}[s ~ '']", "ds[s]", "ds.get(s)", "d.get(9999)", "d.keys()|list", "d.items()|list", "r|list",
		"strftime_now(s)", "s.strip", "[s.strip, s.strip, s.strip]", "[r|map('string'), r|map('string')]", "u|list|length", "hay|int", "dig|float", "('1e' ~ dig)|float", "none|default(s)", "s is in w", "s is eq(hay)",
	}
)

// hostileVars returns large lists and dicts, and a large int.
func hostileVars() *chat.Map {
	d, ds, vars := chat.NewMap(200), chat.NewMap(2048), chat.NewMap(6)
	for i := range 2048 {
		ds.Set(strconv.Itoa(i), chat.StringValue("x"))
	}
	for i := range 200 {
		d.Set("k"+strconv.Itoa(i), chat.IntValue(1))
	}
	long := chat.StringValue("b" + strings.Repeat("a", 65536))
	entry := chat.NewMap(2)
	entry.Set("k", long)
	entry.Set("v", chat.IntValue(1))
	vars.Set("d", chat.MapValue(d))
	vars.Set("ds", chat.MapValue(ds))
	vars.Set("l", chat.ListValue(slices.Repeat([]chat.Value{chat.IntValue(1), chat.IntValue(2)}, 4096)...))
	vars.Set("w", chat.ListValue(slices.Repeat([]chat.Value{long, long, chat.StringValue("a")}, 64)...))
	vars.Set("o", chat.ListValue(slices.Repeat([]chat.Value{chat.MapValue(entry)}, 512)...))
	big, _ := chat.FromJSONText(strings.Repeat("7", 4000))
	vars.Set("big", big)
	return vars
}

// hostileTemplates returns templates that repeat one operation, on operands of maximum size.
func hostileTemplates() (ops, calls []string) {
	var out []string
	add := func(op string) {
		out = append(out, hostileSetup+"{% for i in range(9999) %}{% for j in range(9999) %}{% set x = "+op+" %}{% endfor %}{% endfor %}")
		out = append(out, hostileSetup+"{% set ns.l = [] %}{% for i in range(9999) %}{% for j in range(9999) %}{% set ns.l = [ns.l, "+op+"] %}{% endfor %}{% endfor %}")
	}
	for _, op := range hostileOps {
		add(op)
	}
	ops, out = out, nil
	for _, s := range hostileSubjects {
		for _, a := range hostileArgs {
			for _, f := range callFilters {
				add(s + "|" + f.name + "(" + a + ")" + f.list())
			}
		}
	}
	for _, a := range hostileArgs {
		for _, s := range []string{"s", "u", "sp", "nl", "tab", "hay", "m", "w[0]"} {
			for _, m := range callStrMethods {
				add(s + "." + m + "(" + a + ")")
			}
		}
		for _, c := range []string{"d.get", "ds.get", "d.items", "range", "namespace"} {
			add(c + "(" + a + ")")
		}
	}
	return ops, out
}

type cost struct {
	took  time.Duration
	bytes uint64 // total allocation
	err   error
}

func measure(src string, opts chat.Options) cost {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	_, err := render("hostile", src, opts, chat.Input{Now: fixedNow(), Extra: hostileVars()})
	c := cost{took: time.Since(start), err: err}
	runtime.ReadMemStats(&after)
	c.bytes = after.TotalAlloc - before.TotalAlloc
	return c
}

// TestHostileOperations repeats every operation on large operands until it exceeds a limit. The
// total allocation, including garbage, is at most a few times the limit of Options. The time is
// proportional to the charged steps: it is compared with a plain loop of as many steps, and the
// deadline is far above it.
func TestHostileOperations(t *testing.T) {
	r := source(t)
	ops, calls := hostileTemplates()
	total := len(ops) + len(calls)
	if *hostiles > 0 && *hostiles < len(calls) {
		r.Shuffle(len(calls), func(i, j int) { calls[i], calls[j] = calls[j], calls[i] })
		calls = calls[:*hostiles]
	}
	srcs := slices.Concat(ops, calls)
	opts := chat.Options{MaxSteps: 400_000, MaxValueBytes: 32 << 20, MaxOutputBytes: 4 << 20}
	loop := "{% for i in range(9999) %}{% for j in range(9999) %}{% set x = [i] %}{% endfor %}{% endfor %}"
	plain := measure(loop, opts).took
	var slowest, largest cost
	limits := 0
	for _, src := range srcs {
		c := measure(src, opts)
		op := src[len(hostileSetup):]
		switch {
		case c.err == nil:
			t.Errorf("%s\nRender succeeded, want an error", op)
		case errors.Is(c.err, chat.ErrLimit):
			limits++
		}
		if c.bytes > 4*uint64(opts.MaxValueBytes) {
			t.Errorf("%s\nallocated %d MiB, the limit is %d: %v", op, c.bytes>>20, opts.MaxValueBytes>>20, c.err)
		}
		if c.took > 2*time.Second+50*plain {
			t.Errorf("%s\ntook %v, a plain loop of as many steps %v: %v", op, c.took, measure(loop, opts).took, c.err)
		}
		if c.took > slowest.took {
			slowest = c
		}
		if c.bytes > largest.bytes {
			largest = c
		}
	}
	t.Logf("%d of %d operations, %d until a limit: at most %v (a plain loop %v) and %d MiB (limit %d)",
		len(srcs), total, limits, slowest.took, plain, largest.bytes>>20, opts.MaxValueBytes>>20)
}
