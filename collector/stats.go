package collector

import (
	"maps"
	"sync"
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

// counters holds what Stats shows. Its mutex is held for a few instructions at a
// time and never while anything else is called.
type counters struct {
	mu    sync.Mutex
	s     Stats // without Remaining, Endpoints, Oldest and LongestInStage
	slots []slot
	// failures counts failed samples that the sink accepted or is about to.
	failures int
	scored   bool // a sample was
}

// A slot is what one worker does. It is busy while task is set.
type slot struct {
	endpoint int
	busy     bool
	at       InFlight
}

func (c *counters) update(f func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.s)
}

// snapshot adds what follows from the rest.
func (c *counters) snapshot(endpoints []*endpoint) Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.s
	s.ByClass = maps.Clone(c.s.ByClass)
	s.FailedByClass = maps.Clone(c.s.FailedByClass)
	s.Rerolls = maps.Clone(c.s.Rerolls)
	s.Remaining = s.Planned - s.Committed - s.Failed - s.Skipped
	s.Endpoints = make([]EndpointStats, len(endpoints))
	for i, e := range endpoints {
		s.Endpoints[i] = EndpointStats{Name: e.Name, Limit: e.gate.limit(), Max: e.MaxInFlight, Topped: e.gate.topped(), Stages: map[Stage]int{}}
		s.Endpoints[i].Engine, s.Endpoints[i].EngineSeen = e.gate.seen()
		s.Endpoints[i].Down, s.Endpoints[i].Lost = e.health.state()
		s.Endpoints[i].Mute = e.removals.mute.isUp()
	}
	for i := range c.slots {
		sl := &c.slots[i]
		if !sl.busy {
			continue
		}
		s.InFlight++
		s.Endpoints[sl.endpoint].InFlight++
		s.Endpoints[sl.endpoint].Stages[sl.at.Stage]++
		if sl.at.Attempt > 0 && sl.at.Stage == StageWait {
			s.Endpoints[sl.endpoint].Waiting++
		}
		if s.Oldest == nil || sl.at.Started.Before(s.Oldest.Started) {
			at := sl.at
			s.Oldest = &at
		}
		if sl.at.Stage != StageWait && (s.LongestInStage == nil || sl.at.Since.Before(s.LongestInStage.Since)) {
			at := sl.at
			s.LongestInStage = &at
		}
	}
	return s
}

// slot adds a slot for a worker of the endpoint with this index.
func (c *counters) slot(endpoint int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slots = append(c.slots, slot{endpoint: endpoint})
	return len(c.slots) - 1
}

func (c *counters) claim(i int, cl claim, endpoint string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !cl.passed {
		c.s.Claimed++
		c.undone(cl.failed, -1)
	}
	c.slots[i].busy = true
	c.slots[i].at = InFlight{TaskID: cl.task.ID, Index: cl.index, Endpoint: endpoint, Since: now, Started: now}
}

// planned notes that so many samples were read.
func (c *counters) planned(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.Planned = max(c.s.Planned, n)
}

// survey counts what earlier processes left of the nth sample, and says whether it is
// to be taken up.
func (c *counters) survey(n int, left *Left, retryFailed bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.Planned = max(c.s.Planned, n)
	switch {
	case left.Done:
		c.s.Committed++
		c.s.Earlier.Committed++
		return false
	case left.Failed != ClassNone:
		c.undone(left.Failed, 1)
		return retryFailed
	}
	return !retryFailed
}

// undone adds n to the failures of earlier processes with this class.
func (c *counters) undone(class Class, n int) {
	switch class {
	case ClassNone:
	case ClassCensored:
		c.s.Skipped += n
		c.s.Earlier.Skipped += n
	default:
		c.failures += n
		c.s.Failed += n
		c.s.Earlier.Failed += n
		c.s.ByClass[class] += n
		if c.s.ByClass[class] == 0 {
			delete(c.s.ByClass, class)
		}
	}
}

