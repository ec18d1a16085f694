package report

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/frame"
	"github.com/rollout-rl/rollout/tokenize"
)

// censored is the class of the samples that the tail policy cut. Such samples count as skipped, not
// as failed.
const censored = "censored"

// maxExample is the maximum length of a class's example error.
const maxExample = 300

// A survey reads a run's rows one at a time. It needs about 100 bytes of memory per sample, and
// none per token.
type survey struct {
	pass   float64
	wrap   func(*sink.Log, error) error
	logs   []*sink.Log
	local  bool // the logs are in the folder of the run
	report *Report

	done   keys
	groups map[string]*group

	rewards                                      []float64
	attempts                                     map[int]*attemptSum
	prompt, sequence, completion, calls, rowsPer []float64
	total, working, failedTotal                  []float64
	cutTotal, cutCompletion                      []float64
	line                                         *timeline

	failed  map[string]failure // last failure by sample key
	slowest []Slow
	lesser  int  // rows that are not exact because their reply was lost
	along   bool // true if received replies contain their prompts
	held    int  // number of samples with rows in shards
	ended   ends // the kinds of ends already counted for the current sample
	rows    int  // number of rows in all data shards so far, including unreadable rows

	versions versionSums
}

type attemptSum struct {
	samples, scored int
	sum             float64
}

// A failure describes the last failure of a sample that is not yet done.
type failure struct {
	class, stage, error string
	slow                Slow
	completion          float64
	started             time.Time
}

func newSurvey(r *Report, logs []*sink.Log, local bool, done keys, run *Run) *survey {
	return &survey{
		pass: run.Pass, wrap: run.Wrap, logs: logs, local: local, report: r, done: done, groups: map[string]*group{}, attempts: map[int]*attemptSum{},
		line: newTimeline(), failed: map[string]failure{},
	}
}

// run reads every shard. It records an unreadable shard as a problem in the report.
func (s *survey) run() {
	r := s.report
	t := &r.Truncation
	t.Status, t.Stop, t.Flags = map[string]int{}, map[string]int{}, map[string]int{}
	r.Proof = Proof{Grades: map[string]int{}, Sources: map[string]int{}}
	r.Failures.Reasons = map[string]int{}
	r.Retries.Attempts = map[int]int{}
	for log, shard := range shardsIn(s.logs, sink.KindData) {
		at := s.rows
		for row, err := range log.Facts(shard) {
			if err != nil {
				s.problem(log, err)
				break
			}
			s.row(row, at)
			at++
		}
		s.rows += int(shard.Rows)
	}
	for log, shard := range shardsIn(s.logs, sink.KindFailures) {
		for f, err := range log.FailureFacts(shard) {
			if err != nil {
				s.problem(log, err)
				break
			}
			s.failure(f)
		}
	}
	if s.local {
		for _, log := range s.logs {
			s.waiting(log)
		}
	}
	s.finish()
}

// inNoShard is the row number of a row that is only in the write-ahead log.
const inNoShard = -2

// waiting reads the samples in the write-ahead log.
func (s *survey) waiting(log *sink.Log) {
	for w, err := range log.Waiting() {
		if err != nil {
			s.problem(log, err)
			continue
		}
		if _, failed := s.failed[w.Key]; !failed {
			s.report.Coverage.Durable++
		}
		for i := range w.Rows {
			s.row(&w.Rows[i], inNoShard)
		}
	}
}

func (r *Report) problem(what string, err error) {
	r.Problems = append(r.Problems, fmt.Sprintf("%s%v", what, err))
	if _, ok := errors.AsType[*frame.CorruptError](err); ok || errors.Is(err, sink.ErrCorrupt) {
		r.Damage = append(r.Damage, err)
	}
}

// NotCounted records data that could not be read.
func (r *Report) NotCounted(err error) { r.problem("not counted: ", err) }

func (s *survey) problem(log *sink.Log, err error) {
	if s.wrap != nil {
		err = s.wrap(log, err)
	}
	s.report.NotCounted(err)
}

