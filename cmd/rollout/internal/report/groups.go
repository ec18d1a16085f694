package report

import (
	"fmt"
	"strconv"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/human"
	"github.com/rollout-rl/rollout/collector/pace"
)

// A Lag is how many policy versions old groups were when they were whole. No row has it: it
// comes of the logs.
type Lag struct {
	// Groups[i] counts the groups that arrived i versions old, up to the last that is not 0;
	// Groups[pace.LagMost] those that were older as well. Groups of unknown age are in none.
	Groups []int `json:"groups"`
	// CutShort counts the processes of which the last groups may be missing, because they did
	// not end in order: their log says how it was some seconds before.
	CutShort int `json:"cut_short,omitempty"`
}

// add takes the histogram of a log.
func (l *Lag) add(counts []int) {
	for i, n := range counts[:min(len(counts), pace.LagMost+1)] {
		for len(l.Groups) <= i {
			l.Groups = append(l.Groups, 0)
		}
		l.Groups[i] += max(0, n)
	}
}

// text is the histogram in words.
func (l *Lag) text() string {
	text := human.Lags(l.Groups, pace.LagMost+1) + ", in policy versions"
	if l.CutShort > 0 {
		text += fmt.Sprintf("; without the last groups of %s", human.Plural(int64(l.CutShort), "killed process"))
	}
	return text
}

// shares is the part of the page about lags, in their order.
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
		name := human.Plural(int64(lag), "version")
		if lag == pace.LagMost {
			name = strconv.Itoa(lag) + " versions or more"
		}
		if n > 0 {
			s.Rows = append(s.Rows, shareRow{Name: name, Count: n, Share: share(n, whole), Width: num2(100 * float64(n) / float64(whole))})
		}
	}
	return s
}
