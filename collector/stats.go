package collector

import (
	"slices"
	"time"

	"github.com/rollout-rl/rollout/collector/limit"
	"github.com/rollout-rl/rollout/collector/pace"
	"github.com/rollout-rl/rollout/tokenize"
)

// Stats is a snapshot of a run. At every moment
//
//	Planned == Committed + Filtered + Failed + Skipped + Remaining
//
// The package comment says how to add an aggregate.
type Stats struct {
	// Started is when Run began; zero before it.
	Started time.Time

	// Planned counts the samples of the run: what Config.Planned or Plan says, or what was
	// read so far if that is more. It grows with Config.More.
	Planned int
	// Committed counts samples in a committed shard, also those without any row. Filtered
	// counts those of them that are there with keep=false, and Committed does not. Failed
	// counts samples that failed for good and whose failure row is in a committed shard.
	// Skipped counts samples that the tail policy or a deadline cut, and, once Run has ended
	// with a cut by the tail policy or with enough groups, also those that were never taken
	// up. Remaining counts the rest. What earlier processes did is included, as far as Run
	// has read the tasks.
	Committed, Filtered, Failed, Skipped, Remaining int
	// Earlier is the part of them that this process found done. A failed sample that is
	// tried anew counts as Failed until it is taken up, as Remaining after that, and as
	// Failed again if it is given back.
	Earlier Earlier
	// Censored and Unstarted are the parts of Skipped. Censored samples have a failure row
	// that says that they were cut. Unstarted ones have none: a later run may take them up.
	Censored, Unstarted int
	// Accepted is the part of Remaining that is finished and that the sink holds without
	// having committed it. It is 0 once the sink is closed.
	Accepted int
	// InFlight is the part of Remaining that an endpoint works on, samples that wait for a
	// retry included.
	InFlight int
	// Held is the part of Remaining that waits because Config.Pace holds it back now.
	Held int
	// Claimed counts the samples that were ever taken up.
	Claimed int

	// ByClass counts the samples of Failed. A sample of which only single calls failed is
	// not in it: LostCalls counts those.
	ByClass map[Class]int

	// What follows counts what this process does.

	// Attempts counts the attempts that began. InfraRetries and DataRetries count those of
	// these kinds, and Retries is their sum. FailedByClass counts the attempts that failed.
	Attempts, Retries, InfraRetries, DataRetries int
	FailedByClass                                map[Class]int
	// Reattached counts the attempts of earlier processes that were taken over, Gone those
	// that could not be.
	Reattached, Gone int
	// Remade counts the rollouts that were under way when the infrastructure lost them,
	// and that were made again, by the reason: the class of the failure, or, if an answer
	// was lost and the record on the server gives less, the reason of what is missing. Kept
	// counts the rollouts that became data. A rollout that takes longer is lost more often:
	// if the mean of Remade is above that of Kept, the data is short of long ones.
	Remade map[string]RolloutCount
	Kept   RolloutCount
	// AdmissionWait is for how long samples waited for room, in all: the next one in line,
	// and those whose retry was due.
	AdmissionWait time.Duration
	// CloseFailures counts agents that could not be removed.
	CloseFailures int
	// Unscored counts samples that could not be scored. ScorerFailures is the part of them
	// whose scorer failed; the tasks of the others have nothing to score by.
	Unscored, ScorerFailures int

	// Pace is what Config.Pace tells; nil without one.
	Pace *pace.Stats

	// Yield counts what is in the samples that the sink accepted.
	Yield

	Endpoints []EndpointStats
	// Oldest is the sample that is in flight for the longest time, or nil. LongestInStage
	// is the one that is in its stage for the longest time; those that wait for a retry
	// are left out.
	Oldest, LongestInStage *InFlight
}

// Earlier counts what earlier processes of a run did.
type Earlier struct {
	Committed, Filtered, Failed, Skipped int
}

