package journal_test

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/journal"
)

// TestInterruptedCompaction checks that an interrupted compaction leaves the same state.
func TestInterruptedCompaction(t *testing.T) {
	t.Parallel()
	keys, m := someKeys(6), model{}
	rng := rand.New(rand.NewPCG(5, 5))
	full := t.TempDir()
	for range 3 {
		notes := randomNotes(rng, keys, 200)
		written(t, full, journal.Config{}, notes...)
		m.add(notes...)
	}
	compact := t.TempDir()
	copyFiles(t, compact, full)
	j := open(t, compact, journal.Config{CompactAt: 1})
	if !j.Found().Compacted {
		t.Fatal("was not compacted")
	}
	m.check(t, j, keys)
	closed(t, j)
	for _, step := range []string{"temporary file", "renamed", "first removed"} {
		dir := t.TempDir()
		copyFiles(t, dir, full)
		if step == "temporary file" {
			writeFile(t, filepath.Join(dir, "00000003.journal.tmp"), []byte("half"))
		} else {
			copyFiles(t, dir, compact)
		}
		if step == "first removed" { // of the old segments
			if err := os.Remove(filepath.Join(dir, "00000001.journal")); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			j := open(t, dir, journal.Config{})
			m.check(t, j, keys)
			closed(t, j)
		}
		if left, err := filepath.Glob(filepath.Join(dir, "*.tmp")); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v (%v)", step, left, err)
		}
	}
}

func copyFiles(t *testing.T, to, from string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(from, "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		writeFile(t, filepath.Join(to, filepath.Base(f)), readFile(t, f))
	}
}

// TestMemory checks that an ended sample takes about 50 bytes.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("writes a journal of 100,000 samples")
	}
	const samples, bound = 100_000, 80
	dir := t.TempDir()
	j := open(t, dir, journal.Config{})
	for i := range samples {
		k := key(i/8, i%8)
		write(t, j,
			note{op: journal.OpBegin, key: k, n: 1, text: "http://localhost:8283"},
			note{op: journal.OpAgent, key: k, n: 1, text: "agent-00000000-0000-4000-8000-000000000000"},
			note{op: journal.OpRun, key: k, n: 1, text: "run-00000000-0000-4000-8000-000000000000"},
			note{op: journal.OpEnd, key: k, n: 1})
	}
	closed(t, j)
	before := heap()
	j = open(t, dir, journal.Config{})
	after := heap()
	per := float64(after-before) / samples
	t.Logf("%.0f bytes of memory and %.0f of the file per sample", per, float64(j.Found().Bytes)/samples)
	if per > bound || j.Found().Samples != samples {
		t.Errorf("%.0f bytes per sample, want at most %d; found %+v", per, bound, j.Found())
	}
	closed(t, j)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestClockJumps checks that only the order in the file counts, not the times, with and without
// compaction.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(11, 4))
	dir, keys, m := t.TempDir(), someKeys(12), model{}
	for process := range 3 {
		notes := randomNotes(rng, keys, 200)
		for i := range 4 { // these stay open
			notes = append(notes, note{op: journal.OpBegin, key: keys[4*process+i], n: 5, text: "a"})
		}
		written(t, dir, journal.Config{}, notes...)
		m.add(notes...)
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
		rewrite(t, name, func(i int, payload []byte) []byte {
			at := began.AddDate(-s*s, 0, -s).Add(time.Duration(i%7)*24*time.Hour - time.Duration(i)*time.Hour)
			_, n := binary.Uvarint(payload[1:])
			rest := payload[1+n:]
			return append(binary.AppendUvarint(payload[:1:1], uint64(at.UnixMilli())), rest...)
		})
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
