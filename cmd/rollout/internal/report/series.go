package report

import (
	"time"
)

// maxSteps is the maximum number of steps in a series.
const maxSteps = 96

// A timeline adds up values by time. If the values span more than maxSteps steps, the timeline
// doubles the length of a step.
type timeline struct {
	step       int64 // in seconds
	low, high  int64 // numbers of the first and the last step since 1970
	tokens     map[int64]float64
	samples    map[int64]float64
	rewards    map[int64]float64 // sums
	scored     map[int64]float64 // numbers of samples with a reward
	begun, end time.Time
}

func newTimeline() *timeline {
	return &timeline{step: 1, tokens: map[int64]float64{}, samples: map[int64]float64{}, rewards: map[int64]float64{}, scored: map[int64]float64{}}
}

// reward adds the reward of a sample. Call add for the sample first.
func (t *timeline) reward(ended time.Time, reward float64) {
	at := floorDiv(ended.Unix(), t.step)
	t.rewards[at] += reward
	t.scored[at]++
}

// rewardSeries returns the mean rewards in the steps of the series s, or nil if no sample was
// scored.
func (t *timeline) rewardSeries(s *Series) *RewardSeries {
	if s == nil || len(t.scored) == 0 {
		return nil
	}
	out := &RewardSeries{Start: s.Start, Step: s.Step, Mean: make([]*float64, len(s.Samples))}
	for i := range out.Mean {
		if at := floorDiv(s.Start.Unix(), t.step) + int64(i); t.scored[at] > 0 {
			out.Mean[i] = new(t.rewards[at] / t.scored[at])
		}
	}
	return out
}

func (t *timeline) add(started, ended time.Time, tokens int64) {
	if t.begun.IsZero() || started.Before(t.begun) {
		t.begun = started
	}
	if ended.After(t.end) {
		t.end = ended
	}
	at := floorDiv(ended.Unix(), t.step)
	if len(t.samples) == 0 {
		t.low, t.high = at, at
	}
	t.low, t.high = min(t.low, at), max(t.high, at)
	t.tokens[at] += float64(tokens)
	t.samples[at]++
	for t.high-t.low+1 > maxSteps {
		t.double()
	}
}

func (t *timeline) double() {
	t.step *= 2
	for _, m := range []*map[int64]float64{&t.tokens, &t.samples, &t.rewards, &t.scored} {
		next := make(map[int64]float64, len(*m)/2)
		for at, v := range *m {
			next[floorDiv(at, 2)] += v
		}
		*m = next
	}
	t.low, t.high = floorDiv(t.low, 2), floorDiv(t.high, 2)
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// series returns the timeline as a Series, or nil if no sample ended.
func (t *timeline) series() *Series {
	if len(t.samples) == 0 {
		return nil
	}
	low := min(t.low, floorDiv(t.begun.Unix(), t.step))
	for t.high-low+1 > maxSteps {
		t.double()
		low = min(t.low, floorDiv(t.begun.Unix(), t.step))
	}
	s := &Series{Start: time.Unix(low*t.step, 0).UTC(), Step: float64(t.step)}
	var tokens float64
	for at := low; at <= t.high; at++ {
		s.Tokens = append(s.Tokens, t.tokens[at])
		s.Samples = append(s.Samples, t.samples[at])
		tokens += t.tokens[at]
	}
	if span := t.end.Sub(t.begun).Seconds(); span > 0 {
		s.TokensPerSecond = tokens / span
	}
	return s
}
