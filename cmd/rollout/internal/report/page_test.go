package report_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/picturetest"
	"github.com/rollout-rl/rollout/sink"
)

// TestPageEscapes checks that text from models, tasks and servers is escaped on the page.
func TestPageEscapes(t *testing.T) {
	t.Parallel()
	const evil = `<script>alert(1)</script>"><img src=x onerror=alert(2)>'&amp;{{.}}]]>--><style>*{display:none}</style>`
	f := newFolder(t)
	f.sample(evil, 0, 1, new(1.0), 5, 5).StopReason = evil
	f.failure("b", 0, 1, evil, evil)
	f.write(sink.Parquet)
	f.log(logLine{0, "limit changed", map[string]any{"endpoint": evil, "from": 0, "to": 3, "reason": "start"}},
		logLine{9, "limit changed", map[string]any{"endpoint": evil, "from": 3, "to": 4, "reason": evil}},
		logLine{9, "limit changed", map[string]any{"endpoint": "b", "from": 3, "to": 4, "reason": evil}},
		logLine{9, "retry", map[string]any{"class": evil}}, logLine{10, "end", map[string]any{"outcome": evil}})
	r := f.read(2)
	r.Model, r.Servers, r.RunID, r.Problems = evil, []string{evil}, evil, []string{evil}
	html := page(t, r)
	for _, bad := range []string{"<script", "<img", "onerror=alert(2)>'&amp;{{.}}]]>--><", "<style>*"} {
		if strings.Contains(html, bad) {
			t.Errorf("%q is in the page", bad)
		}
	}
	if n := strings.Count(html, "&lt;script&gt;"); n < 8 {
		t.Errorf("the text is shown %d times: the test looks at too little", n)
	}
	if n := strings.Count(html, "<style>"); n != 1 {
		t.Errorf("%d style elements", n)
	}
}

// TestPageStandsAlone checks that a page loads and runs nothing, and allows only its own style.
func TestPageStandsAlone(t *testing.T) {
	t.Parallel()
	html := bigPage(t)
	style := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindStringSubmatch(html)
	if style == nil {
		t.Fatal("no style")
	}
	digest := sha256.Sum256([]byte(style[1]))
	if policy := "default-src &#39;none&#39;; style-src &#39;sha256-" + base64.StdEncoding.EncodeToString(digest[:]); !strings.Contains(html, strings.ReplaceAll(policy, "+", "&#43;")) {
		t.Errorf("the policy does not allow the style that is there: want %s", policy)
	}
	if m := regexp.MustCompile(`(?i)<(script|link|img|iframe|object|embed|base|form)|\s(src|href|style|on[a-z]+)=|@import|url\(|javascript:`).FindString(html); m != "" {
		t.Errorf("%q is in the page", m)
	}
	for _, m := range regexp.MustCompile(`https?://[^"<\s]+`).FindAllString(html, -1) {
		if m != "http://www.w3.org/2000/svg" && !strings.HasPrefix(m, "http://10.0.0.") && m != "http://127.0.0.1:8283" {
			t.Errorf("address %s", m)
		}
	}
	if n := strings.Count(html, `<svg class="plot"`); n != 10 {
		t.Errorf("%d plots, want 10", n)
	}
	if m := regexp.MustCompile(`NaN|Inf\b|%!|<no value>|&lt;nil&gt;`).FindString(html); m != "" {
		t.Errorf("%q is in the page", m)
	}
	if regexp.MustCompile(`#[0-9a-fA-F]{3,8}"|rgb\(`).MatchString(html[strings.Index(html, "</style>"):]) {
		t.Error("a color is outside the style sheet: it would not follow dark and light")
	}
}

// TestPageOfAShortRun checks that a very short run has notes instead of empty plots.
func TestPageOfAShortRun(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.sample("a", 0, 1, new(1.0), 5, 5)
	f.write(sink.Parquet)
	f.log(logLine{0, "limit changed", map[string]any{"endpoint": "http://a", "from": 0, "to": 1, "reason": "start"}},
		logLine{0, "end", map[string]any{"outcome": "finished"}})
	html := page(t, f.read(1))
	if short := strings.Count(html, "Too short to plot."); short != 2 {
		t.Errorf("%d plots are too short, want the two of concurrency", short)
	}
	if m := regexp.MustCompile(`\b1 (tasks|shards|changes)\b`).FindString(html); m != "" {
		t.Errorf("%q is in the page", m)
	}
}

// TestPageTitlesDiffer checks that all titles of cards and headings on a page differ.
func TestPageTitlesDiffer(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, m := range regexp.MustCompile(`<(?:h2 id="\w+"|caption|figcaption)>([^<]*)<`).FindAllStringSubmatch(bigPage(t), -1) {
		if seen[m[1]] {
			t.Errorf("two titles are %q", m[1])
		}
		seen[m[1]] = true
	}
	if len(seen) < 25 {
		t.Errorf("%d titles: the test looks at too little", len(seen))
	}
}

// TestPlots checks that every drawing is well-formed XML and that each of its classes has a color.
func TestPlots(t *testing.T) {
	t.Parallel()
	html := bigPage(t)
	css := html[:strings.Index(html, "</style>")]
	for _, svg := range regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(html, -1) {
		d := xml.NewDecoder(strings.NewReader(svg))
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%v in %.200s", err, svg)
			}
			e, ok := token.(xml.StartElement)
			if !ok || e.Name.Local == "svg" {
				continue
			}
			for _, a := range e.Attr {
				if a.Name.Local != "class" {
					continue
				}
				names := strings.Fields(a.Value)
				selectors := []string{"." + strings.Join(names, ".") + " {"}
				switch {
				case e.Name.Local == "text":
					selectors = nil
					for _, name := range names {
						selectors = append(selectors, "text."+name+" {")
					}
				case len(names) == 1:
					selectors = []string{".bar ." + names[0] + " {"}
				}
				for _, selector := range selectors {
					if !strings.Contains(css, selector) {
						t.Errorf("<%s class=%q> has no rule %q", e.Name.Local, a.Value, selector)
					}
				}
			}
		}
	}
}

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
	for i, title := range []string{"Samples by reward", "pass@k as k grows", "Row length", "Time per sample", "Sampled tokens per second", "Limit on samples in flight"} {
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
