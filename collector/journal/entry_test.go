package journal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
)

// TestNumbersAreFixed checks the numbers that are part of the file format.
func TestNumbersAreFixed(t *testing.T) {
	t.Parallel()
	for i, k := range []collector.Kind{collector.KindFirst, collector.KindInfraRetry, collector.KindDataRetry, collector.KindReattach} {
		if int(k) != i {
			t.Errorf("kind %v is %d, want %d", k, k, i)
		}
	}
	e := Entry{Op: OpEnd, Time: time.UnixMilli(300), Attempt: 2, Class: "lost", Charged: true}
	want := "\x04\xac\x02" + "0123456789abcdef" + "\x05" + "\x02" + "\x01" + "\x04lost"
	if got := e.append(nil, id{[16]byte([]byte("0123456789abcdef")), 5}); string(got) != want {
		t.Errorf("entry = %q, want %q", got, want)
	}
}

// TestWrongClocks checks that an entry with any wall clock time can be parsed.
func TestWrongClocks(t *testing.T) {
	t.Parallel()
	for at, want := range map[time.Time]int64{
		{}:                      0, // the year 1
		time.UnixMilli(-1):      0,
		time.UnixMilli(0):       0,
		time.UnixMilli(1 << 60): maxMilli,
	} {
		e := Entry{Op: OpAgent, Time: at, Attempt: 3, ID: "agent-1"}
		got, _, err := parse(e.append(nil, id{}))
		if err != nil || got.Time.UnixMilli() != want || got.ID != e.ID || got.Attempt != e.Attempt {
			t.Errorf("at %v: read as %+v, %v", at, got, err)
		}
	}
}

// FuzzParse checks that parse accepts exactly the output of append and never panics.
func FuzzParse(f *testing.F) {
	k := id{[16]byte([]byte("0123456789abcdef")), 70_000}
	at := time.UnixMilli(1_790_000_000_000)
	for _, e := range []Entry{
		{Op: OpBegin, Time: at, Attempt: 1, Kind: collector.KindReattach, Endpoint: "http://localhost:8283"},
		{Op: OpAgent, Time: at, Attempt: 2, ID: "agent-1"},
		{Op: OpRun, Time: at, Attempt: 300, ID: ""},
		{Op: OpEnd, Time: at, Attempt: 1, Class: "none"},
		{Op: OpSums, Time: at, Attempt: 7, sums: counts{charged: 3, dataCharged: maxCharged}},
	} {
		f.Add(e.append(nil, k))
	}
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0xff}, 64))
	f.Fuzz(func(t *testing.T, payload []byte) {
		e, k, err := parse(payload)
		if err != nil {
			return
		}
		if got := e.append(nil, k); !bytes.Equal(got, payload) {
			t.Errorf("%+v of %v: written %x, read %x", e, k, got, payload)
		}
		if again, err := idOf(k.String()); err != nil || again != k {
			t.Errorf("idOf(%v) = %v, %v", k, again, err)
		}
		newState().add(&e, k)
	})
}

// TestNamesSurviveAPowerCut checks that Open syncs the names of the folder and the segment, even
// if an earlier process created the folder. A power failure keeps the names of the last sync.
func TestNamesSurviveAPowerCut(t *testing.T) {
	t.Parallel()
	for _, made := range []bool{false, true} {
		run := t.TempDir()
		dir := filepath.Join(run, "journal")
		if made {
			if err := os.Mkdir(dir, 0o777); err != nil {
				t.Fatal(err)
			}
		}
		durable := map[string][]string{} // the names of each folder at its last sync
		j, err := open(dir, Config{}, func(folder string) error {
			durable[folder] = names(t, folder)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, folder := range []string{run, dir} {
			if now := names(t, folder); len(now) == 0 || !slices.Equal(durable[folder], now) {
				t.Errorf("made before: %t: a power failure leaves %q in %s, want %q", made, durable[folder], folder, now)
			}
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestNamesThatCannotBeSynced checks that Open fails if it cannot sync the names.
func TestNamesThatCannotBeSynced(t *testing.T) {
	t.Parallel()
	run := t.TempDir()
	failure := errors.New("the disk is gone")
	for _, bad := range []string{run, filepath.Join(run, "journal")} {
		_, err := open(filepath.Join(run, "journal"), Config{}, func(folder string) error {
			if folder == bad {
				return failure
			}
			return nil
		})
		if !errors.Is(err, failure) {
			t.Errorf("opened with %v although %s cannot be synced", err, bad)
		}
	}
}

func names(t *testing.T, folder string) (all []string) {
	t.Helper()
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		all = append(all, f.Name())
	}
	return all
}
