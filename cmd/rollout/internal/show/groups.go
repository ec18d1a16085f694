package show

import (
	"fmt"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/human"
	"github.com/rollout-rl/rollout/collector/pace"
)

// A groupSummary says what became of the groups of a run that works by whole groups. The
// counts are those of the whole run, but for Lag.
type groupSummary struct {
	Begun int `json:"begun"`
	// Whole is the sum of the next three. An informative group is one that is given to the
	// reader, a filtered one has keep=false, and of a failed one there is no row.
	Whole       int `json:"whole"`
	Informative int `json:"informative"`
	Filtered    int `json:"filtered"`
	Failed      int `json:"failed"`
	// Until is how many informative groups were asked for; 0: all that there are.
	Until int `json:"until"`
	// Ahead counts the groups in progress and those that the reader has not acknowledged.
	Ahead int `json:"ahead"`
	// Version is the last that was told; nil: none.
	Version *int32 `json:"version"`
	// Lag is pace.Stats.LagCounts of this invocation.
	Lag []int `json:"lag"`
}

// groupsOf is nil where the run does not work by whole groups.
func groupsOf(s *pace.Stats) *groupSummary {
	if s == nil {
		return nil
	}
	g := &groupSummary{
		Begun: s.Begun, Whole: s.Whole(), Informative: s.Informative, Filtered: s.Filtered, Failed: s.Failed,
		Until: s.Until, Ahead: s.Ahead, Lag: s.LagCounts(),
	}
	if s.Version >= 0 {
		g.Version = &s.Version
	}
	return g
}

// Short reports whether fewer groups are informative than were asked for.
func (g *groupSummary) Short() bool { return g != nil && g.Informative < g.Until }

// String tells the counts to people.
func (g *groupSummary) String() string {
	text := fmt.Sprintf("%d whole of %d begun: %d informative", g.Whole, g.Begun, g.Informative)
	if g.Until > 0 {
		text += fmt.Sprintf(" of the %d wanted", g.Until)
	}
	text += fmt.Sprintf(", %d filtered, %d failed", g.Filtered, g.Failed)
	if g.Ahead > 0 {
		text += fmt.Sprintf("; %d ahead of the reader", g.Ahead)
	}
	return text
}

// lags is empty where no lag is known.
func (g *groupSummary) lags() string { return human.Lags(g.Lag, pace.LagMost+1) }
