package collector_test

import (
	"runtime"
	"testing"

	"github.com/rollout-rl/rollout/collector"
)

// The survey stores little more than one byte per sample.
func TestSurveyMemory(t *testing.T) {
	const groups, samples, bound = 20_000, 16, 4
	var before, most runtime.MemStats
	n := 0
	c := setup(t, &scripted{}, &shelf{atOnce: true}, func(cfg *collector.Config) {
		cfg.Samples = samples
		cfg.Left = func(string) collector.SampleState {
			n++
			switch n {
			case 1:
				runtime.GC()
				runtime.ReadMemStats(&before)
			case groups * samples:
				runtime.GC()
				runtime.ReadMemStats(&most)
			}
			return collector.SampleState{Done: n%3 > 0, Failed: collector.ClassDecode, Attempts: 1}
		}
	})
	finish(t, c, tasks(groups))
	if per := (float64(most.HeapAlloc) - float64(before.HeapAlloc)) / (groups * samples); per > bound {
		t.Errorf("%.1f bytes are kept per sample, want at most %d", per, bound)
	}
	st := c.Stats()
	if st.Remaining != 0 || st.Committed+st.Failed != groups*samples {
		t.Errorf("stats %+v", st)
	}
}