// A Yield counts what is in samples. yieldOf counts one sample, add sums them up.
type Yield struct {
	// Rows counts training sequences. Sampled counts the sampled tokens of rows and
	// failures, and Trained the tokens with a loss mask of 1. What MaxRowTokens cut off is
	// in none of them.
	Rows             int
	Sampled, Trained int64
	// LostCalls counts single calls that failed, of samples with other rows.
	LostCalls int
	// Downgraded counts rows that are proven less well because their answer was lost:
	// answers bring their prompts along, and the record on the server does not.
	Downgraded int
	// CutCalls counts the calls that MaxRowTokens cut off, and Cut their sampled tokens:
	// they are not written anywhere. The row before them is flagged.
	CutCalls int
	Cut      int64
	// VersionTrace, VersionTap, VersionURL, VersionFlag and VersionSet count the sampled tokens of the calls
	// that make rows, by who told the policy version of the call, and VersionNone those of which
	// it is unknown.
	VersionTrace, VersionTap, VersionURL, VersionFlag, VersionSet, VersionNone int64
	// EmptyRows counts rows that were left out because none of their tokens can be trained
	// on, Empty the samples that gave no row for that reason.
	EmptyRows, Empty int
}

// yieldOf counts one sample. CutCalls, Cut, EmptyRows and who told the versions are not in a
// sample: the aligner and the calls tell them.
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
		y.Sampled += int64(r.Unscored) + int64(r.Trimmed)
		if r.Flags&tokenize.FlagReattached != 0 && r.Grade != tokenize.Exact {
			y.Downgraded++
		}
	}
	y.Sampled += y.Trained
	for i := range s.Failures {
		f := &s.Failures[i]
		y.Sampled += int64(len(f.OutputIDs))
		if f.Call >= 0 {
			y.LostCalls++
		}
	}
	return y
}

// countVersions counts by whom the versions of the calls were told.
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
	y.LostCalls += o.LostCalls
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

// EndpointStats is the part of one endpoint in a run.
type EndpointStats struct {
	Name string
	// InFlight counts the samples in hand. Waiting is the part of them that waits between
	// two attempts, for its time to come or for room.
	InFlight, Waiting int
	// Stages counts InFlight by stage.
	Stages map[Stage]int
	// Limit is how many may be worked on at a time now, and Max how many ever.
	Limit, Max int
	// Topped is what the growth of Limit to Max gained; nil if that was not measured, or
	// was not worth it.
	Topped *limit.Gain
	// Engine is what Collector.Engine was told last, at EngineSeen; zero: never.
	Engine     limit.Engine
	EngineSeen time.Time
	// Down reports whether the server is taken to be down, Lost whether it was given up.
	Down, Lost bool
	// Mute reports that the server does not answer the removal of agents: see
	// Config.CloseTimeout.
	Mute bool
}

// InFlight is a sample that an endpoint works on.
type InFlight struct {
	TaskID   string
	Index    int
	Attempt  int
	Endpoint string
	// Stage is what it does, since Since; Started is when it was claimed.
	Stage          Stage
	Since, Started time.Time
}

// Oldest returns the n samples that are in flight for the longest time, the oldest first;
// fewer if fewer are in flight.
func (c *Collector) Oldest(n int) []InFlight {
	all := c.counters.inFlight()
	slices.SortFunc(all, func(a, b InFlight) int { return a.Started.Compare(b.Started) })
	return all[:min(n, len(all))]
}

// A RolloutCount counts rollouts that were under way, and adds up how long they took.
type RolloutCount struct {
	N int
	// Timed counts those whose duration is known, and Time is its sum: from making the
	// agent, or by the server's clock if an earlier process made it.
	Timed int
	Time  time.Duration
}

// Mean returns the mean duration; 0 if none is known.
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

// RemadeReasons lists every key of Stats.Remade.
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
			return all // that was the last
		}
		if ClassOf(r) == ClassNoPrompt || r == tokenize.ReasonCountMismatch || r == tokenize.ReasonHole {
			all = append(all, string(word))
		}
	}
}
