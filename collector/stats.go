package collector

import (
	"slices"
	"time"

	"github.com/rollout-rl/rollout/collector/limit"
	"github.com/rollout-rl/rollout/collector/pace"
	"github.com/rollout-rl/rollout/tokenize"
)

// Stats is a snapshot of a run. At every moment, the following holds:
//
//	Planned == Committed + Filtered + Failed + Skipped + Remaining
//
// The package comment explains how to add a statistic.
type Stats struct {
	// Started is the time at which Run began, or zero before that.
	Started time.Time

	// Planned is the number of samples in the run. It is Config.Planned or the number passed to
	// Plan, or the number of samples read so far if that is higher.
	Planned int
	// Committed counts samples in a committed shard, including samples without a row, but excluding
	// samples with keep=false. Filtered counts the samples with keep=false. Failed counts samples
	// with a committed failure row. Skipped counts samples that the tail policy or a deadline cut.
	// If Run ended because the tail policy cut it or because it had enough groups, Skipped also
	// includes samples that were never claimed. Remaining counts all other samples. The counts
	// include samples that earlier processes finished, if Run has already read the tasks of these
	// samples.
	Committed, Filtered, Failed, Skipped, Remaining int
	// Moved counts the samples that Run has read and that another process has (ErrMoved). Planned does
	// not include them.
	Moved int
	// Earlier is the part of these counts that comes from earlier processes of the run. If a failed
	// sample is to be retried, it counts as Failed until it is claimed, and then as Remaining. If
	// the retry does not finish, the sample counts as Failed again.
	Earlier Earlier
	// Censored and Unstarted add up to Skipped. Censored samples have a failure row. Unstarted
	// samples have no failure row, so a later run can collect them.
	Censored, Unstarted int
	// Accepted is the part of Remaining that the sink has accepted but not yet committed. It is 0
	// once the sink is closed.
	Accepted int
	// InFlight is the part of Remaining that workers hold, including samples that wait for a retry.
	InFlight int
	// Held is the part of Remaining that Config.Pace currently holds back.
	Held int
	// Claimed counts all samples that have been claimed so far.
	Claimed int

	// ByClass splits Failed by class. It does not include failed calls of samples that have rows:
	// see LostCalls.
	ByClass map[Class]int

	// The fields below count only the work of this process.

	// Attempts counts the attempts that were started. FailedByClass counts the attempts that
	// failed. Retries is the sum of InfraRetries and DataRetries.
	Attempts, Retries, InfraRetries, DataRetries int
	FailedByClass                                map[Class]int
	// Reattached counts the attempts of earlier processes that were taken over. Gone counts the
	// attempts of earlier processes that could not be taken over.
	Reattached, Gone int
	// Remade counts, by class of failure, the rollouts that were lost because of the infrastructure
	// and then repeated. If an answer was lost and the server's record lacks part of it, the key is
	// the tokenize.Reason that describes the gap. Kept counts the rollouts that became data. If the
	// mean duration in Remade is above the mean duration in Kept, the data has too few long
	// rollouts, because longer rollouts are lost more often.
	Remade map[string]RolloutCount
	Kept   RolloutCount
	// AdmissionWait is the total time that samples waited for a permit. Only the next fresh sample
	// and the samples whose retry is due wait for a permit.
	AdmissionWait time.Duration
	// CloseFailures counts agents that could not be removed.
	CloseFailures int
	// Unscored counts samples without a score. ScorerFailures counts the unscored samples for which
	// the scorer failed. The tasks of the other unscored samples have no reference answer.
	Unscored, ScorerFailures int

	Pace *pace.Stats

	// Yield counts the content of the accepted samples.
	Yield

	Endpoints []EndpointStats
	// Oldest is the sample that has been in flight the longest, or nil. LongestInStage is the
	// sample that has been in its current stage the longest. It ignores samples in StageWait.
	Oldest, LongestInStage *InFlight
}

