package show

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/collector"
)

// A RolloutCount counts rollouts and has their mean duration.
type RolloutCount struct {
	N     int     `json:"n"`
	Timed int     `json:"timed"` // rollouts with a known duration
	Mean  float64 `json:"mean_seconds"`
}

func countRollouts(r collector.RolloutCount) RolloutCount {
	return RolloutCount{N: r.N, Timed: r.Timed, Mean: r.Mean().Seconds()}
}

func remadeMap(by map[string]collector.RolloutCount) map[string]RolloutCount {
	out := map[string]RolloutCount{}
	for reason, r := range by {
		out[reason] = countRollouts(r)
	}
	return out
}

// remade describes the rollouts that the infrastructure lost. It compares their durations with the
// kept rollouts, because longer rollouts are lost more often.
func (s *Summary) remade() string {
	n, timed, sum := 0, 0, 0.0
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(s.Remade)) {
		r := s.Remade[reason]
		n, timed, sum = n+r.N, timed+r.Timed, sum+r.Mean*float64(r.Timed)
		part := fmt.Sprintf("%s %d", reason, r.N)
		if r.Timed > 0 {
			part += " of " + format.Duration(seconds(r.Mean))
		}
		parts = append(parts, part)
	}
	text := fmt.Sprintf("%d rollouts in progress were lost and collected again: %s", n, strings.Join(parts, ", "))
	if timed > 0 && s.Kept.Timed > 0 {
		text += fmt.Sprintf("; they took %s on average, kept rollouts %s", format.Duration(seconds(sum/float64(timed))), format.Duration(seconds(s.Kept.Mean)))
	}
	return text
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
