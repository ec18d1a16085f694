package journal_test

import (
	"encoding/binary"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/journal"
)

// TestClockJumps checks that only the order in the file counts, not the times, with and without
// compaction.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(11, 4))
	dir, keys, m := t.TempDir(), someKeys(12), model{}
	for process := range 3 {
		j := open(t, dir, journal.Config{})
		notes := randomNotes(rng, keys, 200)
		for i := range 4 { // these stay open
			notes = append(notes, note{op: journal.OpBegin, key: keys[4*process+i], n: 5, text: "a"})
		}
		for _, n := range notes {
			write(t, j, n)
			m.add(n)
		}
		closed(t, j)
	}
	want := entries(t, dir)
	names, err := filepath.Glob(filepath.Join(dir, "*.journal"))
	if err != nil || len(names) != 3 {
		t.Fatalf("segments %v, %v", names, err)
	}
	// Each segment is a day or a year older than the previous one. Within a segment, the clock
	// jumps back an hour or ahead a day.
	began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for s, name := range names {
		body := readFile(t, name)
		body = rewritten(t, body, func(i int, payload []byte) []byte {
			at := began.AddDate(-s*s, 0, -s).Add(time.Duration(i%7)*24*time.Hour - time.Duration(i)*time.Hour)
			_, n := binary.Uvarint(payload[1:])
			rest := payload[1+n:]
			return append(binary.AppendUvarint(payload[:1:1], uint64(at.UnixMilli())), rest...)
		})
		writeFile(t, name, body)
	}

	got := entries(t, dir)
	if slices.IsSortedFunc(got, func(a, b journal.Entry) int { return a.Time.Compare(b.Time) }) {
		t.Fatal("the times are in order: the test shows nothing")
	}
	for i := range got {
		got[i].Time = want[i].Time
	}
	if !slices.Equal(got, want) {
		t.Error("Read returned other entries, or another order")
	}
	for _, cfg := range []journal.Config{{}, {CompactAt: 1}, {}} { // the second config compacts
		j := open(t, dir, cfg)
		m.check(t, j, keys)
		if j.Found().Compacted != (cfg.CompactAt == 1) {
			t.Errorf("found %+v", j.Found())
		}
		n := note{op: journal.OpBegin, key: keys[0], n: m[keys[0]].Attempts + 1, kind: collector.KindInfraRetry, text: "a"}
		write(t, j, n) // dated now, years after the others
		m.add(n)
		closed(t, j)
	}
}
