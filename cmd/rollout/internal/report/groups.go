package report

import (
	"fmt"

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