// row adds a row. The parameter at is the number of the row in the dataset, or inNoShard. The rows
// of a sample must be consecutive, and the first row has SegmentIndex 0.
func (s *survey) row(row *sink.StoredRow, at int) {
	r := s.report
	r.Lengths.Rows++
	s.prompt = append(s.prompt, float64(row.PromptLength))
	if n := len(row.TurnOffsets); n > 0 {
		s.sequence = append(s.sequence, float64(row.TurnOffsets[n-1]))
	}
	r.Proof.Grades[row.Verification]++
	r.Proof.Sources[row.PromptSource]++
	s.versions.add(row)
	switch reattached := slices.Contains(row.Flags, tokenize.FlagReattached.String()); {
	case reattached && row.Verification != tokenize.Exact.String():
		s.lesser++
	case !reattached && row.PromptSource == tokenize.SourceTurns.String():
		s.along = true
	}
	for _, f := range row.Flags {
		r.Truncation.Flags[f]++
	}
	r.Truncation.UnscoredTokens += int64(row.Unscored)
	r.Truncation.TrimmedTokens += int64(row.Trimmed)
	if row.SegmentIndex == 0 {
		s.sample(row, at)
	}
	once(row.Truncated, &s.ended.truncated, &r.Truncation.Truncated)
	once(slices.Contains(row.Flags, tokenize.FlagCut.String()), &s.ended.cut, &r.Truncation.Cut)
	once(slices.Contains(row.Flags, tokenize.FlagLength.String()), &s.ended.length, &r.Truncation.Length)
}

// The type ends records which kinds of ends have been counted for the current sample.
type ends struct{ truncated, cut, length bool }

// If the condition is true and counted is not yet set, once sets counted and increments n.
func once(is bool, counted *bool, n *int) {
	if is && !*counted {
		*counted = true
		*n++
	}
}

func (s *survey) sample(row *sink.StoredRow, at int) {
	r := s.report
	s.ended = ends{}
	r.Truncation.Samples++
	if row.Status == collector.StatusMaxSteps {
		r.Truncation.MaxSteps++
	}
	if at != inNoShard {
		s.held++
	}
	r.Truncation.Status[row.Status]++
	r.Truncation.Stop[row.StopReason]++
	r.Retries.Attempts[int(row.Attempt)]++
	s.completion = append(s.completion, float64(row.CompletionTokens))
	s.calls = append(s.calls, float64(row.Steps))
	s.rowsPer = append(s.rowsPer, float64(row.SegmentCount))
	seconds, working := float64(row.DurationMS)/1e3, float64(row.WorkingMS)/1e3
	s.total, s.working = append(s.total, seconds), append(s.working, working)
	started := time.UnixMicro(row.StartedAt).UTC()
	s.line.add(started, started.Add(time.Duration(row.DurationMS)*time.Millisecond), row.CompletionTokens)

	g := s.groups[row.GroupID]
	if g == nil {
		g = &group{}
		s.groups[row.GroupID] = g
	}
	g.size = max(g.size, int(row.GroupSize))
	g.samples++
	a := s.attempts[int(row.Attempt)]
	if a == nil {
		a = &attemptSum{}
		s.attempts[int(row.Attempt)] = a
	}
	a.samples++
	if v := row.Reward; v != nil && !math.IsNaN(*v) && !math.IsInf(*v, 0) {
		s.rewards = append(s.rewards, *v)
		g.reward(*v, s.pass)
		a.scored++
		a.sum += *v
	} else {
		r.Rewards.Unscored++
	}
	s.slow(Slow{
		Row: at, SampleKey: row.SampleKey, TaskID: row.TaskID, Index: int(row.SampleIndex), Attempt: int(row.Attempt),
		Seconds: seconds, Working: working, Calls: int(row.Steps), Completion: row.CompletionTokens,
		Status: row.Status, AgentID: row.AgentID,
	})
}

func (s *survey) failure(f *sink.StoredFailure) {
	r := s.report
	if tokenize.Untrained(f.Reason, f.Call) {
		r.Coverage.UntrainedCalls++
		return
	}
	if f.Reason != "" {
		r.Failures.Reasons[f.Reason]++
	}
	done := s.done.has(f.SampleKey)
	switch {
	case f.Call >= 0:
		if done {
			r.Coverage.LostCalls++
		}
		return
	case done:
		r.Coverage.Superseded++
		return
	}
	s.failed[f.SampleKey] = failure{
		class: f.Class, stage: f.Stage, error: termsafe.Text(f.Error, maxExample), completion: float64(f.CompletionTokens),
		started: time.UnixMicro(f.StartedAt).UTC(),
		slow: Slow{
			Row: -1, SampleKey: f.SampleKey, TaskID: f.TaskID, Index: int(f.SampleIndex), Attempt: int(f.Attempt),
			Seconds: float64(f.DurationMS) / 1e3, Working: float64(f.WorkingMS) / 1e3, Calls: int(f.Steps),
			Completion: f.CompletionTokens, Status: f.Class, AgentID: f.AgentID,
		},
	}
}

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
	r.Coverage.Empty = max(0, len(s.done)-s.held)
	c := &r.Coverage
	c.Skipped += c.Unstarted
	ended := len(s.done) + c.Failed + c.Skipped
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
