package journal_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/journal"
	"github.com/rollout-rl/rollout/sink"
)

var _ journal.Dataset = (*sink.Ledger)(nil)

// dataset maps each stored sample to its failure class.
type dataset map[string]string

func (d dataset) Len() int { return len(d) }

func (d dataset) Find(key string) (attempt int, class string, ok bool) {
	class, ok = d[key]
	return 2, class, ok
}

// TestResume checks that an attempt at a finished sample is not open, even if the journal lacks
// its end.
func TestResume(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir, journal.Config{})
	if j.Resume(dataset{}) != nil {
		t.Error("a new run has something to resume")
	}
	for i := range 3 {
		write(t, j, note{op: journal.OpBegin, key: key(0, i), n: 3, text: "a"})
	}
	// The dataset has its failure; the process died before it recorded the end.
	write(t, j, note{op: journal.OpBegin, key: key(0, 3), n: 2, text: "a"})
	closed(t, j)
	j = open(t, dir, journal.Config{})
	defer closed(t, j)
	if j.Resume(dataset{}) == nil {
		t.Error("open attempts are not resumed")
	}
	held := dataset{key(0, 0): "", key(0, 1): "decode", key(0, 3): "decode", key(1, 0): "", key(1, 1): "made by a newer program", key(1, 2): "unknown"}
	left := j.Resume(held)
	for _, tt := range []struct {
		key      string
		done     bool
		failed   collector.Class
		attempts int
		open     bool
	}{
		{key(0, 0), true, collector.ClassNone, 3, true},
		{key(0, 1), false, collector.ClassDecode, 3, true},
		{key(0, 2), false, collector.ClassNone, 3, true},
		{key(0, 3), false, collector.ClassDecode, 2, false},
		{key(1, 0), true, collector.ClassNone, 2, false},
		{key(1, 1), false, collector.ClassInternal, 2, false},
		{key(1, 2), false, collector.ClassInternal, 2, false},
		{key(1, 3), false, collector.ClassNone, 0, false},
	} {
		if l := left(tt.key); l.Done != tt.done || l.Failed != tt.failed || l.Attempts != tt.attempts || (l.Open != nil) != tt.open {
			t.Errorf("%s: %+v, want %+v", tt.key, l, tt)
		}
	}
	got := slices.Sorted(maps.Keys(maps.Collect(j.OpenAttempts(held))))
	if want := slices.Sorted(slices.Values([]string{key(0, 1), key(0, 2)})); !slices.Equal(got, want) {
		t.Errorf("open: %q, want %q", got, want)
	}
}
