package journal_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector/journal"
)

// TestLeft checks that every next process reads all entries, with and without compaction and
// Close.
func TestLeft(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 7))
			dir, keys, m := filepath.Join(t.TempDir(), "journal"), someKeys(8), model{}
			compacted := 0
			for range 12 {
				cfg := journal.Config{CompactAt: 1}
				if seed%2 == 0 {
					cfg.CompactAt = 0
				}
				j := open(t, dir, cfg)
				m.check(t, j, keys)
				if j.Found().Compacted {
					compacted++
				}
				notes := randomNotes(rng, keys, rng.IntN(100))
				write(t, j, notes...)
				m.add(notes...)
				if rng.IntN(2) == 0 {
					closed(t, j)
				} else { // the process dies; its syncs can end after the next Open
					defer func() { _ = j.Close() }()
				}
			}
			if seed%2 == 1 && compacted == 0 {
				t.Error("was never compacted")
			}
		})
	}
}

// TestRead checks that Read returns every entry with its process and time, without torn entries.
func TestRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir, keys := t.TempDir(), someKeys(5)
		var want []journal.Entry
		for process := 1; process <= 3; process++ {
			j := open(t, dir, journal.Config{})
			for _, n := range randomNotes(rand.New(rand.NewPCG(1, uint64(process))), keys, 30) {
				time.Sleep(1500 * time.Millisecond)
				want = append(want, n.entry(process, time.Now()))
				write(t, j, n)
			}
			closed(t, j)
		}
		got := entries(t, dir)
		for i := range min(len(got), len(want)) {
			if got[i].Time.Equal(want[i].Time) {
				got[i].Time = want[i].Time // without its location
			}
			if got[i] != want[i] {
				t.Fatalf("entry %d = %+v, want %+v", i, got[i], want[i])
			}
		}
		if len(got) != len(want) {
			t.Fatalf("%d entries, want %d", len(got), len(want))
		}
	})
}

func TestRefusedNotes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir, journal.Config{})
	for _, k := range []string{"", "k", "doctor", key(0, 1) + "0x", key(0, 0)[:30] + "-1", key(0, 0) + "0", "ABCDEFABCDEFABCDEFABCDEFABCDEFAB-0", key(0, 0)[:33] + "4294967296"} {
		if err := j.Agent(k, 1, "agent"); err == nil {
			t.Errorf("key %q was accepted", k)
		}
	}
	closed(t, j)
	if err := j.Agent(key(0, 0), 1, "agent"); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v, want %v", err, os.ErrClosed)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Errorf("a journal without a note left %v (%v)", files, err)
	}
}

// TestEntriesAreSynced checks that entries are synced without Close: the first at once, the next
// SyncEvery after the previous sync started. A mark at the end of the file records the sync. No
// goroutine runs after Open or after a sync, although the journals are not closed.
func TestEntriesAreSynced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		open(t, t.TempDir(), journal.Config{})
		j := open(t, dir, journal.Config{SyncEvery: time.Minute})
		synced := func() bool {
			synctest.Wait()
			body := readFile(t, filepath.Join(dir, "00000001.journal"))
			ends := markEnds(body)
			return len(ends) > 0 && ends[len(ends)-1] == int64(len(body))
		}
		for n := 1; n <= 3; n++ {
			write(t, j, begun(n))
			if n > 1 {
				if synced() {
					t.Errorf("entry %d was synced at once", n)
				}
				time.Sleep(time.Minute - 1)
				if synced() {
					t.Errorf("entry %d was synced before its time", n)
				}
				time.Sleep(time.Nanosecond)
			}
			if !synced() {
				t.Errorf("entry %d was not synced", n)
			}
		}
	})
}
