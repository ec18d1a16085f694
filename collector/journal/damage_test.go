package journal_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector/journal"
	"github.com/rollout-rl/rollout/sink/frame"
)

// TestCutAtEveryByte checks that a journal cut at any byte has exactly its whole entries.
func TestCutAtEveryByte(t *testing.T) {
	t.Parallel()
	dir, keys := t.TempDir(), someKeys(4)
	j := open(t, dir, journal.Config{})
	notes := randomNotes(rand.New(rand.NewPCG(3, 3)), keys, 25)
	path := filepath.Join(dir, "00000001.journal")
	var ends []int64
	for _, n := range notes {
		write(t, j, n)
		info, err := os.Stat(path) // the entry is in the file before the call returns
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, info.Size())
	}
	closed(t, j)
	body := readFile(t, path)
	ends = append(ends, markEnds(body)...)
	for cut := range len(body) + 1 {
		m, whole := model{}, 0
		for i, n := range notes {
			if ends[i] <= int64(cut) { // ends begins with the ends of the entries
				m.add(n)
				whole++
			}
		}
		at := filepath.Join(t.TempDir(), "00000001.journal")
		writeFile(t, at, body[:cut])
		if got := entries(t, filepath.Dir(at)); len(got) != whole {
			t.Fatalf("cut at %d: read %d entries, want %d", cut, len(got), whole)
		}
		j := open(t, filepath.Dir(at), journal.Config{})
		m.check(t, j, keys)
		clean := cut == 0 || cut == frame.HeaderSize || slices.Contains(ends, int64(cut))
		if f := j.Found(); f.Entries != whole || clean != (len(f.Torn) == 0) || len(f.Damaged) > 0 || f.Process != 2 {
			t.Fatalf("cut at %d: found %+v, want %d entries, clean is %t", cut, f, whole, clean)
		}
		closed(t, j)
	}
}

func markEnds(body []byte) (ends []int64) {
	for at := 0; ; {
		i := bytes.Index(body[at:], []byte("\xffRS\xfe"))
		if i < 0 {
			return ends
		}
		at += i + frame.Overhead
		ends = append(ends, int64(at))
	}
}

// TestDamageIsReported checks that a changed bit anywhere is an error: the mark of the last
// sync covers the last entries. A segment with another number is an error too, because it would
// count twice.
func TestDamageIsReported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	written(t, dir, journal.Config{}, begun(1), failed(1), begun(2), failed(2), begun(3), failed(3))
	path := filepath.Join(dir, "00000001.journal")
	body := readFile(t, path)
	loud := func(what string) {
		t.Helper()
		_, err := journal.Open(dir, journal.Config{})
		if _, ok := errors.AsType[*frame.CorruptError](err); !ok {
			t.Fatalf("%s: Open = %v, want damage", what, err)
		}
	}
	for bit := 0; bit < 8*len(body); bit += 11 {
		flipped := bytes.Clone(body)
		flipped[bit/8] ^= 1 << (bit % 8)
		if at := len(body) - frame.Overhead; bit/8 >= at+4 && bit/8 < at+8 {
			continue // the length of the last mark: counts as a torn write
		}
		writeFile(t, path, flipped)
		loud("bit " + strconv.Itoa(bit))
	}
	writeFile(t, path, body)
	writeFile(t, filepath.Join(dir, "00000003.journal"), body)
	loud("copied to another number")
}

