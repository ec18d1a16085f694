package collector_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/pace"
	"github.com/rollout-rl/rollout/tokenize"
)

// trained runs a trainer over a collector whose long tasks are slow. It returns the lengths of all
// planned and of the trained samples, and the share of groups that arrived too old.
func trained(t *testing.T, lag int, discard bool) (planned, got []float64, stale float64) {
	t.Helper()
	const (
		size, batch = 4, 8
		want        = 1000 // groups to train
		ahead       = 32
		k           = 1
		training    = 20 * time.Second
	)
	length := func(i int) float64 { // of the rollouts of task i, in tokens
		rng := rand.New(rand.NewPCG(uint64(i), 99))
		return math.Ceil(40 * math.Exp(rng.NormFloat64()))
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.b.script = func(a collector.Attempt) step {
			n := length(number(a))
			return step{
				takes: time.Duration((n + float64(a.Index)) * float64(time.Second)),
				reply: func() *collector.Reply { return longReply(int(n)) },
			}
		}
		j := r.judge(pace.Config{MaxAhead: ahead, MaxLag: lag})
		p, queue := j.p, make(chan *judged, 4*ahead)
		j.given = func(g *judged) { queue <- g }
		r.room(ahead * size)
		r.cfg.Samples = size
		c := r.build()
		n := 0
		go func() {
			defer c.Drain()
			for v := int32(0); n < want; v++ {
				p.SetVersion(v)
				for i := 0; i < batch; {
					g := <-queue
					p.Acknowledged(g.id)
					if g.lag > k {
						stale++
						if discard {
							continue
						}
					}
					i++
					n++
					for _, s := range g.samples {
						got = append(got, float64(yieldOf(s)))
					}
				}
				time.Sleep(training)
			}
		}()
		r.finish(tasks(1 << 20))
		lags := p.Stats().Lags
		t.Logf("max lag %d, discard %v: %d trained in %v, lags %v", lag, discard, len(got), r.took, lags[:10])
		seen := 0
		for _, n := range lags {
			seen += n
		}
		stale /= float64(seen)
	})
	for i := range 5000 {
		planned = append(planned, slices.Repeat([]float64{length(i)}, size)...)
	}
	return planned, got, stale
}

// yieldOf returns the number of trainable tokens of the sample.
func yieldOf(s *tokenize.Sample) (n int) {
	for i := range s.Rows {
		for _, m := range s.Rows[i].LossMask {
			n += int(m)
		}
	}
	return n
}

func longReply(n int) *collector.Reply {
	r := goodReply()
	turn := &r.Sends[0].Turns[0]
	turn.OutputIDs, turn.Logprobs = slices.Repeat([]int32{7}, n), slices.Repeat([]float32{-1}, n)
	r.Sends[0].Turns = r.Sends[0].Turns[:1]
	r.Sends[0].Usage = collector.Usage{PromptTokens: 3, CompletionTokens: int64(n), Steps: 1}
	return r
}

// distance is the Kolmogorov–Smirnov distance of two samples.
func distance(a, b []float64) (most float64) {
	slices.Sort(a)
	slices.Sort(b)
	for _, x := range a {
		i, _ := slices.BinarySearch(a, math.Nextafter(x, math.Inf(1)))
		k, _ := slices.BinarySearch(b, math.Nextafter(x, math.Inf(1)))
		most = max(most, math.Abs(float64(i)/float64(len(a))-float64(k)/float64(len(b))))
	}
	return most
}

// Trained samples are as long as planned samples if old groups are held back, and shorter if old
// groups are discarded on arrival.
func TestPacingKeepsTheDistribution(t *testing.T) {
	t.Parallel()
	planned, paced, late := trained(t, 1, false)
	_, discarding, _ := trained(t, -1, true)
	_, _, lateWithout := trained(t, -1, false)
	with, without := distance(planned, paced), distance(planned, discarding)
	t.Logf("n %d: distance %.3f with pacing, %.3f with discarding; arrived too old: %.3f with pacing, %.3f without", len(paced), with, without, late, lateWithout)
	if len(paced) < 2000 || with > 0.05 {
		t.Errorf("n %d: the distance is %.3f with pacing, want at most 0.05", len(paced), with)
	}
	if without < 0.15 {
		t.Errorf("the distance is %.3f with discarding, want at least 0.15: the test shows nothing", without)
	}
	if late > lateWithout/2 {
		t.Errorf("%.3f of the groups arrived too old with pacing, and %.3f without", late, lateWithout)
	}
}
