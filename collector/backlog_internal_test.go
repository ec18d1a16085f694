package collector

import (
	"testing"
	"testing/synctest"
	"time"
)

// A sample that arrives after the close stays out of the backlog, and its deadline cuts nothing.
func TestBacklogClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBacklog(&feed{c: &Collector{}})
		b.close()
		cl := claim{sample: sample{task: &Task{}, groupSize: 1, cut: cutoff{deadline: time.Now().Add(time.Minute)}}}
		if more, err := b.add(t.Context(), cl); more || err != nil {
			t.Errorf("add: %v, %v, want false", more, err)
		}
		if b.list.Len() != 0 {
			t.Errorf("%d samples in the backlog", b.list.Len())
		}
		time.Sleep(time.Hour) // fake time: the deadline passes
	})
}
