package report

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
)

// The size of a plot and its margins, in CSS pixels. A plot is as wide as a phone's screen, so that
// phones do not scale its text. A wider page shows several plots side by side.
const (
	plotWidth, plotHeight = 360, 190

	leftMargin, rightMargin = 46, 14 // left: y label and axis name; right: half a label
	topMargin, bottomMargin = 8, 34  // top: empty; bottom: x label and axis name
	fontSize, letterWidth   = 11, 6
	legendLine              = 15
)

type figure struct {
	Title string
	SVG   template.HTML // written by a chart, which escapes text
	Note  string        // shown instead of a drawing
}

// An axis maps values to coordinates.
type axis struct {
	name      string
	low, high float64 // range of the values
	from, to  float64 // the coordinates of low and high
	log       bool
	ticks     []tick
}

type tick struct {
	at    float64
	label string
}

func (a *axis) place(v float64) float64 {
	low, high := a.low, a.high
	if a.log {
		v, low, high = math.Log(v), math.Log(low), math.Log(high)
	}
	return a.from + (v-low)/(high-low)*(a.to-a.from)
}

// A chart writes SVG for a page. It uses no style attributes, so a strict content security policy
// accepts the SVG. Colors are classes in the page's style sheet, so the same drawing works in light
// and dark mode. A title element shows the value under the pointer.
type chart struct {
	out  strings.Builder
	x, y axis
}

// newChart draws the axis names, ticks and grid lines. It leaves space above the drawing for a
// legend of the given number of lines.
func newChart(x, y axis, legend int) *chart {
	c := &chart{x: x, y: y}
	c.x.from, c.x.to = leftMargin, plotWidth-rightMargin
	c.y.from, c.y.to = plotHeight-bottomMargin, float64(topMargin+legend*legendLine)
	for _, t := range c.y.ticks {
		at := c.y.place(t.at)
		c.path("l gr", fmt.Sprintf("M%s %sH%s", num(c.x.from), num(at), num(c.x.to)), "")
		c.text("t e", c.x.from-5, at+4, t.label)
	}
	for i, t := range c.x.ticks {
		if i%c.every() != 0 {
			continue
		}
		at := c.x.place(t.at)
		c.path("l ax", fmt.Sprintf("M%s %sv3", num(at), num(c.y.from)), "")
		c.text("t m", at, c.y.from+fontSize+4, t.label)
	}
	c.path("l ax", fmt.Sprintf("M%s %sH%s", num(c.x.from), num(c.y.from), num(c.x.to)), "")
	c.text("t m", (c.x.from+c.x.to)/2, plotHeight-4, x.name)
	fmt.Fprintf(&c.out, `<text class="t m" transform="translate(10 %s) rotate(-90)">%s</text>`, num((c.y.from+c.y.to)/2), html.EscapeString(y.name))
	return c
}

// every returns the smallest n such that every n-th label of the x axis can be drawn without
// overlap.
func (c *chart) every() int {
	if len(c.x.ticks) < 2 {
		return 1
	}
	longest := 0
	for _, t := range c.x.ticks {
		longest = max(longest, len(t.label))
	}
	apart := c.x.place(c.x.ticks[1].at) - c.x.place(c.x.ticks[0].at)
	return max(1, int(math.Ceil(float64(longest*letterWidth+4)/apart)))
}

func (c *chart) figure(title string) *figure {
	svg := fmt.Sprintf(`<svg class="plot" viewBox="0 0 %d %d" role="img" aria-label="%s" xmlns="http://www.w3.org/2000/svg">%s</svg>`,
		plotWidth, plotHeight, html.EscapeString(fmt.Sprintf("%s: %s by %s", title, c.y.name, c.x.name)), c.out.String())
	return &figure{Title: title, SVG: template.HTML(svg)} //nolint:gosec // all text in it is escaped
}

func (c *chart) path(class, d, title string) {
	if title == "" {
		fmt.Fprintf(&c.out, `<path class="%s" d="%s"/>`, class, d)
		return
	}
	fmt.Fprintf(&c.out, `<path class="%s" d="%s"><title>%s</title></path>`, class, d, html.EscapeString(termsafe.Text(title, maxName)))
}

// box fills the rectangle between two x values and two y values.
func (c *chart) box(class string, x0, x1, y0, y1, gap float64, title string) {
	left, right := c.x.place(x0), c.x.place(x1)
	c.path(class, fmt.Sprintf("M%s %sV%sH%sV%sZ", num(left), num(c.y.place(y0)), num(c.y.place(y1)), num(max(right-gap, left+.5)), num(c.y.place(y0))), title)
}

// text writes text at a coordinate. The parameter class determines how the text is aligned with x.
func (c *chart) text(class string, x, y float64, text string) {
	fmt.Fprintf(&c.out, `<text class="%s" x="%s" y="%s">%s</text>`, class, num(x), num(y), html.EscapeString(text))
}

func num(v float64) string {
	return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
}

// top returns v plus some space above the highest value.
func top(v float64) float64 {
	if v <= 0 || math.IsInf(v, 0) {
		return 1
	}
	return v * 1.12
}

// ticks returns about n ticks at round values between low and high.
func ticks(low, high float64, n int) (out []tick) {
	if high <= low {
		return nil
	}
	step := roundStep((high - low) / float64(n))
	for i := math.Ceil(low/step - 1e-9); i*step <= high+1e-9*step; i++ {
		v := i*step + 0 // + 0 avoids negative zero
		out = append(out, tick{v, short(v)})
	}
	return out
}

// short formats a number for an axis, such as 0.25, 1.2k or 3.4M.
func short(v float64) string {
	abs := math.Abs(v)
	for _, u := range []struct {
		unit  string
		value float64
	}{{"G", 1e9}, {"M", 1e6}, {"k", 1e3}} {
		if abs >= u.value {
			return strconv.FormatFloat(v/u.value, 'g', 3, 64) + u.unit
		}
	}
	return strconv.FormatFloat(math.Round(v*1e4)/1e4, 'g', 4, 64)
}
