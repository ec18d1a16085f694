package report

import (
	"maps"
	"math"
	"math/bits"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/sink"
)

// TestPassAtKAgainstEnumeration compares passAtK with the enumeration of all choices of k samples.
func TestPassAtKAgainstEnumeration(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 10; n++ {
		for c := 0; c <= n; c++ {
			for k := 1; k <= n; k++ {
				chosen, passed := 0, 0
				for set := range uint(1) << n {
					if bits.OnesCount(set) != k {
						continue
					}
					chosen++
					if set&(1<<c-1) != 0 { // the first c samples pass
						passed++
					}
				}
				want := float64(passed) / float64(chosen)
				if got := passAtK(n, c, k); math.Abs(got-want) > 1e-12 {
					t.Errorf("passAtK(%d, %d, %d) = %v, want %v", n, c, k, got, want)
				}
			}
		}
	}
	if v := passAtK(100_000, 1, 50_000); math.Abs(v-.5) > 1e-9 {
		t.Errorf("one of 100,000, k of 50,000: %v, want 0.5", v)
	}
}

// TestBins checks that bins contain every value once.
func TestBins(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		values []float64
		bins   int // 0: not checked
	}{
		{"one value", []float64{7}, 1},
		{"rewards", []float64{0, 1, 1, 0, 1}, 2},
		{"twelve values", spread(100, func(i int) float64 { return float64(i % 12) }), 12},
		{"many", spread(1000, func(i int) float64 { return float64(i) }), 0},
		{"negative", spread(1000, func(i int) float64 { return float64(i)/1000 - .5 }), 0},
		{"tiny", spread(50, func(i int) float64 { return 1e-12 * float64(i) }), 0},
		{"huge", spread(50, func(i int) float64 { return 1e15 + float64(i) }), 0},
		{"tail", spread(500, func(i int) float64 { return math.Exp(float64(i) / 40) }), 0},
	} {
		d := distribute(tc.values)
		n := 0
		for i, b := range d.Bins {
			n += b.Count
			inside := 0
			for _, v := range tc.values {
				if v >= b.From && (v < b.To || i == len(d.Bins)-1 || b.From == b.To && v == b.From) {
					inside++
				}
			}
			if inside != b.Count {
				t.Errorf("%s: bin %+v, want %d", tc.name, b, inside)
			}
		}
		if n != len(tc.values) || tc.bins > 0 && len(d.Bins) != tc.bins || len(d.Bins) > maxBins+2 {
			t.Errorf("%s: %d values in %d bins, want %d in %d", tc.name, n, len(d.Bins), len(tc.values), tc.bins)
		}
	}
}

// spread returns f of 0 to n-1.
func spread(n int, f func(i int) float64) (v []float64) {
	for i := range n {
		v = append(v, f(i))
	}
	return v
}

// TestDistribute checks that percentiles use the nearest rank.
func TestDistribute(t *testing.T) {
	t.Parallel()
	d := distribute(spread(100, func(i int) float64 { return float64(100 - i) }))
	if d.P10 != 10 || d.P50 != 50 || d.P90 != 90 || d.P99 != 99 || d.Min != 1 || d.Max != 100 || math.Abs(d.Mean-50.5) > 1e-9 || math.Abs(d.Std-28.866) > 1e-3 {
		t.Errorf("%+v", d)
	}
	if distribute(nil) != nil {
		t.Error("a distribution of nothing")
	}
}

// TestTimelineIsBounded checks that a timeline of any length has few steps and loses no token.
func TestTimelineIsBounded(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, span := range []time.Duration{time.Second, time.Minute, time.Hour, 30 * 24 * time.Hour} {
		line := newTimeline()
		for i := range 1000 {
			end := start.Add(span * time.Duration((i*7)%1000) / 1000)
			line.add(end.Add(-span/3), end, 10)
		}
		s := line.series()
		var tokens, samples float64
		for i := range s.Tokens {
			tokens += s.Tokens[i]
			samples += s.Samples[i]
		}
		if tokens != 10_000 || samples != 1000 || len(s.Tokens) > maxSteps {
			t.Errorf("%v: %v tokens of %v samples in %d steps", span, tokens, samples, len(s.Tokens))
		}
		first := start.Add(-span / 3)
		if s.Start.After(first) || s.Start.Add(time.Duration(s.Step*float64(len(s.Tokens)))*time.Second).Before(line.end) {
			t.Errorf("%v: the series from %v on, %d steps of %v s, does not cover the run", span, s.Start, len(s.Tokens), s.Step)
		}
	}
	if newTimeline().series() != nil {
		t.Error("a series of nothing")
	}
}

func TestUnits(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		count(0): "0", count(999): "999", count(-1234567): "-1,234,567", count(1000): "1,000",
		seconds(0.424): "0.42 s", seconds(59.96): "1 min 00 s", seconds(65): "1 min 05 s", seconds(3599.6): "1 h 00 min", seconds(86400): "24 h 00 min",
		size(999): "999 B", size(1234567): "1.23 MB",
		share(0, 10): "0 %", share(10, 10): "100 %", share(1, 100000): "<0.1 %", share(99999, 100000): ">99.9 %", share(1, 3): "33.3 %", share(0, 0): "–",
	} {
		if got = strings.ReplaceAll(got, nbsp, " "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	row := func(least, greatest int32) *sink.StoredRow {
		return &sink.StoredRow{PolicyVersionMin: &least, PolicyVersionMax: &greatest}
	}
	var v versionSums
	v.add(&sink.StoredRow{})
	if got := v.versions(); got != nil {
		t.Errorf("versions() = %+v where none is known", got)
	}
	v.add(row(3, 3))
	v.add(row(3, 3))
	v.add(row(3, 4))
	got := v.versions()
	if got.Unknown != 1 || got.Mixed != 1 || !maps.Equal(got.Newest, map[string]int{"3": 2, "4": 1}) {
		t.Errorf("versions() = %+v, want 1 unknown, 1 mixed, 2 of 3 and 1 of 4", got)
	}
	for i := range int32(100) {
		v.add(row(i, i))
	}
	v.add(row(0, math.MaxInt32))
	got = v.versions()
	sum := 0
	for _, n := range got.Newest {
		sum += n
	}
	if len(got.Newest) > maxVersions || sum != 104 {
		t.Errorf("versions() = %+v: want at most %d entries of 104 rows", got, maxVersions)
	}
}