// Earlier counts the samples that earlier processes of a run finished.
type Earlier struct {
	Committed, Filtered, Failed, Skipped int
}

// A Yield counts the content of samples.
type Yield struct {
	// Rows counts training sequences. Sampled counts the sampled tokens in rows and failures.
	// Trained counts the tokens with a loss mask of 1. Neither count includes tokens that
	// MaxRowTokens cut off.
	Rows             int
	Sampled, Trained int64
	// UnscoredTokens counts the sampled tokens in rows with mask 0. TrimmedTokens counts the sampled tokens
	// that were replaced. Lost counts the sampled tokens in failures. So Sampled is the sum of
	// Trained, UnscoredTokens, TrimmedTokens and Lost.
	UnscoredTokens, TrimmedTokens int64
	Lost                          tokenize.LostTokens
	// LostCalls counts failed calls in samples whose other calls make rows. UntrainedCalls counts
	// the calls in failures that are valid but not trained on (see tokenize.Untrained).
	LostCalls, UntrainedCalls int
	// Downgraded counts rows with a lower grade because the answer that contained their prompts was
	// lost.
	Downgraded int
	// CutCalls counts the calls that MaxRowTokens cut off, and Cut counts the sampled tokens of
	// these calls. These tokens are not written anywhere. The row before the cut is flagged.
	CutCalls int
	Cut      int64
	// The Version fields count the sampled tokens of calls that make rows, by the source of their
	// policy version. VersionNone counts tokens with an unknown version.
	VersionTrace, VersionTap, VersionURL, VersionFlag, VersionSet, VersionNone int64
	// EmptyRows counts rows that were dropped because none of their tokens is trainable. Empty
	// counts the samples that have no row for this reason.
	EmptyRows, Empty int
}

// yieldOf returns the Yield of one sample. It does not set CutCalls, Cut, EmptyRows or the Version
// fields, which come from the aligner and the calls.
func yieldOf(s *tokenize.Sample) Yield {
	y := Yield{Rows: len(s.Rows)}
	if len(s.Rows) == 0 && len(s.Failures) == 0 {
		y.Empty = 1
	}
	for i := range s.Rows {
		r := &s.Rows[i]
		for _, m := range r.LossMask {
			y.Trained += int64(m)
		}
		y.UnscoredTokens += int64(r.Unscored)
		y.TrimmedTokens += int64(r.Trimmed)
		if r.Flags&tokenize.FlagReattached != 0 && r.Grade != tokenize.Exact {
			y.Downgraded++
		}
	}
	for i := range s.Failures {
		f := &s.Failures[i]
		y.Lost.Count(f.Reason, f.Call, len(f.OutputIDs))
		switch {
		case tokenize.Untrained(f.Reason, f.Call):
			y.UntrainedCalls++
		case f.Call >= 0:
			y.LostCalls++
		}
	}
	y.Sampled = y.Balance().Sampled
	return y
}

// Balance returns the terms of Sampled.
func (y *Yield) Balance() tokenize.Balance {
	return tokenize.NewBalance(y.Trained, y.UnscoredTokens, y.TrimmedTokens, y.Lost)
}

func (y *Yield) countVersions(calls []tokenize.Call) {
	for i := range calls {
		c := &calls[i]
		if c.Grade == tokenize.Quarantined {
			continue
		}
		n, none := int64(len(c.OutputIDs)), int64(0)
		switch {
		case c.Versions != nil:
			for _, v := range c.Versions {
				if v < 0 {
					none++
				}
			}
		case c.Version < 0:
			none = n
		}
		n -= none
		y.VersionNone += none
		switch c.VersionFrom {
		case tokenize.VersionTap:
			y.VersionTap += n
		case tokenize.VersionURL:
			y.VersionURL += n
		case tokenize.VersionFlag:
			y.VersionFlag += n
		case tokenize.VersionSet:
			y.VersionSet += n
		default:
			y.VersionTrace += n
		}
	}
}