// TestDamage checks that damage is reported with file and offset, and that Salvage removes it.
func TestDamage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for n := 1; n <= 3; n++ {
		written(t, dir, journal.Config{}, begun(n), failed(n)) // durable
	}
	path := filepath.Join(dir, "00000002.journal")
	// Whether or not a sync came between the two entries, an unreadable entry is damage.
	rewrite(t, path, func(i int, payload []byte) []byte {
		if i == 0 {
			payload[0] = 99 // an unknown op
		}
		return payload
	})

	_, err := journal.Open(dir, journal.Config{})
	c, ok := errors.AsType[*frame.CorruptError](err)
	if !ok || c.Offset != frame.HeaderSize || !bytes.Contains([]byte(err.Error()), []byte(path)) {
		t.Fatalf("Open = %v, want one with %s and offset %d", err, path, frame.HeaderSize)
	}
	whole, damage := 0, 0
	for e, err := range journal.Read(dir) {
		switch {
		case err != nil:
			damage++
		case e.Op != 0:
			whole++
		}
	}
	if whole != 5 || damage != 1 {
		t.Errorf("Read returned %d entries and %d errors, want 5 and 1", whole, damage)
	}

	j := open(t, dir, journal.Config{Salvage: true})
	k := key(0, 0)
	if got := j.Left(k); got.Attempts != 3 || got.Charged != 3 || got.Open != nil || !j.Found().Compacted || len(j.Found().Damaged) != 1 {
		t.Errorf("salvaged %+v, found %+v", got, j.Found())
	}
	closed(t, j)
	j = open(t, dir, journal.Config{})
	if got := j.Left(k); got.Attempts != 3 || got.Charged != 3 || len(j.Found().Damaged) != 0 {
		t.Errorf("afterwards %+v, found %+v", got, j.Found())
	}
	closed(t, j)
}

// TestSyncedDamageIsReported checks that later entries reveal damage to synced entries.
func TestSyncedDamageIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		j := open(t, dir, journal.Config{})
		for n := 1; n <= 3; n++ {
			write(t, j, begun(n))
			time.Sleep(time.Second) // a sync
		}
		closed(t, j)
		path := filepath.Join(dir, "00000001.journal")
		body := readFile(t, path)
		body[frame.HeaderSize+frame.Overhead+2] ^= 1
		writeFile(t, path, body)
		_, err := journal.Open(dir, journal.Config{})
		if c, ok := errors.AsType[*frame.CorruptError](err); !ok || c.Offset != frame.HeaderSize {
			t.Errorf("Open = %v, want damage at %d", err, frame.HeaderSize)
		}
	})
}

// TestBeginLost checks that a number is not reused if a power failure lost its begin entry.
func TestBeginLost(t *testing.T) {
	t.Parallel()
	for _, op := range []journal.Op{journal.OpAgent, journal.OpRun, journal.OpEnd} {
		dir := t.TempDir()
		written(t, dir, journal.Config{}, begun(1), begun(2), note{op: op, key: key(0, 0), n: 2, text: "x"})
		rewrite(t, filepath.Join(dir, "00000001.journal"), func(i int, payload []byte) []byte {
			if i == 1 {
				return nil
			}
			return payload
		})
		for range 2 { // as is, then compacted
			again := open(t, dir, journal.Config{CompactAt: 1})
			if left := again.Left(key(0, 0)); left.Attempts != 2 || left.Open != nil {
				t.Errorf("%v of attempt 2: %+v, want two closed attempts", op, left)
			}
			closed(t, again)
		}
	}
}

// rewrite replaces the entries of a file by the results of change; nil deletes an entry.
func rewrite(t *testing.T, path string, change func(i int, payload []byte) []byte) {
	t.Helper()
	body := readFile(t, path)
	r, err := frame.NewReader(bytes.NewReader(body), int64(len(body)), frame.Header{Kind: "journal", Version: 1})
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	w, err := frame.NewWriter(&buf, r.Header())
	if err != nil {
		t.Fatal(err)
	}
	i := -1
	err = frame.Salvage(r, func(payload []byte, err error) error {
		if err != nil {
			return err
		}
		i++
		if payload = change(i, bytes.Clone(payload)); payload == nil {
			return nil
		}
		return w.Write(payload)
	})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, buf.Bytes())
}

func TestNewerIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var buf bytes.Buffer
	if _, err := frame.NewWriter(&buf, frame.Header{Kind: "journal", Version: 2}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "00000001.journal")
	writeFile(t, path, buf.Bytes())
	for _, salvage := range []bool{false, true} {
		if _, err := journal.Open(dir, journal.Config{Salvage: salvage}); !errors.Is(err, frame.ErrNewer) {
			t.Errorf("with Salvage %v, Open = %v, want %v", salvage, err, frame.ErrNewer)
		}
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, buf.Bytes()) {
			t.Errorf("with Salvage %v, Open changed the file: %v", salvage, err)
		}
	}
}
