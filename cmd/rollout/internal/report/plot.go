package report

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
)

// lineInks are the color classes of the lines in one plot.
var lineInks = []string{"s1", "s2", "s3", "s4"}

type line struct {
	name   string
	points []point
	step   bool // true if each value holds until the next point
	area   bool
}

type point struct{ x, y float64 }

// A histogram with at most maxCounts bins shows the count of each bin. A line with at most
// maxTitles points shows the value at each point.
const (
	maxCounts = 8
	maxTitles = 100
)

// histogram draws the bins of d. If each bin is a single value, the bins are drawn with gaps and
// with their counts.
func histogram(title, unit string, d *Distribution, what string) *figure {
	if d == nil {
		return nil
	}
	most := 0
	for _, b := range d.Bins {
		most = max(most, b.Count)
	}
	high := top(float64(most))
	x := axis{name: unit, low: d.Bins[0].From, high: d.Bins[len(d.Bins)-1].To}
	single := x.low == d.Bins[0].To
	if single { // each bin is a single value and gets one slot
		x.low, x.high = -.6, float64(len(d.Bins))-.4
		for i, b := range d.Bins {
			x.ticks = append(x.ticks, tick{float64(i), short(b.From)})
		}
	} else {
		x.ticks = ticks(x.low, x.high, 5)
	}
	c := newChart(x, axis{name: what, high: high, ticks: ticks(0, high, 4)}, 0)
	for i, b := range d.Bins {
		from, to, says := b.From, b.To, short(b.From)+" to "+short(b.To)
		if single {
			from, to, says = float64(i)-.35, float64(i)+.35, value(b.From)
		}
		c.box("f s1", from, to, 0, float64(b.Count), 1, fmt.Sprintf("%s: %s %s", says, count(b.Count), what))
		if single && len(d.Bins) <= maxCounts {
			c.text("lb m", c.x.place(float64(i)), c.y.place(float64(b.Count))-3, short(float64(b.Count)))
		}
	}
	return c.figure(title)
}

// lines draws lines on a y axis from 0 to their highest value.
func lines(title, x, y string, all []line) *figure {
	high := 0.0
	for _, l := range all {
		for _, p := range l.points {
			high = max(high, p.y)
		}
	}
	high = top(high)
	low, end := extent(all)
	switch {
	case math.IsInf(low, 1):
		return nil
	case end <= low:
		return tooShort(title)
	}
	return drawLines(title, axis{name: x, low: low, high: end, ticks: ticks(low, end, 5)}, axis{name: y, high: high, ticks: ticks(0, high, 4)}, all)
}

// extent returns the lowest and the highest x of the lines, or +Inf and -Inf if there are no
// points.
func extent(all []line) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, l := range all {
		for _, p := range l.points {
			low, high = min(low, p.x), max(high, p.x)
		}
	}
	return low, high
}

// tooShort returns a figure with a note instead of a plot. It is used if the data covers too little
// time.
func tooShort(title string) *figure {
	return &figure{Title: title, Note: "Too short to plot."}
}

// drawLines draws lines on the given axes. It returns nil if there are no points.
func drawLines(title string, x, y axis, all []line) *figure {
	named, drawn := 0, 0
	for _, l := range all {
		if len(l.points) > 0 {
			drawn++
		}
	}
	if drawn == 0 {
		return nil
	}
	if len(all) > 1 {
		named = drawn
	}
	c := newChart(x, y, named)
	row := 0
	for i, l := range all {
		if len(l.points) == 0 {
			continue
		}
		ink := lineInks[i%len(lineInks)]
		d := c.trace(&l)
		if l.area {
			c.path("f a1", fmt.Sprintf("%sV%sH%sZ", d, num(c.y.from), num(c.x.place(l.points[0].x))), "")
		}
		c.path("l w "+ink, d, l.name)
		if named > 0 {
			at := float64(topMargin + row*legendLine + legendLine/2)
			c.path("l w "+ink, fmt.Sprintf("M%s %sh-20", num(c.x.to), num(at)), "")
			c.text("t e", c.x.to-25, at+4, termsafe.Text(l.name, 44))
			row++
		}
	}
	if len(all) == 1 && len(all[0].points) <= maxTitles {
		c.titles(&all[0])
	}
	return c.figure(title)
}

// trace returns the SVG path of a line.
func (c *chart) trace(l *line) string {
	var d strings.Builder
	for i, p := range l.points {
		x, y := num(c.x.place(p.x)), num(c.y.place(p.y))
		switch {
		case i == 0:
			fmt.Fprintf(&d, "M%s %s", x, y)
		case l.step:
			fmt.Fprintf(&d, "H%sV%s", x, y)
		default:
			fmt.Fprintf(&d, "L%s %s", x, y)
		}
	}
	return d.String()
}

// titles draws an invisible box for each point. While the pointer is over the box, the browser
// shows the point's value. The box covers the x values that are nearest to the point or, in a step
// line, the range in which the value holds.
func (c *chart) titles(l *line) {
	for i, p := range l.points {
		from, to := p.x, p.x
		if i > 0 && !l.step {
			from = (l.points[i-1].x + p.x) / 2
		}
		if i+1 < len(l.points) {
			if to = l.points[i+1].x; !l.step {
				to = (p.x + to) / 2
			}
		}
		if from < to {
			c.box("f h", from, to, 0, c.y.high, 0, fmt.Sprintf("%s %s: %s %s", short(p.x), c.x.name, value(p.y), c.y.name))
		}
	}
}

// elapsed returns the time unit for an axis that spans d, and the length of the unit in seconds.
func elapsed(d time.Duration) (unit string, per float64) {
	switch {
	case d <= 3*time.Minute:
		return "s", 1
	case d <= 3*time.Hour:
		return "min", 60
	case d <= 72*time.Hour:
		return "h", 3600
	}
	return "days", 86400
}
