package report

import (
	"html/template"
	"math"
	"strconv"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// The size of a plot in CSS pixels. It is as wide as a telephone, so that letters
// keep their size there; wider pages have more plots in a line.
const (
	plotWidth  = 360
	plotHeight = 190
	fontSize   = 11
)

// A figure is a plot with its caption.
type figure struct {
	Title string
	SVG   template.HTML // made by a canvas, which escapes text
}

// A line is one line of a plot.
type line struct {
	name string
	xy   plotter.XYs
	step bool // the value holds until the next point
	area bool
}

// newPlot is an empty plot in our style.
func newPlot(x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	p.X.Label.Text, p.Y.Label.Text = x, y
	face := font.Font{Typeface: "Liberation", Variant: "Sans", Size: fontSize}
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Font, a.Label.TextStyle.Color = face, inkText
		a.Tick.Label.Font, a.Tick.Label.Color = face, inkText
		a.Tick.Color, a.Color = inkAxis, inkAxis
		a.Width, a.Tick.Width = 1, 1
		a.Tick.Length = 3
		a.Padding = 0
	}
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks(5), ticks(4)
	p.Y.Width, p.Y.Tick.Width = 0, 0
	p.Legend.TextStyle.Font, p.Legend.TextStyle.Color = face, inkText
	p.Legend.Top, p.Legend.Padding = true, 2
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Vertical.Width = nil, 0
	grid.Horizontal.Color, grid.Horizontal.Width = inkGrid, 1
	p.Add(grid)
	return p
}

// drawn draws p; the right edge is kept free for half a tick label.
func drawn(p *plot.Plot, title string) figure {
	c := newCanvas(plotWidth, plotHeight)
	area := draw.New(c)
	area = draw.Crop(area, 0, -14, 2, -6)
	p.Draw(area)
	return figure{Title: title, SVG: template.HTML(c.svg(title))} //nolint:gosec // the canvas escapes all text
}

// histogram draws bins; those of single values stand apart and bear their count.
func histogram(title, unit string, d *Distribution, what string) *figure {
	if d == nil {
		return nil
	}
	p := newPlot(unit, what)
	h := &plotter.Histogram{FillColor: inkBar}
	single := d.Bins[0].From == d.Bins[0].To
	var names []plot.Tick
	var counts plotter.XYLabels
	for i, b := range d.Bins {
		from, to := b.From, b.To
		if single {
			from, to = float64(i)-.35, float64(i)+.35
			names = append(names, plot.Tick{Value: float64(i), Label: short(b.From)})
			counts.XYs = append(counts.XYs, plotter.XY{X: float64(i), Y: float64(b.Count)})
			counts.Labels = append(counts.Labels, short(float64(b.Count)))
		}
		h.Bins = append(h.Bins, plotter.HistogramBin{Min: from, Max: to, Weight: float64(b.Count)})
	}
	h.LineStyle = draw.LineStyle{Color: ink("bg"), Width: 1} // keeps neighbours apart
	p.Add(h)
	if single {
		p.X.Min, p.X.Max = -.6, float64(len(d.Bins))-.4
		p.X.Tick.Marker = plot.ConstantTicks(names)
		p.X.Tick.Width = 0
		if labels, err := plotter.NewLabels(counts); err == nil && len(d.Bins) <= 8 {
			for i := range labels.TextStyle {
				labels.TextStyle[i].Font, labels.TextStyle[i].Color = p.X.Tick.Label.Font, inkLabel
				labels.TextStyle[i].XAlign, labels.TextStyle[i].YAlign = draw.XCenter, draw.YBottom
			}
			labels.Offset = vg.Point{Y: 2}
			p.Add(labels)
		}
	}
	p.Y.Min = 0
	p.Y.Max = top(p.Y.Max)
	f := drawn(p, title)
	return &f
}

// lines draws lines from 0 on. What else the plot needs, edit does; it may be nil.
func lines(title, x, y string, all []line, edit func(*plot.Plot)) *figure {
	p := newPlot(x, y)
	n := 0
	for i, l := range all {
		if len(l.xy) == 0 {
			continue
		}
		n++
		c := lineInks[i%len(lineInks)]
		k := &plotter.Line{XYs: l.xy, LineStyle: draw.LineStyle{Color: c, Width: 1.6}}
		if l.step {
			k.StepStyle = plotter.PostStep
		}
		if l.area {
			k.FillColor = inkArea
		}
		p.Add(k)
		if len(all) > 1 {
			p.Legend.Add(l.name, k)
		}
	}
	if n == 0 {
		return nil
	}
	p.Y.Min = 0
	p.Y.Max = top(p.Y.Max)
	if n > 1 {
		p.Y.Max *= 1 + .14*float64(n) // room for the names
		p.Legend.YOffs = 2
	}
	if p.X.Max <= p.X.Min {
		p.X.Max = p.X.Min + 1
	}
	if edit != nil {
		edit(p)
	}
	f := drawn(p, title)
	return &f
}

// top leaves some air above the highest value.
func top(v float64) float64 {
	if v <= 0 || math.IsInf(v, 0) {
		return 1
	}
	return v * 1.12
}

// ticks marks about n round values.
type ticks int

// Ticks is plot.Ticker's.
func (n ticks) Ticks(low, high float64) (out []plot.Tick) {
	if high <= low {
		return nil
	}
	step := roundStep((high - low) / float64(n))
	for i := math.Ceil(low/step - 1e-9); i*step <= high+1e-9*step; i++ {
		v := i*step + 0 // no negative zero
		out = append(out, plot.Tick{Value: v, Label: short(v)})
	}
	return out
}

// short writes a number for an axis: 0.25, 1,200 as 1.2k, 3.4M.
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

// elapsed is a clock for an axis that spans d.
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
