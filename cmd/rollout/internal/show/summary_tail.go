package show

import (
	"fmt"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/collector"
)

// A tailSummary compares the samples that the tail policy kept with those that it cut. A cut
// sample's duration and length are those at the cut.
type tailSummary struct {
	Policy string     `json:"policy"`
	Kept   tailLength `json:"kept"`
	Cut    tailLength `json:"cut"`
	// Unstarted counts the samples that never started.
	Unstarted int `json:"unstarted"`
}

// A tailLength has durations and lengths of samples. The lengths are of the Known samples only.
type tailLength struct {
	Samples       int     `json:"samples"`
	MeanSeconds   float64 `json:"mean_seconds"`
	MedianSeconds float64 `json:"median_seconds"`
	Known         int     `json:"known"`
	MeanTokens    float64 `json:"mean_tokens"`
	MedianTokens  float64 `json:"median_tokens"`
}

// AddTail adds the effect of the tail policy, or nothing if all samples had ended before the cut.
func (s *Summary) AddTail(policy string, unstarted int, t collector.TailStats) {
	if !t.Cut || t.Censored.N == 0 && unstarted == 0 {
		return
	}
	length := func(m collector.Measures) tailLength {
		return tailLength{m.N, m.MeanDuration.Seconds(), m.P50Duration.Seconds(), m.Known, m.MeanSampled, m.P50Sampled}
	}
	s.Tail = &tailSummary{Policy: policy, Kept: length(t.Kept), Cut: length(t.Censored), Unstarted: unstarted}
}

func (l tailLength) String() string {
	seconds := func(f float64) string { return format.Duration(time.Duration(f * float64(time.Second))) }
	text := fmt.Sprintf("%s samples, %s on average (median %s)", format.Count(int64(l.Samples)), seconds(l.MeanSeconds), seconds(l.MedianSeconds))
	if l.Known > 0 {
		text += fmt.Sprintf(", %s sampled tokens (median %s)", format.Count(int64(l.MeanTokens)), format.Count(int64(l.MedianTokens)))
		if l.Known < l.Samples {
			text += fmt.Sprintf(" of the %d that had any", l.Known)
		}
	}
	return text
}
