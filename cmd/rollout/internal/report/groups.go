package report

import (
	"fmt"
	"strconv"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/collector/pace"
)

// A Lag is a histogram of groups by their policy lag at the time they became whole. Only the logs
// contain these numbers.
type Lag struct {
	// Groups[i] counts the groups that were i versions old, up to the last nonzero count.
	// Groups[pace.LagMost] also includes older groups. Groups whose lag is unknown are not counted.
	Groups []int `json:"groups"`
	// CutShort counts the processes that did not end normally. The last status line of such a
	// process might not include its last groups.
	CutShort int `json:"cut_short,omitempty"`
}

func (l *Lag) add(counts []int) {
	for i, n := range counts[:min(len(counts), pace.LagMost+1)] {
		for len(l.Groups) <= i {
			l.Groups = append(l.Groups, 0)
		}
		l.Groups[i] += max(0, n)
	}
}

func (l *Lag) text() string {
	text := format.Lags(l.Groups) + ", in policy versions"
	if l.CutShort > 0 {
		text += fmt.Sprintf("; the last groups of %s are missing", format.Plural(int64(l.CutShort), "killed process"))
	}
	return text
}

// shares returns the page's table of lags, in ascending order.
func (l *Lag) shares() shares {
	if l == nil {
		return shares{}
	}
	whole := 0
	for _, n := range l.Groups {
		whole += n
	}
	s := shares{Title: "Groups by policy lag on arrival"}
	for lag, n := range l.Groups {
		name := format.Plural(int64(lag), "version")
		if lag == pace.LagMost {
			name = strconv.Itoa(lag) + " versions or more"
		}
		if n > 0 {
			s.Rows = append(s.Rows, shareRow{Name: name, Count: n, Share: share(n, whole), Width: num2(100 * float64(n) / float64(whole))})
		}
	}
	return s
}
