package collector

import (
	"slices"
	"time"

	"github.com/rollout-rl/rollout/collector/limit"
	"github.com/rollout-rl/rollout/tokenize"
)

// Stats is a snapshot of a run. At every moment
//
//	Planned == Committed + Failed + Skipped + Remaining
type Stats struct {
	Started time.Time // zero before Run

	// Planned counts the samples of the run: what Config.Planned says, or what was
	// read so far where that is more.
	Planned int
	// Committed counts samples in a committed shard, also those without any row;
	// Failed those that failed for good and whose failure row is in one. Skipped
	// counts samples that the tail policy cut, and once Run has ended with such a cut
	// also those that were never taken up. Remaining is the rest. What earlier
	// processes did is counted as well, as far as Run has read the tasks.
	Committed, Failed, Skipped, Remaining int
	// Earlier is the part of them that this process found done. A failed sample that is
	// to be mended is Failed until it is taken up; then it remains until it is
	// committed or fails again, and where neither comes it is Failed as before.
	Earlier Earlier
	// Censored and Unstarted are the parts of Skipped: the samples whose failure row says
	// that they were cut, and those without a row, which a later run may take up.
	Censored, Unstarted int
	// Accepted is the part of Remaining that is finished and that the sink holds
	// without having committed it. It gets to 0 when the sink is closed.
	Accepted int
	// InFlight is the part of Remaining that an endpoint works on; waiting for a
	// retry included.
	InFlight int
	// Claimed counts the samples that were ever taken up.
	Claimed int

	// ByClass counts the samples of Failed. A sample of which only single calls
	// failed is not in it: LostCalls counts those.
	ByClass   map[Class]int
	LostCalls int
	// Attempts counts attempts started, and FailedByClass those of them that failed.
	// InfraRetries and DataRetries are of those kinds, and Retries is their sum.
	// Like all that follow they count what this process does.
	Attempts, Retries, InfraRetries, DataRetries int
	FailedByClass                                map[Class]int
	// Reattached counts the attempts of earlier processes that were taken over, Gone
	// those of which nothing could be.
	Reattached, Gone int
	// Rerolls counts the rollouts that were under way when the infrastructure lost them,
	// and were made again at the cost of Config.Retries or at none, by why: the class of
	// the failure, or, where an answer was lost and the server's memory of it gives less,
	// the reason of what is missing. Kept counts those that became data. A rollout that
	// takes longer is lost more often: where the mean of Rerolls is above that of Kept,
	// the data is short of long ones.
	Rerolls map[string]Rerolls
	Kept    Rerolls
	// Downgraded counts rows that are proven less well because their answer was lost:
	// answers bring their prompts along, and the server's memory does not.
	Downgraded int
	// AdmissionWait sums for how long samples waited for room: the next one in line, and
	// those whose retry was due.
	AdmissionWait time.Duration
	// CloseFailures counts agents that could not be removed.
	CloseFailures int
	// Unscored counts samples that could not be scored, and ScorerFailures the part of
	// them whose scorer failed: the others' tasks hold nothing to score by.
	Unscored, ScorerFailures int

	// Rows, Sampled and Trained count what the sink accepted: training sequences,
	// sampled tokens of rows and failures, and tokens with a loss mask of 1. What
	// MaxRowTokens cut off is in none of them.
	Rows             int
	Sampled, Trained int64
	// CutCalls counts the calls that MaxRowTokens cut off, and Cut their sampled
	// tokens: they are not written anywhere. The row before them is flagged.
	CutCalls int
	Cut      int64
	// EmptyRows counts rows that were left out because no token of theirs can be
	// trained on, Empty the samples that gave no row for that reason.
	EmptyRows, Empty int

	Endpoints []EndpointStats
	// Oldest is the sample that is in flight for the longest time, or nil; LongestInStage the
	// one that has been in its stage for the longest time, those that wait for a retry
	// left out.
	Oldest, LongestInStage *InFlight
}

// Earlier counts what earlier processes of a run did.
type Earlier struct {
	Committed, Failed, Skipped int
}

// EndpointStats is the part of one endpoint in a run.
type EndpointStats struct {
	Name string
	// InFlight counts the samples in hand. Waiting is the part of them that waits
	// between two attempts, for its time to come or for room.
	InFlight, Waiting int
	// Stages counts InFlight by what is done.
	Stages map[Stage]int
	// Limit is how many may be worked on at a time now, and Max how many ever.
	Limit, Max int
	// Topped is what the growth of Limit to Max was measured to be good for; nil where
	// that was not measured, or did not pay off.
	Topped *limit.Gain
	// Engine is what Collector.Engine was told last, at EngineSeen; zero: never.
	Engine     limit.Engine
	EngineSeen time.Time
	// Down says that the server is taken to be down, Lost that it was given up.
	Down, Lost bool
	// Mute says that it does not answer the removal of agents: see Config.CloseTimeout.
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

// Oldest returns the n samples that are in flight for the longest time, the oldest
// first; fewer where fewer are.
func (c *Collector) Oldest(n int) []InFlight {
	all := c.counters.inFlight()
	slices.SortFunc(all, func(a, b InFlight) int { return a.Started.Compare(b.Started) })
	return all[:min(n, len(all))]
}

// A Rerolls counts rollouts that were under way and were made again.
type Rerolls struct {
	N int
	// Timed is how many of them had a duration that is known, and Time its sum: from
	// making the agent, or by the server's clock where an earlier process made it.
	Timed int
	Time  time.Duration
}

// Mean is the mean duration; 0 where none is known.
func (r Rerolls) Mean() time.Duration {
	if r.Timed == 0 {
		return 0
	}
	return r.Time / time.Duration(r.Timed)
}

func (r *Rerolls) add(took time.Duration) {
	r.N++
	if took > 0 {
		r.Timed++
		r.Time += took
	}
}

// RerollReasons lists every key of Stats.Rerolls.
func RerollReasons() []string {
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
