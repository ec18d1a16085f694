package collector

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Tail decides what becomes of the last samples, which take the longest. The zero Tail waits
// for them.
//
// Cutting them saves much time and biases the data: what is kept is shorter, in time and in
// tokens, than what the policy does. So it is never the default. What was cut has a failure
// row with class censored, and Collector.Tail tells how kept and cut samples differ.
type Tail struct {
	Kind TailKind
	// Deadline is the time from the start of Run to the cut, of TailDeadline.
	Deadline time.Duration
	// Factor is how many times more samples are planned than needed, of TailOversample: the
	// cut comes when Planned / Factor of them, rounded up, went well. It is above 1 and at
	// most MaxTailFactor.
	Factor float64
}

// MaxTailFactor is the largest Tail.Factor: it leaves a quarter of what was planned. A larger
// one is more likely a mistake, such as 105 for 1.05.
const MaxTailFactor = 4

// A TailKind is when a Tail cuts.
type TailKind uint8

// The kinds.
const (
	TailWait       TailKind = iota // nothing is cut
	TailDeadline                   // cut after a time
	TailOversample                 // cut when enough samples went well
)

var tailKinds = [...]string{"wait", "deadline", "oversample"}

func (k TailKind) String() string {
	if int(k) < len(tailKinds) {
		return tailKinds[k]
	}
	return fmt.Sprintf("tail(%d)", uint8(k))
}

// String returns the text that ParseTail reads.
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

// ParseTail reads wait, deadline=DURATION or oversample=FACTOR.
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
		t.Factor, err = strconv.ParseFloat(value, 64)
	default:
		err = errors.New("unknown policy")
	}
	if err == nil {
		err = t.validate()
	}
	if err != nil {
		return Tail{}, fmt.Errorf("tail %q: %w: want wait, deadline=2h or oversample=1.05", text, err)
	}
	return t, nil
}

func (t Tail) validate() error {
	switch t.Kind {
	case TailWait:
		return nil
	case TailDeadline:
		if t.Deadline <= 0 {
			return fmt.Errorf("deadline %v: must be more than 0", t.Deadline)
		}
		return nil
	case TailOversample:
		if !(t.Factor > 1 && t.Factor <= MaxTailFactor) { // NaN is not
			return fmt.Errorf("factor %v: must be above 1 and at most %d; 1.05 plans 5 %% more samples than are needed", t.Factor, MaxTailFactor)
		}
		return nil
	}
	return fmt.Errorf("kind %v: unknown", t.Kind)
}

// need returns how many of the planned samples must go well.
func (t Tail) need(planned int) int { return int(math.Ceil(float64(planned)/t.Factor - 1e-9)) }

// MaySkip returns how many of the planned samples the policy may leave out at most.
func (t Tail) MaySkip(planned int) int {
	switch t.Kind {
	case TailOversample:
		return planned - t.need(planned)
	case TailDeadline:
		return planned
	default:
		return 0
	}
}

// A tail cuts the last samples, and knows what was kept and what was cut.
type tail struct {
	done chan struct{} // closed by the cut

	mu         sync.Mutex
	isCut      bool
	over       bool                            // Run has ended
	enough     bool                            // the pacer needs no further group; not after a drain
	rolling    map[int]context.CancelCauseFunc // ends the attempts in progress
	next       int                             // key of the last one in rolling
	good       int                             // samples that went well, in earlier processes too
	kept, lost []measure
}

// A measure is how long a sample took and how many tokens it has.
type measure struct {
	took    time.Duration
	sampled int64
}

// cutTail ends claiming, and every rollout that is in flight without its reply.
func (c *Collector) cutTail() {
	t := &c.tail
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isCut || t.over {
		return
	}
	t.isCut = true
	close(t.done)
	c.Drain()
	for _, cancel := range t.rolling {
		cancel(ErrCensored)
	}
}