func (y *Yield) add(o Yield) {
	y.Rows += o.Rows
	y.Sampled += o.Sampled
	y.Trained += o.Trained
	y.UnscoredTokens += o.UnscoredTokens
	y.TrimmedTokens += o.TrimmedTokens
	y.Lost.Add(o.Lost)
	y.LostCalls += o.LostCalls
	y.UntrainedCalls += o.UntrainedCalls
	y.Downgraded += o.Downgraded
	y.CutCalls += o.CutCalls
	y.Cut += o.Cut
	y.VersionTrace += o.VersionTrace
	y.VersionTap += o.VersionTap
	y.VersionURL += o.VersionURL
	y.VersionFlag += o.VersionFlag
	y.VersionSet += o.VersionSet
	y.VersionNone += o.VersionNone
	y.EmptyRows += o.EmptyRows
	y.Empty += o.Empty
}

// EndpointStats contains the statistics of one endpoint.
type EndpointStats struct {
	Name string
	// InFlight counts the samples that workers hold. Waiting is the number of these samples that
	// are between two attempts.
	InFlight, Waiting int
	// Stages splits InFlight by stage.
	Stages map[Stage]int
	// Limit is the current limit on the number of samples in flight. Max is the highest value that
	// Limit can have.
	Limit, Max int
	// Topped is the gain from raising Limit to Max. It is nil if no gain was measured, the gain was
	// too small, or Limit is now below Max.
	Topped *limit.Gain
	// Engine is the last value that was passed to Collector.Engine. EngineSeen is the time of that
	// call, or zero if Collector.Engine was never called.
	Engine     limit.Engine
	EngineSeen time.Time
	// Down is true if the server is considered down. Lost is true if the run no longer uses the
	// endpoint.
	Down, Lost bool
	// Mute is true if removals of agents time out. See Config.CloseTimeout.
	Mute bool
}

// InFlight describes a sample that a worker holds.
type InFlight struct {
	TaskID   string
	Index    int
	Attempt  int
	Endpoint string
	// Stage is the current stage of the sample. Since is the time at which this stage began.
	// Started is the time at which the sample was claimed.
	Stage          Stage
	Since, Started time.Time
}

// Oldest returns the n samples that have been in flight the longest, or all samples in flight if
// there are fewer. The oldest sample comes first.
func (c *Collector) Oldest(n int) []InFlight {
	all := c.counters.inFlight()
	slices.SortFunc(all, func(a, b InFlight) int { return a.Started.Compare(b.Started) })
	return all[:min(n, len(all))]
}

// A RolloutCount counts rollouts and sums their durations.
type RolloutCount struct {
	N int
	// Timed counts the rollouts with a known duration, and Time is the sum of these durations. A
	// duration starts when the attempt begins. If an earlier process began the attempt, the
	// duration is measured by the server's clock.
	Timed int
	Time  time.Duration
}

// Mean returns the mean duration, or 0 if no duration is known.
func (r RolloutCount) Mean() time.Duration {
	if r.Timed == 0 {
		return 0
	}
	return r.Time / time.Duration(r.Timed)
}

func (r *RolloutCount) add(took time.Duration) {
	r.N++
	if took > 0 {
		r.Timed++
		r.Time += took
	}
}

// RemadeReasons returns all possible keys of Stats.Remade.
func RemadeReasons() []string {
	var all []string
	for _, c := range Classes() {
		if c.Retryable() {
			all = append(all, c.String())
		}
	}
	for r := tokenize.ReasonNone + 1; ; r++ {
		word, err := r.MarshalText()
		if err != nil {
			return all // the previous reason was the last
		}
		if reasonClass(r) == ClassNoPrompt || r == tokenize.ReasonCountMismatch || r == tokenize.ReasonHole {
			all = append(all, string(word))
		}
	}
}
