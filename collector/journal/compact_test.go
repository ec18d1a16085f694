package journal_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/rollout-rl/rollout/collector/journal"
)

// TestInterruptedCompaction checks that an interrupted compaction leaves the same state.
func TestInterruptedCompaction(t *testing.T) {
	t.Parallel()
	keys, m := someKeys(6), model{}
	rng := rand.New(rand.NewPCG(5, 5))
	full := t.TempDir()
	for range 3 {
		j := open(t, full, journal.Config{})
		for _, n := range randomNotes(rng, keys, 200) {
			write(t, j, n)
			m.add(n)
		}
		closed(t, j)
	}
	compact := t.TempDir()
	copyFiles(t, compact, full)
	j := open(t, compact, journal.Config{CompactAt: 1})
	if !j.Found().Compacted {
		t.Fatal("was not compacted")
	}
	m.check(t, j, keys)
	closed(t, j)
	for _, step := range []struct {
		name   string
		remove []string // of the old segments
		tmp    bool
	}{
		{"temporary file", nil, true},
		{"renamed", nil, false},
		{"first removed", []string{"00000001.journal"}, false},
	} {
		dir := t.TempDir()
		copyFiles(t, dir, full)
		if step.tmp {
			writeFile(t, filepath.Join(dir, "00000003.journal.tmp"), []byte("half"))
		} else {
			copyFiles(t, dir, compact)
		}
		for _, name := range step.remove {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			j := open(t, dir, journal.Config{})
			m.check(t, j, keys)
			closed(t, j)
		}
		if left, err := filepath.Glob(filepath.Join(dir, "*.tmp")); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v (%v)", step.name, left, err)
		}
	}
}

func copyFiles(t *testing.T, to, from string) {
	t.Helper()
	files, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		body := readFile(t, filepath.Join(from, f.Name()))
		writeFile(t, filepath.Join(to, f.Name()), body)
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
		for _, n := range []note{
			{op: journal.OpBegin, key: k, n: 1, text: "http://localhost:8283"},
			{op: journal.OpAgent, key: k, n: 1, text: "agent-00000000-0000-4000-8000-000000000000"},
			{op: journal.OpRun, key: k, n: 1, text: "run-00000000-0000-4000-8000-000000000000"},
			{op: journal.OpEnd, key: k, n: 1},
		} {
			write(t, j, n)
		}
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
