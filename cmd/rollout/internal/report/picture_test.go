package report_test

import (
	"bytes"
	"flag"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/picturetest"
)

var update = flag.Bool("update", false, "make the picture of the page anew")

// TestPictureOfThePage draws a page's tiles and some of its plots, with the page's style.
func TestPictureOfThePage(t *testing.T) {
	t.Parallel()
	html := bigPage(t)
	style := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindStringSubmatch(html)[1]
	plots := map[string]string{}
	for _, m := range regexp.MustCompile(`<figcaption>([^<]*)</figcaption>(<svg class="plot".*?</svg>)`).FindAllStringSubmatch(html, -1) {
		// A picture has no pointer, so it needs no titles.
		svg := regexp.MustCompile(`<path class="f h"[^>]*>.*?</path>|<title>.*?</title>`).ReplaceAllString(m[2], "")
		plots[m[1]] = strings.Replace(svg, `<svg class="plot"`, `<svg x="%d" y="%d" width="360" height="190"`, 1)
	}
	var out bytes.Buffer
	const width, height, card = 1216, 600, 388
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img"><style>%s</style>`+"\n", width, height, width, height, style)
	fmt.Fprintf(&out, `<g class="plot" font-family="system-ui,sans-serif"><rect width="%d" height="%d" rx="8" style="fill:var(--bg)"/>`+"\n", width, height)
	box := func(x, y, width, height int) {
		fmt.Fprintf(&out, `<rect x="%d" y="%d" width="%d" height="%d" rx="10" style="fill:var(--card);stroke:var(--line)"/>`+"\n", x, y, width, height)
	}
	tiles := regexp.MustCompile(`<div class="card tile"><small>(.*?)</small><b.*?>(.*?)</b><small>(.*?)</small>`).FindAllStringSubmatch(html, 6)
	for i, m := range tiles {
		x := 16 + i*199
		box(x, 16, 189, 78)
		fmt.Fprintf(&out, `<text class="t" x="%d" y="38" style="font-size:13px">%s</text><text class="lb" x="%d" y="64" style="font-size:22px;font-weight:600">%s</text><text class="t" x="%d" y="84">%s</text>`+"\n", x+14, m[1], x+14, m[2], x+14, m[3])
	}
	for i, title := range []string{"Samples by reward", "pass@k as k grows", "Length of a row", "Time per sample", "Sampled tokens per second", "Limit of samples in flight"} {
		x, y := 16+i%3*(card+10), 106+i/3*242
		svg, ok := plots[title]
		if !ok || len(tiles) != 6 {
			t.Fatalf("no plot %q among %d, or not 6 tiles but %d", title, len(plots), len(tiles))
		}
		box(x, y, card, 232)
		fmt.Fprintf(&out, `<text class="t" x="%d" y="%d" style="font-size:14px;font-weight:600">%s</text>`+"\n", x+14, y+24, title)
		fmt.Fprintf(&out, svg+"\n", x+14, y+34)
	}
	out.WriteString("</g></svg>\n")
	picturetest.Check(t, "../../../../testdata/pictures/report.svg", out.Bytes(), *update)
}
