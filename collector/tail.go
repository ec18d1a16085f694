package collector

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/tokenize/enum"
)

// A Tail is the policy for the last samples, which take the longest. The zero Tail waits for these
// samples.
//
// A cut saves much time but biases the data. On average, the kept samples take less time and have
// fewer tokens than the policy's real rollouts. A cut sample has a failure row with class censored.
// Collector.Tail compares kept and cut samples.
type Tail struct {
	Kind TailKind
	// Deadline is the time from the start of Run to the cut. Only TailDeadline uses it.
	Deadline time.Duration
	// Factor must be above 1 and at most 4. Only TailOversample uses it. The tail is cut when
	// Planned / Factor samples, rounded up, have succeeded.
	Factor float64
}

// maxTailFactor is the largest valid Tail.Factor. With this factor, a quarter of the samples is
// kept. A larger factor is probably a mistake, such as 105 instead of 1.05.
const maxTailFactor = 4

// A TailKind determines when a Tail cuts samples.
type TailKind uint8

// The kinds of Tail.
const (
	TailWait       TailKind = iota // nothing is cut
	TailDeadline                   // cut after a time
	TailOversample                 // cut when enough samples have succeeded
)

var tailKinds = enum.List[TailKind]{Noun: "tail", Words: []string{"wait", "deadline", "oversample"}}

func (k TailKind) String() string { return tailKinds.String(k) }

// String returns the text that ParseTail parses.
func (t Tail) String() string {
	switch t.Kind {
	case TailDeadline:
		return "deadline=" + t.Deadline.String()
	case TailOversample:
		return "oversample=" + strconv.FormatFloat(t.Factor, 'g', -1, 64)
	case TailWait:
	}
	return t.Kind.String()
}

// ParseTail parses wait, deadline=DURATION or oversample=FACTOR.
func ParseTail(text string) (Tail, error) {
	kind, value, _ := strings.Cut(text, "=")
	var t Tail
	var err error
	switch kind {
	case "wait":
		if value == "" {
			return t, nil
		}
		err = errors.New("wait takes no value")
	case "deadline":
		t.Kind = TailDeadline
		t.Deadline, err = time.ParseDuration(value)
	case "oversample":
		t.Kind = TailOversample
		if t.Factor, err = strconv.ParseFloat(value, 64); err != nil {
			err = fmt.Errorf("factor %q: not a number", value)
		}
	default:
		err = errors.New("unknown policy")
	}
	if err == nil {
		err = t.validate()
	}
	if err != nil {
		return Tail{}, fmt.Errorf("tail %q: %w (want wait, deadline=2h or oversample=1.05)", text, err)
	}
	return t, nil
}

func (t Tail) validate() error {
	switch t.Kind {
	case TailWait:
		return nil
	case TailDeadline:
		if t.Deadline <= 0 {
			return fmt.Errorf("deadline %v: must be > 0", t.Deadline)
		}
		return nil
	case TailOversample:
		if !(t.Factor > 1 && t.Factor <= maxTailFactor) { // also rejects NaN
			return fmt.Errorf("factor %v: must be > 1 and ≤ %d; for example, 1.05 plans 5%% more samples than needed", t.Factor, maxTailFactor)
		}
		return nil
	}
	return fmt.Errorf("unknown kind %v", t.Kind)
}

func (t Tail) need(planned int) int { return int(math.Ceil(float64(planned)/t.Factor - 1e-9)) }

// MaxSkipped returns the largest number of planned samples that the policy can skip.
func (t Tail) MaxSkipped(planned int) int {
	switch t.Kind {
	case TailOversample:
		return planned - t.need(planned)
	case TailDeadline:
		return planned
	default:
		return 0
	}
}

// A tail cuts the last samples and measures the kept and the cut samples.
type tail struct {
	cut flag

	mu         sync.Mutex
	over       bool // Run has ended
	enough     bool // the pacer needs no more groups; stays false if the run was drained
	succeeded  int  // number of samples that succeeded, in this or an earlier process
	kept, lost []measure
}

type measure struct {
	took    time.Duration
	sampled int64
}

