package show

import (
	"fmt"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/collector/pace"
)

// A groupSummary counts the groups of a run of whole groups: all but Lag cover the whole run.
type groupSummary struct {
	Begun int `json:"begun"`
	// Whole is the sum of the next three. The reader gets the informative groups. A filtered group
	// has keep=false. A failed group has no row.
	Whole       int `json:"whole"`
	Informative int `json:"informative"`
	Filtered    int `json:"filtered"`
	Failed      int `json:"failed"`
	// Until is the requested number of informative groups; 0: no limit.
	Until int `json:"until"`
	// Ahead counts the groups in progress and those that the reader has not acknowledged.
	Ahead int `json:"ahead"`
	// Version is the last policy version; nil: none is known.
	Version *int32 `json:"version"`
	// Lag is pace.Stats.LagCounts of this invocation.
	Lag []int `json:"lag"`
}

// groupsOf returns nil if the run does not commit whole groups.
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

// Short reports whether fewer groups are informative than requested.
func (g *groupSummary) Short() bool { return g != nil && g.Informative < g.Until }

// String formats the counts for people.
func (g *groupSummary) String() string {
	text := fmt.Sprintf("%d whole of %d started: %d informative", g.Whole, g.Begun, g.Informative)
	if g.Until > 0 {
		text += fmt.Sprintf(" of the %d wanted", g.Until)
	}
	text += fmt.Sprintf(", %d filtered, %d failed", g.Filtered, g.Failed)
	if g.Ahead > 0 {
		text += fmt.Sprintf("; %d ahead of the reader", g.Ahead)
	}
	return text
}

// lags is empty if no lag is known.
func (g *groupSummary) lags() string { return format.Lags(g.Lag) }
