package report

import (
	"fmt"
	"html"
	"image"
	"image/color"
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
)

// An ink is a colour that the page's style sheet knows by name: it is written as a
// class, so one drawing serves light and dark. It is a color.Color only to pass
// through the plotting library.
type ink string

// The inks.
const (
	inkText  ink = "t"
	inkAxis  ink = "ax"
	inkGrid  ink = "gr"
	inkBar   ink = "s1"
	inkArea  ink = "a1" // the light form of the first
	inkMark  ink = "mk"
	inkLabel ink = "lb"
)

// lineInks are for several lines in one plot.
var lineInks = []ink{"s1", "s2", "s3", "s4"}

// RGBA is black: nothing asks.
func (ink) RGBA() (r, g, b, a uint32) { return color.Black.RGBA() }

// A canvas writes SVG for a page: no style attributes, so that a strict content
// security policy lets it be, one path element per path, and the letters as text.
//
// Lengths are units of the viewBox, one being a CSS pixel where the drawing is as
// wide as it was made for.
type canvas struct {
	out           strings.Builder
	width, height float64
	state         canvasState
	saved         []canvasState
}

type canvasState struct {
	ink   ink
	line  vg.Length
	dash  []vg.Length
	phase vg.Length
	// m maps a point to the canvas: x' = m[0]x + m[2]y + m[4], y' = m[1]x + m[3]y + m[5].
	m [6]float64
}

var _ vg.CanvasSizer = (*canvas)(nil)

func newCanvas(width, height float64) *canvas {
	return &canvas{width: width, height: height, state: canvasState{ink: inkText, line: 1, m: [6]float64{1, 0, 0, 1, 0, 0}}}
}

// svg is the finished drawing; label says what it shows.
func (c *canvas) svg(label string) string {
	return fmt.Sprintf(`<svg class="plot" viewBox="0 0 %s %s" role="img" aria-label="%s" xmlns="http://www.w3.org/2000/svg">%s</svg>`,
		num(c.width), num(c.height), html.EscapeString(label), c.out.String())
}

// Size is part of vg.CanvasSizer, and so are all that follow.
func (c *canvas) Size() (x, y vg.Length) { return vg.Length(c.width), vg.Length(c.height) }

func (c *canvas) SetLineWidth(w vg.Length) { c.state.line = w }
func (c *canvas) SetLineDash(pattern []vg.Length, offset vg.Length) {
	c.state.dash, c.state.phase = pattern, offset
}

func (c *canvas) SetColor(col color.Color) {
	c.state.ink = inkText
	if i, ok := col.(ink); ok {
		c.state.ink = i
	}
}

func (c *canvas) Rotate(rad float64) {
	sin, cos := math.Sincos(rad)
	c.transform([6]float64{cos, sin, -sin, cos, 0, 0})
}

func (c *canvas) Translate(p vg.Point) {
	c.transform([6]float64{1, 0, 0, 1, float64(p.X), float64(p.Y)})
}

func (c *canvas) Scale(x, y float64) { c.transform([6]float64{x, 0, 0, y, 0, 0}) }

func (c *canvas) transform(n [6]float64) {
	m := c.state.m
	c.state.m = [6]float64{
		m[0]*n[0] + m[2]*n[1], m[1]*n[0] + m[3]*n[1],
		m[0]*n[2] + m[2]*n[3], m[1]*n[2] + m[3]*n[3],
		m[0]*n[4] + m[2]*n[5] + m[4], m[1]*n[4] + m[3]*n[5] + m[5],
	}
}

func (c *canvas) Push() { c.saved = append(c.saved, c.state) }

func (c *canvas) Pop() {
	c.state = c.saved[len(c.saved)-1]
	c.saved = c.saved[:len(c.saved)-1]
}

func (c *canvas) Stroke(p vg.Path) {
	if c.state.line <= 0 || len(p) == 0 {
		return
	}
	dash := ""
	if len(c.state.dash) > 0 {
		var parts []string
		for _, d := range c.state.dash {
			parts = append(parts, num(float64(d)))
		}
		dash = fmt.Sprintf(` stroke-dasharray="%s"`, strings.Join(parts, " "))
	}
	fmt.Fprintf(&c.out, `<path class="l %s" stroke-width="%s"%s d="%s"/>`, c.state.ink, num(float64(c.state.line)), dash, c.path(p))
}

func (c *canvas) Fill(p vg.Path) {
	if len(p) > 0 {
		fmt.Fprintf(&c.out, `<path class="f %s" d="%s"/>`, c.state.ink, c.path(p))
	}
}

// FillString writes text where it stands; only quarter turns are turned.
func (c *canvas) FillString(f font.Face, at vg.Point, text string) {
	if text == "" || f.Font.Size <= 0 {
		return
	}
	x, y := c.at(at)
	turn := ""
	if deg := math.Round(math.Atan2(c.state.m[1], c.state.m[0]) * 180 / math.Pi); deg != 0 {
		turn = fmt.Sprintf(` transform="rotate(%s %s %s)"`, num(-deg), num(x), num(y))
	}
	fmt.Fprintf(&c.out, `<text class="%s" x="%s" y="%s" font-size="%s"%s>%s</text>`,
		c.state.ink, num(x), num(y), num(float64(f.Font.Size)), turn, html.EscapeString(text))
}

// DrawImage draws nothing: no plot of ours has an image.
func (c *canvas) DrawImage(vg.Rectangle, image.Image) {}

// at is where a point lies on the page, whose y points down.
func (c *canvas) at(p vg.Point) (x, y float64) {
	m, px, py := c.state.m, float64(p.X), float64(p.Y)
	return m[0]*px + m[2]*py + m[4], c.height - (m[1]*px + m[3]*py + m[5])
}

func (c *canvas) path(p vg.Path) string {
	var b strings.Builder
	for _, k := range p {
		x, y := c.at(k.Pos)
		switch k.Type {
		case vg.MoveComp:
			fmt.Fprintf(&b, "M%s %s", num(x), num(y))
		case vg.LineComp:
			fmt.Fprintf(&b, "L%s %s", num(x), num(y))
		case vg.CloseComp:
			b.WriteByte('Z')
		case vg.ArcComp, vg.CurveComp: // no plot of ours has one: a line is near enough
			fmt.Fprintf(&b, "L%s %s", num(x), num(y))
		}
	}
	return b.String()
}

// num is a coordinate to a tenth.
func num(v float64) string {
	return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
}
