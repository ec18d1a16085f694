package report

import (
	_ "embed" // for embedding the page and its style
	"fmt"
	"slices"
	"strconv"
	"time"
)

type spreads struct {
	Title string
	Rows  []spreadRow
}

type spreadRow struct {
	Name string
	D    *Distribution
	Show func(float64) string
}

func (p *page) rewards() {
	w := p.R.Rewards
	p.RewardPlot = histogram("Samples by reward", "reward", w.All, "samples")
	if len(w.PassAtK) < 2 {
		return
	}
	var points []point
	x := axis{name: "k", low: 1, high: float64(w.PassAtK[len(w.PassAtK)-1].K), log: true}
	for _, k := range w.PassAtK {
		points = append(points, point{float64(k.K), k.Value})
		x.ticks = append(x.ticks, tick{float64(k.K), strconv.Itoa(k.K)})
	}
	p.PassPlot = drawLines("pass@k as k grows", x, axis{name: "share of groups", high: 1, ticks: ticks(0, 1, 4)}, []line{{points: points}})
}

func (p *page) lengths() {
	l := p.R.Lengths
	p.Lengths = spreads{"Tokens, calls and rows", []spreadRow{
		{"prompt tokens per row", l.Prompt, amount},
		{"tokens per row", l.Sequence, amount},
		{"sampled tokens per sample", l.Completion, amount},
		{"calls per sample", l.Calls, amount},
		{"rows per sample", l.RowsPer, amount},
	}}
	p.LengthPlots = present(
		histogram("Prompt length", "tokens", l.Prompt, "rows"),
		histogram("Row length", "tokens", l.Sequence, "rows"),
		histogram("Sampled tokens", "tokens", l.Completion, "samples"),
	)
}

func (p *page) times() {
	t := p.R.Time
	p.Times.Title = "Sample times"
	for _, row := range []spreadRow{
		{"total", t.Total, seconds},
		{"working (excluding queueing and backoff)", t.Working, seconds},
		{"total (failed samples)", t.Failed, seconds},
	} {
		if row.D != nil {
			p.Times.Rows = append(p.Times.Rows, row)
		}
	}
	p.TimePlots = append(present(histogram("Time per sample", "seconds", t.Total, "samples")), p.throughput()...)
}

// throughput plots rates over the time since the first sample started. A sample counts at the time
// when it ends.
func (p *page) throughput() []*figure {
	s := p.R.Throughput
	if s == nil {
		return nil
	}
	const tokens, samples = "Sampled tokens per second", "Samples ended per minute"
	if len(s.Tokens) < 2 {
		return []*figure{tooShort(tokens), tooShort(samples)}
	}
	unit, per := elapsed(time.Duration(float64(len(s.Tokens)) * s.Step * float64(time.Second)))
	since := unit + " since " + s.Start.Format("2006-01-02 15:04:05")
	curve := func(values []float64, scale float64) []line {
		var points []point
		for i, v := range values {
			points = append(points, point{float64(i) * s.Step / per, v * scale})
		}
		last := points[len(points)-1].y
		return []line{{points: append(points, point{float64(len(values)) * s.Step / per, last}), step: true, area: true}}
	}
	return present(
		lines(tokens, since, "tokens/s", curve(s.Tokens, 1/s.Step)),
		lines(samples, since, "samples/min", curve(s.Samples, 60/s.Step)),
	)
}

// control plots the limits and the number of samples in flight over the time that the logs cover.
func (p *page) control() {
	k := p.R.Controller
	p.Changes = slices.Clone(k.Changes[max(0, len(k.Changes)-maxShownChanges):])
	slices.Reverse(p.Changes)
	var first, last time.Time
	see := func(t time.Time) {
		if first.IsZero() || t.Before(first) {
			first = t
		}
		if t.After(last) {
			last = t
		}
	}
	for _, c := range k.Changes {
		see(c.At)
	}
	for _, q := range k.InFlight {
		see(q.At)
	}
	if first.IsZero() {
		return
	}
	unit, per := elapsed(last.Sub(first))
	since := unit + " since " + first.Format("2006-01-02 15:04:05")
	x := func(t time.Time) float64 { return t.Sub(first).Seconds() / per }
	var flight []point
	for _, q := range k.InFlight {
		flight = append(flight, point{x(q.At), q.Value})
	}
	var limits []line
	shown := k.Endpoints[:min(len(k.Endpoints), len(lineInks))]
	for _, e := range shown {
		l := line{name: e.Endpoint, step: true}
		for _, c := range k.Changes {
			if c.Endpoint == e.Endpoint {
				l.points = append(l.points, point{x(c.At), float64(c.To)})
			}
		}
		if n := len(l.points); n > 0 {
			l.points = append(l.points, point{x(last), l.points[n-1].y})
		}
		limits = append(limits, l)
	}
	const limit, flying = "Limit on samples in flight", "Samples in flight"
	if last.Sub(first) < time.Second { // the logs cover only the few milliseconds of one change
		p.ControlPlots = []*figure{tooShort(limit), tooShort(flying)}
		return
	}
	title := limit
	if n := len(k.Endpoints) - len(shown); n > 0 {
		title += fmt.Sprintf(" (%d more endpoints in the table)", n)
	}
	p.ControlPlots = present(
		lines(title, since, "samples", limits),
		lines(flying, since, "samples", []line{{points: flight, area: true}}),
	)
}

func present(figures ...*figure) (out []*figure) {
	for _, f := range figures {
		if f != nil {
			out = append(out, f)
		}
	}
	return out
}
