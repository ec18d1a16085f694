package show

import (
	"fmt"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/collector/pace"
)

// A groupSummary counts the groups of a run that commits whole groups. All fields except Lag cover
// the whole run.
type groupSummary struct {
	Begun int `json:"begun"`
	// Whole is the sum of the next three fields. Informative groups are delivered to the reader.
	// Filtered groups have keep=false. Failed groups have no rows.
	Whole       int `json:"whole"`
	Informative int `json:"informative"`
	Filtered    int `json:"filtered"`
	Failed      int `json:"failed"`
	// Until is the requested number of informative groups; 0 means no limit.
	Until int `json:"until"`
	// Ahead counts the groups that are in progress and the groups that the reader has not yet
	// acknowledged.
	Ahead int `json:"ahead"`
	// Version is the latest known policy version. It is nil if no version is known.
	Version *int32 `json:"version"`
	// Lag is the histogram from pace.Stats.LagCounts for this invocation.
	Lag []int `json:"lag"`
}

// groupsOf returns the group counts, or nil if the run does not commit whole groups.
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

// Short reports whether the run has fewer informative groups than requested.
func (g *groupSummary) Short() bool { return g != nil && g.Informative < g.Until }

// String formats the counts as text.
func (g *groupSummary) String() string {
	text := fmt.Sprintf("%d of %d started groups are whole (%d informative", g.Whole, g.Begun, g.Informative)
	if g.Until > 0 {
		text += fmt.Sprintf(" of the %d wanted", g.Until)
	}
	text += fmt.Sprintf(", %d filtered, %d failed)", g.Filtered, g.Failed)
	if g.Ahead > 0 {
		text += fmt.Sprintf("; %d ahead of the reader", g.Ahead)
	}
	return text
}

// lags formats Lag, or returns "" if no lag is known.
func (g *groupSummary) lags() string { return format.Lags(g.Lag) }
