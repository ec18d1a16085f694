package report

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/rollout-rl/rollout/collector"
)

// finish computes the numbers that need all samples.
func (s *survey) finish() {
	r := s.report
	s.finishFailures()
	r.Proof.Versions = s.versions.versions()
	if s.along {
		r.Proof.Downgraded = s.lesser
	}
	for _, n := range r.Filtered {
		r.Coverage.Filtered += n
	}
	r.Coverage.Committed = len(s.done) - r.Coverage.Filtered
	if len(r.Damage) == 0 { // otherwise the rows can be in a damaged shard
		r.Coverage.Empty = max(0, len(s.done)-s.held)
	}
	c := &r.Coverage
	if c.Unstarted != nil {
		c.Skipped += *c.Unstarted
	}
	ended := len(s.done) + c.Failed + c.Skipped
	if r.Copied {
		c.Planned = ended // nothing else can be collected
	}
	c.Holds = ended <= c.Planned
	c.Remaining = max(0, c.Planned-ended)

	r.Rewards.Pass = s.pass
	for _, v := range s.rewards {
		if v >= s.pass {
			r.Rewards.Passed++
		}
	}
	r.Rewards.Scored = len(s.rewards)
	r.Rewards.PassAtK = passes(s.groups)
	r.Groups = groupsOf(s.groups)
	for _, n := range slices.Sorted(maps.Keys(s.attempts)) {
		a := s.attempts[n]
		out := AttemptReward{Attempt: n, Samples: a.samples, Scored: a.scored}
		if a.scored > 0 {
			out.Mean = new(a.sum / float64(a.scored))
		}
		r.Rewards.ByAttempt = append(r.Rewards.ByAttempt, out)
	}
	if len(s.cutTotal) > 0 {
		kept := TailSide{Samples: len(s.total), Seconds: distribute(s.total), Completion: distribute(s.completion)}
		cut := TailSide{Samples: len(s.cutTotal), Seconds: distribute(s.cutTotal), Completion: distribute(s.cutCompletion)}
		r.Tail = &TailBias{Kept: kept, Cut: cut}
	}
	r.Rewards.All = distribute(s.rewards)
	l := &r.Lengths
	l.Prompt, l.Sequence, l.Completion = distribute(s.prompt), distribute(s.sequence), distribute(s.completion)
	l.Calls, l.RowsPer = distribute(s.calls), distribute(s.rowsPer)
	r.Time.Total, r.Time.Working, r.Time.Failed = distribute(s.total), distribute(s.working), distribute(s.failedTotal)
	if r.Throughput = s.line.series(); r.Throughput != nil {
		first, last := s.line.begun, s.line.end
		r.Time.First, r.Time.Last = &first, &last
	}
	r.Rewards.OverTime = s.line.rewardSeries(r.Throughput)
	r.Slowest = slowestOf(s.slowest)
}

func (s *survey) finishFailures() {
	r := s.report
	classes := map[string]*FailureClass{}
	for _, key := range slices.Sorted(maps.Keys(s.failed)) {
		f := s.failed[key]
		s.line.add(f.started, f.started.Add(time.Duration(f.slow.Seconds*float64(time.Second))), int64(f.completion))
		if f.class == censored {
			r.Coverage.Skipped++
			if collector.CutAtDeadline(f.class, f.error) {
				r.Coverage.Late++
			}
			s.cutTotal, s.cutCompletion = append(s.cutTotal, f.slow.Seconds), append(s.cutCompletion, f.completion)
			continue
		}
		r.Coverage.Failed++
		r.Retries.Attempts[f.slow.Attempt]++
		s.failedTotal = append(s.failedTotal, f.slow.Seconds)
		s.slow(f.slow)
		c := classes[f.class]
		if c == nil {
			c = &FailureClass{Class: f.class, Stages: map[string]int{}, Example: f.error, Advice: Advice(f.class)}
			classes[f.class] = c
		}
		c.Samples++
		c.Stages[f.stage]++
	}
	for _, c := range classes {
		r.Failures.Classes = append(r.Failures.Classes, *c)
	}
	slices.SortFunc(r.Failures.Classes, func(a, b FailureClass) int {
		return cmp.Or(cmp.Compare(b.Samples, a.Samples), cmp.Compare(a.Class, b.Class))
	})
}