// endTail notes that Run has ended without an error.
func (c *Collector) endTail() {
	c.tail.mu.Lock()
	defer c.tail.mu.Unlock()
	c.tail.over = true
	c.tail.enough = c.cfg.Pace != nil && c.cfg.Pace.Stats().Enough && c.drained.Err() == nil
}

// skipRest counts samples that were not taken up as skipped if the tail was cut, or if they
// are not needed, and the run is over: then nothing remains.
func (c *Collector) skipRest(s *Stats) {
	c.tail.mu.Lock()
	defer c.tail.mu.Unlock()
	s.Censored = s.Skipped
	if (c.tail.isCut || c.tail.enough) && c.tail.over {
		s.Unstarted = s.Remaining - s.Accepted
		s.Skipped += s.Unstarted
		s.Remaining -= s.Unstarted
	}
}

// wellDone counts n samples that went well, and cuts the tail when they are enough.
func (c *Collector) wellDone(n int) {
	if c.cfg.Tail.Kind != TailOversample {
		return
	}
	c.tail.mu.Lock()
	c.tail.good += n
	enough := c.tail.good >= c.cfg.Tail.need(c.limited(c.cfg.Planned))
	c.tail.mu.Unlock()
	if enough {
		c.cutTail()
	}
}

// measured keeps the measure of a sample that the sink has.
func (c *Collector) measured(class Class, took time.Duration, sampled int64) {
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

// cut reports whether the tail was cut.
func (c *Collector) cut() bool {
	select {
	case <-c.tail.done:
		return true
	default:
		return false
	}
}

// untilCut returns a ctx that ends with ErrCensored when the tail is cut. The function must be
// called.
func (c *Collector) untilCut(ctx context.Context) (context.Context, func()) {
	t := &c.tail
	ctx, cancel := context.WithCancelCause(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isCut {
		cancel(ErrCensored)
	}
	t.next++
	n := t.next
	t.rolling[n] = cancel
	return ctx, func() {
		cancel(nil)
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.rolling, n)
	}
}

// TailStats tells what a Tail kept and what it cut, of the samples of this process.
type TailStats struct {
	// Cut reports that the cut came; if not, nothing is biased. There may have been nothing
	// left to cut.
	Cut bool
	// Kept measures the samples that went well. Censored measures those that were cut, up to
	// the cut: the true values are higher.
	Kept, Censored Measures
}

// Measures are averages of N samples. Duration is from a sample's first attempt to its end,
// waits between attempts included. Sampled counts the tokens of the policy, of the Known
// samples that have any: a rollout that is cut in its first send has shown none.
type Measures struct {
	N                         int
	MeanDuration, P50Duration time.Duration
	Known                     int
	MeanSampled, P50Sampled   float64
}

// Tail returns what the tail policy did so far. It sorts what it counted, so that it is too
// slow for every line of a progress display.
func (c *Collector) Tail() TailStats {
	c.tail.mu.Lock()
	defer c.tail.mu.Unlock()
	return TailStats{Cut: c.tail.isCut, Kept: measuresOf(c.tail.kept), Censored: measuresOf(c.tail.lost)}
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

// censor gives the sample to the sink as one that was cut, with what its last attempt left.
// ended reports that the end of that attempt is noted. why is ErrCensored or a
// *deadlineError. A sample without an attempt in this process has nothing to give to the
// first: a later run may take it up.
func (w *worker) censor(ctx context.Context, cl *claim, ended bool, why error) error {
	a := cl.last
	if a == nil && why != ErrCensored {
		a = w.neverBegun(cl, why)
	}
	if a == nil || a.failed == nil {
		return nil
	}
	f := &a.failed.Failures[0]
	if f.Class != ClassCensored.String() { // it waited for its retry
		f.Class, f.Error = ClassCensored.String(), shortened(why.Error()+" after: "+f.Error)
	}
	err := w.append(ctx, cl, a.failed, ClassCensored, yieldOf(a.failed))
	if cl.settled && !ended {
		err = errors.Join(err, w.noteEnd(cl, a.N, ClassCensored, false))
	}
	return err
}