// cutTail stops the claiming of samples and ends every rollout in flight that does not yet have a
// reply.
func (c *Collector) cutTail() {
	t := &c.tail
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		t.cut.set(true)
		c.Drain()
	}
}

// endTail records that Run has ended without an error.
func (c *Collector) endTail() {
	c.tail.mu.Lock()
	defer c.tail.mu.Unlock()
	c.tail.over = true
	c.tail.enough = c.cfg.Pace != nil && c.cfg.Pace.Stats().Enough && c.drained.Err() == nil
}

// skipRest counts unclaimed samples as skipped if the run is over and the tail was cut or the pacer
// had enough groups.
func (c *Collector) skipRest(s *Stats) {
	c.tail.mu.Lock()
	defer c.tail.mu.Unlock()
	s.Censored = s.Skipped
	if (c.tail.cut.isUp() || c.tail.enough) && c.tail.over {
		s.Unstarted = s.Remaining - s.Accepted
		s.Skipped += s.Unstarted
		s.Remaining -= s.Unstarted
	}
}

// addSucceeded counts n samples that succeeded, and cuts the tail when enough samples have
// succeeded.
func (c *Collector) addSucceeded(n int) {
	if c.cfg.Tail.Kind != TailOversample {
		return
	}
	c.tail.mu.Lock()
	c.tail.succeeded += n
	enough := c.tail.succeeded >= c.cfg.Tail.need(c.limited(c.cfg.Planned))
	c.tail.mu.Unlock()
	if enough {
		c.cutTail()
	}
}

func (c *Collector) addMeasure(class Class, took time.Duration, sampled int64) {
	if c.cfg.Tail.Kind == TailWait || class != ClassNone && class != ClassCensored {
		return
	}
	c.tail.mu.Lock()
	if m := (measure{took, sampled}); class == ClassNone {
		c.tail.kept = append(c.tail.kept, m)
	} else {
		c.tail.lost = append(c.tail.lost, m)
	}
	c.tail.mu.Unlock()
}

// TailStats compares the samples that a Tail kept and cut in this process.
type TailStats struct {
	// Cut is true if the tail was cut. If it is false, the tail policy has not biased the data.
	Cut bool
	// Kept measures the samples that succeeded. Censored measures the cut samples only up to the
	// cut, so their true values would be higher.
	Kept, Censored Measures
}

// Measures contains means and medians over N samples. A duration is the time from the first attempt
// at a sample to the end of the sample, including waits. MeanSampled and P50Sampled are numbers of
// sampled tokens. They include only samples whose number of sampled tokens is known; Known counts
// these samples. The number is unknown for a rollout that is cut during its first send.
type Measures struct {
	N                         int
	MeanDuration, P50Duration time.Duration
	Known                     int
	MeanSampled, P50Sampled   float64
}

// Tail returns the statistics of the tail policy so far. It sorts all measured values, so do not
// call it for every line of a progress display.
func (c *Collector) Tail() TailStats {
	c.tail.mu.Lock()
	defer c.tail.mu.Unlock()
	return TailStats{Cut: c.tail.cut.isUp(), Kept: measuresOf(c.tail.kept), Censored: measuresOf(c.tail.lost)}
}

func measuresOf(all []measure) Measures {
	m := Measures{N: len(all)}
	if m.N == 0 {
		return m
	}
	took, sampled := make([]time.Duration, 0, m.N), make([]int64, 0, m.N)
	var sumTook time.Duration
	var sumSampled int64
	for _, one := range all {
		took = append(took, one.took)
		sumTook += one.took
		if one.sampled > 0 {
			sampled = append(sampled, one.sampled)
			sumSampled += one.sampled
		}
	}
	slices.Sort(took)
	slices.Sort(sampled)
	m.MeanDuration, m.P50Duration = sumTook/time.Duration(m.N), took[m.N/2]
	if m.Known = len(sampled); m.Known > 0 {
		m.MeanSampled, m.P50Sampled = float64(sumSampled)/float64(m.Known), float64(sampled[m.Known/2])
	}
	return m
}
