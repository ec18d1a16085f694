package report

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestCharts checks that drawings of any values stay within their frame and have the right titles.
func TestCharts(t *testing.T) {
	t.Parallel()
	series := func(n int, y func(i int) float64) (out []point) {
		for i := range n {
			out = append(out, point{float64(i), y(i)})
		}
		return out
	}
	bars := func(v []float64) *figure { return histogram("Rewards", "reward", distribute(v), "samples") }
	for _, tc := range []struct {
		name string
		f    *figure
		want []string // titles
	}{
		{"rewards", bars([]float64{0, 1, 1}), []string{"<title>0: 1 samples</title>", "<title>1: 2 samples</title>"}},
		{"one value", bars([]float64{-7}), []string{"<title>-7: 1 samples</title>"}},
		{"twelve long values", bars(spread(12, func(i int) float64 { return 1 / float64(i+3) })), []string{"<title>0.3333: 1 samples</title>"}},
		{"many", bars(spread(1000, func(i int) float64 { return float64(i) })), []string{"<title>0 to 50: 50 samples</title>"}},
		{"negative", bars(spread(1000, func(i int) float64 { return float64(i) - 500 })), []string{"<title>-500 to -450: 50 samples</title>"}},
		{"tiny", bars(spread(50, func(i int) float64 { return 1e-12 * float64(i) })), nil},
		{"huge", bars(spread(50, func(i int) float64 { return 1e15 + float64(i) })), nil},
		{"no rate", lines("Rate", "s", "tokens/s", []line{{points: series(5, func(int) float64 { return 0 }), step: true, area: true}}), []string{"<title>2 s: 0 tokens/s</title>"}},
		{"steps", lines("Rate", "s", "tokens/s", []line{{points: series(9, func(i int) float64 { return math.Exp(float64(i)) }), step: true}}), []string{"<title>3 s: 20.09 tokens/s</title>"}},
		{"two", lines("Limit", "s", "samples", []line{
			{name: "http://a", points: series(9, func(i int) float64 { return float64(i) })},
			{name: "none"},
			{name: "<b>", points: series(3, func(i int) float64 { return 1e9 })},
		}), []string{"<title>http://a</title>", "<title>&lt;b&gt;</title>"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			svg := string(tc.f.SVG)
			for _, want := range tc.want {
				if !strings.Contains(svg, want) {
					t.Errorf("no %s in %s", want, svg)
				}
			}
			if m := regexp.MustCompile(`NaN|Inf`).FindString(svg); m != "" {
				t.Errorf("%s in %s", m, svg)
			}
			for _, d := range regexp.MustCompile(` d="([^"]*)"`).FindAllStringSubmatch(svg, -1) {
				for _, err := range outside(d[1]) {
					t.Errorf("%s: %s", d[1], err)
				}
			}
			labels := regexp.MustCompile(`<text class="t m" x="([0-9.]+)" y="171">([^<]*)<`).FindAllStringSubmatch(svg, -1)
			end := 0.0
			for _, l := range labels {
				at, err := strconv.ParseFloat(l[1], 64)
				half := float64(len(l[2])*letterWidth) / 2
				if err != nil || at-half < end {
					t.Errorf("the label %s at %s lies on the one before it", l[2], l[1])
				}
				end = at + half
			}
			if len(labels) == 0 {
				t.Error("the x axis has no label")
			}
		})
	}
	if lines("Rate", "s", "tokens/s", []line{{name: "a"}}) != nil || histogram("Rewards", "reward", nil, "samples") != nil {
		t.Error("a drawing of nothing")
	}
	for n := range 3 { // all at one time: the axis has no extent
		all := []line{{points: []point{{5, 1}}}, {points: series(0, nil)}}
		for range n {
			all[1].points = append(all[1].points, point{5, 2})
		}
		if f := lines("Rate", "s", "tokens/s", all); f == nil || f.SVG != "" || f.Note != "Too short to plot." || f.Title != "Rate" {
			t.Errorf("lines without extent: %+v", f)
		}
	}
}

// outside returns the coordinates of a path that are outside the drawing.
func outside(d string) (out []string) {
	x, y := 0.0, 0.0
	for _, m := range regexp.MustCompile(`([MLHVhvZ])([-0-9.]*) ?([-0-9.]*)`).FindAllStringSubmatch(d, -1) {
		a, _ := strconv.ParseFloat(m[2], 64)
		b, _ := strconv.ParseFloat(m[3], 64)
		switch m[1] {
		case "M", "L":
			x, y = a, b
		case "H":
			x = a
		case "V":
			y = a
		case "h":
			x += a
		case "v":
			y += a
		}
		if x < leftMargin-.1 || x > plotWidth-rightMargin+.1 || y < topMargin-.1 || y > plotHeight-bottomMargin+3.1 {
			out = append(out, fmt.Sprintf("%v,%v is outside", x, y))
		}
	}
	return out
}
