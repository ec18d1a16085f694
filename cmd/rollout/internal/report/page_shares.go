package report

import (
	"cmp"
	_ "embed" // the page and its style
	"maps"
	"slices"
	"strconv"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/tame"
)

// A part of the coverage bar, which is 100 wide.
type part struct {
	Name, Key, Note, Share string
	Count                  int
	X, Width               string
}

// shares is a table of counts with their part of the whole.
type shares struct {
	Title string
	Rows  []shareRow
}

type shareRow struct {
	Name, Share, Width string
	Count              int
}

func parts(c Coverage) []part {
	committed := ""
	if c.Empty > 0 {
		committed = count(c.Empty) + " of them without a row"
	}
	if c.LostCalls > 0 {
		if committed != "" {
			committed += "; "
		}
		committed += count(c.LostCalls) + " single calls of them are in failures/"
	}
	failed := ""
	if c.Superseded > 0 {
		failed = count(c.Superseded) + " earlier failures are void: the samples succeeded later"
	}
	out := []part{
		{Name: "committed", Key: "c", Count: c.Committed, Note: committed},
		{Name: "failed", Key: "x", Count: c.Failed, Note: failed},
		{Name: "skipped", Key: "k", Count: c.Skipped, Note: "cut by the tail policy"},
		{Name: "remaining", Key: "r", Count: c.Remaining},
	}
	if c.Durable > 0 {
		out[3].Note = count(c.Durable) + " of them have ended and are in the write-ahead log"
	}
	switch {
	case c.Skipped == 0:
		out[2].Note = ""
	case c.Unstarted > 0:
		out[2].Note += ", " + count(c.Unstarted) + " of them before they were begun"
	}
	whole := c.Committed + c.Failed + c.Skipped + c.Remaining
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

func num2(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }

// maxName is how much is shown of a name that a server may have given.
const maxName = 120

// sharesOf is a table of counts, the largest first; an empty name is a dash.
func sharesOf(title string, by map[string]int) shares {
	whole := 0
	for _, n := range by {
		whole += n
	}
	return partsOf(title, by, whole)
}

// partsOf is sharesOf where the counts are parts of a whole that is known.
func partsOf(title string, by map[string]int, whole int) shares {
	s := shares{Title: title}
	for _, name := range slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		return cmp.Or(cmp.Compare(by[b], by[a]), cmp.Compare(a, b))
	}) {
		s.Rows = append(s.Rows, shareRow{
			Name: cmp.Or(tame.Text(name, maxName), "–"), Count: by[name], Share: share(by[name], whole), Width: num2(100 * float64(by[name]) / float64(whole)),
		})
	}
	return s
}
