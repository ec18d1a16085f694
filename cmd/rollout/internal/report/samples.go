package report

import (
	"errors"
	"fmt"
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
	scores *sink.Scores // nil: the rewards in the rows count
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
		pass: run.Pass, scores: run.Scores, wrap: run.Wrap, logs: logs, local: local, report: r, done: done, groups: map[string]*group{}, attempts: map[int]*attemptSum{},
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
		durable := 0
		for _, log := range s.logs {
			durable += s.waiting(log)
		}
		r.Coverage.Durable = &durable
	}
	s.finish()
}

// inNoShard is the row number of a row that is only in the write-ahead log.
const inNoShard = -2

// waiting reads the samples in the write-ahead log, and returns the number of those without a failure in
// a shard.
func (s *survey) waiting(log *sink.Log) (durable int) {
	for w, err := range log.Waiting() {
		if err != nil {
			s.problem(log, err)
			continue
		}
		if _, failed := s.failed[w.Key]; !failed {
			durable++
		}
		for i := range w.Rows {
			s.row(&w.Rows[i], inNoShard)
		}
	}
	return durable
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
	g.task, g.size = row.TaskID, max(g.size, int(row.GroupSize))
	g.samples++
	g.sampled += row.CompletionTokens
	a := s.attempts[int(row.Attempt)]
	if a == nil {
		a = &attemptSum{}
		s.attempts[int(row.Attempt)] = a
	}
	a.samples++
	switch v := row.Reward; {
	case v != nil && !math.IsNaN(*v) && !math.IsInf(*v, 0):
		s.rewards = append(s.rewards, *v)
		s.line.reward(started.Add(time.Duration(row.DurationMS)*time.Millisecond), *v)
		g.reward(*v, s.pass)
		a.scored++
		a.sum += *v
	case s.scores != nil && !s.scores.Has(row.SampleKey):
		r.Rewards.Later++
	default:
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
