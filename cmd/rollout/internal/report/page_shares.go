package report

import (
	"cmp"
	_ "embed" // for embedding the page and its style
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
)

// A part is a segment of the coverage bar. The whole bar is 100 units wide.
type part struct {
	Name, Key, Note, Share string
	Count                  int
	X, Width               string
}

// shares is a table of counts and their shares of the total.
type shares struct {
	Title string
	Rows  []shareRow
}

type shareRow struct {
	Name, Share, Width string
	Count              int
}

// parts returns the segments of the coverage bar. The map filtered counts the filtered samples by
// reason.
func parts(c Coverage, filtered map[string]int) []part {
	committed := ""
	if c.Empty > 0 {
		committed = count(c.Empty) + " of them without rows"
	}
	if c.LostCalls > 0 {
		if committed != "" {
			committed += "; "
		}
		committed += count(c.LostCalls) + " calls of these samples failed and are in failures/"
	}
	failed := ""
	if c.Superseded > 0 {
		failed = count(c.Superseded) + " earlier failures were superseded by later successes"
	}
	skipped, remaining := "", ""
	switch {
	case c.Skipped == 0:
	case c.Late == c.Skipped:
		skipped = "cut at the deadline of their task"
	case c.Late > 0:
		skipped = "cut by the tail policy, or at the deadline of their task"
	default:
		skipped = "cut by the tail policy"
	}
	if c.Skipped > 0 && c.Unstarted > 0 {
		skipped += ", " + count(c.Unstarted) + " of them before they started"
	}
	if c.Durable > 0 {
		remaining = count(c.Durable) + " of them have ended and are in the write-ahead log"
	}
	out := []part{{Name: "committed", Key: "c", Count: c.Committed, Note: committed}}
	if c.Filtered > 0 {
		out = append(out, part{Name: "filtered", Key: "o", Count: c.Filtered, Note: "keep=false: " + reasons(filtered)})
	}
	out = append(out,
		part{Name: "failed", Key: "x", Count: c.Failed, Note: failed},
		part{Name: "skipped", Key: "k", Count: c.Skipped, Note: skipped},
		part{Name: "remaining", Key: "r", Count: c.Remaining, Note: remaining})
	whole := c.Committed + c.Filtered + c.Failed + c.Skipped + c.Remaining
	at := 0
	for i := range out {
		p := &out[i]
		p.Share = share(p.Count, c.Planned)
		if whole > 0 {
			p.X, p.Width = num2(100*float64(at)/float64(whole)), num2(100*float64(p.Count)/float64(whole))
		} else {
			p.X, p.Width = "0", "0"
		}
		at += p.Count
	}
	return out
}

// reasons lists the reasons for filtering, the most frequent reason first.
func reasons(by map[string]int) string {
	var all []string
	for _, row := range sharesOf("", by).Rows {
		all = append(all, row.Name+" "+count(row.Count))
	}
	return strings.Join(all, ", ")
}

func num2(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }

// maxName is the maximum displayed length of a name that can come from a server.
const maxName = 120

// sharesOf returns a table of counts, with the largest count first. An empty name becomes a dash.
func sharesOf(title string, by map[string]int) shares {
	whole := 0
	for _, n := range by {
		whole += n
	}
	return partsOf(title, by, whole)
}

// partsOf is like sharesOf, but computes the shares of the given whole.
func partsOf(title string, by map[string]int, whole int) shares {
	s := shares{Title: title}
	for _, name := range slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		return cmp.Or(cmp.Compare(by[b], by[a]), cmp.Compare(a, b))
	}) {
		s.Rows = append(s.Rows, shareRow{
			Name: cmp.Or(termsafe.Text(name, maxName), "–"), Count: by[name], Share: share(by[name], whole), Width: num2(100 * float64(by[name]) / float64(whole)),
		})
	}
	return s
}