// giveBack undoes the claim of a failed sample that was not mended.
func (c *counters) giveBack(failed Class) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.undone(failed, 1)
}

func (c *counters) attempt(k Kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.Attempts++
	switch k {
	case KindFirst, KindReattach:
	case KindInfraRetry:
		c.s.Retries++
		c.s.InfraRetries++
	case KindDataRetry:
		c.s.Retries++
		c.s.DataRetries++
	}
}

// reattached counts an attempt of an earlier process.
func (c *counters) reattached(gone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if gone {
		c.s.Gone++
	} else {
		c.s.Reattached++
	}
}

// ended counts an attempt that was under way for so long, where it became data.
func (c *counters) ended(kept bool, took time.Duration) {
	if !kept {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.Kept.add(took)
}

// rerolled counts the claim's last attempt, which is made again.
func (c *counters) rerolled(cl *claim, class Class) {
	c.mu.Lock()
	defer c.mu.Unlock()
	why := cl.why
	if why == "" {
		why = class.String()
	}
	r := c.s.Rerolls[why]
	r.add(cl.took)
	c.s.Rerolls[why] = r
}

func (c *counters) attemptFailed(class Class) {
	if class == ClassNone || class == ClassCancelled {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.FailedByClass[class]++
}

func (c *counters) stage(i, attempt int, s Stage, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := &c.slots[i].at
	at.Attempt, at.Stage, at.Since = attempt, s, now
}

func (c *counters) release(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slots[i].busy = false
}

// accept counts a sample that is about to go to the sink, and says whether it is
// one failure too many.
func (c *counters) accept(class Class, maxFailures int) (tooMany bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.Accepted++
	if class == ClassNone || class == ClassCensored {
		return false
	}
	c.failures++
	return maxFailures > 0 && c.failures > maxFailures
}

// refuse takes accept back.
func (c *counters) refuse(class Class) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.Accepted--
	if class != ClassNone && class != ClassCensored {
		c.failures--
	}
}

// done counts what the sink says about a sample that it accepted. before is the class
// of the failure that the dataset has of it.
func (c *counters) done(class, before Class, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.Accepted--
	switch {
	case err != nil: // it remains, or is what it was
		c.undone(before, 1)
	case class == ClassNone:
		c.s.Committed++
	case class == ClassCensored:
		c.s.Skipped++
	default:
		c.s.Failed++
		c.s.ByClass[class]++
	}
}

// A gain is what one sample adds to the counts of rows and tokens.
type gain struct {
	rows, lostCalls  int
	lesser           int // rows of lost answers that are not exact
	sampled, trained int64
	empty            bool
	leftOut
}

// leftOut counts what the aligner kept out of the rows of one sample: calls beyond
// the row limit and their sampled tokens, and rows without a token to train on.
type leftOut struct {
	cutCalls, emptyRows int
	cut                 int64
}

// gainOf counts s.
func gainOf(s *tokenize.Sample) gain {
	g := gain{rows: len(s.Rows), empty: len(s.Rows) == 0 && len(s.Failures) == 0}
	for i := range s.Rows {
		r := &s.Rows[i]
		for _, m := range r.LossMask {
			g.trained += int64(m)
		}
		g.sampled += int64(r.Unscored) + int64(r.Trimmed)
		if r.Flags&tokenize.FlagReattached != 0 && r.Grade != tokenize.Exact {
			g.lesser++
		}
	}
	g.sampled += g.trained
	for i := range s.Failures {
		f := &s.Failures[i]
		g.sampled += int64(len(f.OutputIDs))
		if f.Call >= 0 {
			g.lostCalls++
		}
	}
	return g
}

func (c *counters) gained(g gain) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.Rows += g.rows
	c.s.Downgraded += g.lesser
	c.s.LostCalls += g.lostCalls
	c.s.Sampled += g.sampled
	c.s.Trained += g.trained
	c.s.CutCalls += g.cutCalls
	c.s.Cut += g.cut
	c.s.EmptyRows += g.emptyRows
	if g.empty {
		c.s.Empty++
	}
}
