package journal_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/journal"
	"github.com/rollout-rl/rollout/sink/frame"
)

func key(task, index int) string {
	return collector.SampleKey(&collector.Task{ID: fmt.Sprint("t", task), Messages: []string{"hello"}}, index)
}

func open(tb testing.TB, dir string, cfg journal.Config) *journal.Journal {
	tb.Helper()
	j, err := journal.Open(dir, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return j
}

func closed(tb testing.TB, j *journal.Journal) {
	tb.Helper()
	if err := j.Close(); err != nil {
		tb.Fatal(err)
	}
}

// A note is one call of a Journal.
type note struct {
	op      journal.Op
	key     string
	n       int
	kind    collector.Kind
	text    string // endpoint, agent, run
	class   collector.Class
	charged bool
}

func (n note) write(j *journal.Journal) error {
	switch n.op {
	case journal.OpBegin:
		return j.Begin(collector.Attempt{Key: n.key, N: n.n, Kind: n.kind}, n.text)
	case journal.OpAgent:
		return j.Agent(n.key, n.n, n.text)
	case journal.OpRun:
		return j.ServerRun(n.key, n.n, n.text)
	default:
		return j.End(n.key, n.n, n.class, n.charged)
	}
}

// entry is what Read says of the note.
func (n note) entry(process int, at time.Time) journal.Entry {
	e := journal.Entry{Process: process, Time: at, Op: n.op, Key: n.key, Attempt: n.n}
	switch n.op {
	case journal.OpBegin:
		e.Kind, e.Endpoint = n.kind, n.text
	case journal.OpEnd:
		e.Class, e.Charged = n.class.String(), n.charged
	default:
		e.ID = n.text
	}
	return e
}

// The model: what notes come to, in the plainest way.
type model map[string]collector.Left

func (m model) add(n note) {
	l := m[n.key]
	begun := n.n > l.Attempts
	if begun {
		l.Attempts, l.Open = n.n, nil
	}
	at := l.Open != nil && l.Open.N == n.n
	switch {
	case n.op == journal.OpBegin && begun:
		l.Open = &collector.OpenAttempt{N: n.n, Endpoint: n.text}
	case n.op == journal.OpAgent && at:
		l.Open.AgentID = n.text
	case n.op == journal.OpRun && at && !slices.Contains(l.Open.ServerRuns, n.text):
		l.Open.ServerRuns = append(l.Open.ServerRuns, n.text)
	case n.op == journal.OpEnd:
		if at {
			l.Open = nil
		}
		if n.charged && n.class.Rerollable() {
			l.Rerolled++
		} else if n.charged {
			l.Charged++
		}
	}
	m[n.key] = l
}

func (m model) check(t *testing.T, j *journal.Journal, keys []string) {
	t.Helper()
	for _, k := range keys {
		if got, want := j.Left(k), m[k]; !reflect.DeepEqual(got, want) {
			t.Fatalf("Left(%s) = %+v %+v, want %+v %+v", k, got, got.Open, want, want.Open)
		}
	}
	found := map[string]collector.OpenAttempt{}
	j.OpenAttempts(func(k string, open collector.OpenAttempt) bool { found[k] = open; return true })
	for k, l := range m {
		if open, ok := found[k]; ok != (l.Open != nil) || ok && !reflect.DeepEqual(open, *l.Open) {
			t.Fatalf("open attempts of %s: %+v, want %+v", k, open, l.Open)
		}
	}
	known := 0
	for _, l := range m {
		if l.Attempts+l.Charged+l.Rerolled > 0 {
			known++
		}
	}
	if f := j.Found(); f.Open != len(found) || f.Samples != known {
		t.Errorf("found %d samples, %d open, want %d, %d", f.Samples, f.Open, known, len(found))
	}
}

// randomNotes are not only those of a well-behaved collector.
func randomNotes(rng *rand.Rand, keys []string, n int) []note {
	classes := collector.Classes()
	notes := make([]note, n)
	for i := range notes {
		notes[i] = note{
			op: journal.OpBegin + journal.Op(rng.IntN(4)), key: keys[rng.IntN(len(keys))], n: 1 + rng.IntN(4),
			kind: collector.Kind(rng.IntN(4)), text: fmt.Sprint("name-", rng.IntN(6)),
			class: classes[rng.IntN(len(classes))], charged: rng.IntN(2) == 0,
		}
	}
	return notes
}

func someKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = key(i/3, i%3*70_000)
	}
	return keys
}

// What is noted is what the next process reads, whether the journal was compacted or
// closed or not, over many processes.
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
				for _, n := range randomNotes(rng, keys, rng.IntN(100)) {
					if err := n.write(j); err != nil {
						t.Fatal(err)
					}
					m.add(n)
				}
				if rng.IntN(2) == 0 {
					closed(t, j)
				} else { // the process dies; its syncs may end after the next one's Open
					defer func() { _ = j.Close() }()
				}
			}
			if seed%2 == 1 && compacted == 0 {
				t.Error("was never compacted")
			}
		})
	}
}

// TestRead: reports get what was noted, by whom and when, without what is torn.
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
				if err := n.write(j); err != nil {
					t.Fatal(err)
				}
			}
			closed(t, j)
		}
		got := entries(t, dir)
		if len(got) != len(want) {
			t.Fatalf("%d entries, want %d", len(got), len(want))
		}
		for i := range got {
			if !got[i].Time.Equal(want[i].Time) {
				t.Fatalf("entry %d at %v, want %v", i, got[i].Time, want[i].Time)
			}
			got[i].Time = want[i].Time
			if got[i] != want[i] {
				t.Fatalf("entry %d = %+v, want %+v", i, got[i], want[i])
			}
		}
	})
}

func entries(t *testing.T, dir string) (all []journal.Entry) {
	t.Helper()
	for e, err := range journal.Read(dir) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// A journal that ends at any byte holds the notes whose last byte it has: what a kill
// leaves is a prefix, never a hole and never a complaint.
func TestCutAtEveryByte(t *testing.T) {
	t.Parallel()
	dir, keys := t.TempDir(), someKeys(4)
	j := open(t, dir, journal.Config{})
	notes := randomNotes(rand.New(rand.NewPCG(3, 3)), keys, 25)
	path := filepath.Join(dir, "00000001.journal")
	var ends []int64
	for _, n := range notes {
		if err := n.write(j); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path) // in the file before the call returns
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, info.Size())
	}
	closed(t, j)
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(body) + 1 {
		m, whole := model{}, 0
		for i, n := range notes {
			if ends[i] <= int64(cut) {
				m.add(n)
				whole++
			}
		}
		at := filepath.Join(t.TempDir(), "00000001.journal")
		if err := os.WriteFile(at, body[:cut], 0o666); err != nil {
			t.Fatal(err)
		}
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

// Damage to what was durable is loud, with file and offset; Salvage takes the rest,
// and leaves a journal without it.
func TestDamage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir, journal.Config{SyncEvery: time.Nanosecond})
	k := key(0, 0)
	for n := 1; n <= 3; n++ {
		if err := j.Begin(collector.Attempt{Key: k, N: n}, "a"); err != nil {
			t.Fatal(err)
		}
		if err := j.End(k, n, collector.ClassConnection, true); err != nil {
			t.Fatal(err)
		}
		closed(t, j) // durable
		j = open(t, dir, journal.Config{})
	}
	closed(t, j)

	path := filepath.Join(dir, "00000002.journal")
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// Whether there was a sync between the two entries of a process is not known: an
	// entry that cannot be read is damage in any case.
	bad := damaged(t, body)
	if err := os.WriteFile(path, bad, 0o666); err != nil {
		t.Fatal(err)
	}

	_, err = journal.Open(dir, journal.Config{})
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
		t.Errorf("Read gave %d entries and %d complaints, want 5 and 1", whole, damage)
	}

	j = open(t, dir, journal.Config{Salvage: true})
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

// What a sync made durable is vouched for by what is noted next.
func TestDamageBeforeSyncIsLoud(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		j := open(t, dir, journal.Config{})
		for n := 1; n <= 3; n++ {
			if err := j.Begin(collector.Attempt{Key: key(0, 0), N: n}, "a"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // a sync
		}
		closed(t, j)
		path := filepath.Join(dir, "00000001.journal")
		body, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		body[frame.HeaderSize+frame.Overhead+2] ^= 1
		if err := os.WriteFile(path, body, 0o666); err != nil {
			t.Fatal(err)
		}
		_, err = journal.Open(dir, journal.Config{})
		if c, ok := errors.AsType[*frame.CorruptError](err); !ok || c.Offset != frame.HeaderSize {
			t.Errorf("Open = %v, want damage at %d", err, frame.HeaderSize)
		}
	})
}

// TestBeginLost: a power cut may keep what an attempt noted and take its begin. Its
// number is not given again: an agent may bear it.
func TestBeginLost(t *testing.T) {
	t.Parallel()
	for _, op := range []journal.Op{journal.OpAgent, journal.OpRun, journal.OpEnd} {
		dir := t.TempDir()
		j := open(t, dir, journal.Config{})
		for _, n := range []note{
			{op: journal.OpBegin, key: key(0, 0), n: 1, text: "a"},
			{op: journal.OpBegin, key: key(0, 0), n: 2, text: "a"},
			{op: op, key: key(0, 0), n: 2, text: "x"},
		} {
			if err := n.write(j); err != nil {
				t.Fatal(err)
			}
		}
		closed(t, j)
		path := filepath.Join(dir, "00000001.journal")
		body, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		body = rewritten(t, body, func(i int, payload []byte) []byte {
			if i == 1 {
				return nil
			}
			return payload
		})
		if err := os.WriteFile(path, body, 0o666); err != nil {
			t.Fatal(err)
		}
		for range 2 { // as it is, and compacted
			again := open(t, dir, journal.Config{CompactAt: 1})
			if left := again.Left(key(0, 0)); left.Attempts != 2 || left.Open != nil {
				t.Errorf("%v of attempt 2: %+v, want two attempts, none of them open", op, left)
			}
			closed(t, again)
		}
	}
}

// damaged is the file with an op that nobody knows in its first entry.
func damaged(t *testing.T, body []byte) []byte {
	t.Helper()
	return rewritten(t, body, func(i int, payload []byte) []byte {
		if i == 0 {
			payload[0] = 99
		}
		return payload
	})
}

// rewritten is the file with what change makes of each entry; of nil, nothing.
func rewritten(t *testing.T, body []byte, change func(i int, payload []byte) []byte) []byte {
	t.Helper()
	h := frame.Header{Kind: "journal", Version: 1}
	r, err := frame.NewReader(bytes.NewReader(body), int64(len(body)), h)
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	w, err := frame.NewWriter(&buf, h)
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	err = frame.Salvage(r, func(payload []byte, err error) error {
		if err != nil {
			return err
		}
		payload = change(i, bytes.Clone(payload))
		i++
		if payload == nil {
			return nil
		}
		return w.Write(payload)
	})
	if err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestNewerIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var buf bytes.Buffer
	if _, err := frame.NewWriter(&buf, frame.Header{Kind: "journal", Version: 2}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "00000001.journal"), buf.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := journal.Open(dir, journal.Config{Salvage: true}); !errors.Is(err, frame.ErrNewer) {
		t.Errorf("Open = %v, want %v", err, frame.ErrNewer)
	}
}

func TestRefusedNotes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir, journal.Config{})
	for _, k := range []string{"", "k", "doctor", key(0, 1) + "0x", key(0, 0)[:30] + "-1", key(0, 0) + "0", "ABCDEFABCDEFABCDEFABCDEFABCDEFAB-0", key(0, 0)[:33] + "4294967296"} {
		if err := j.Agent(k, 1, "agent"); err == nil {
			t.Errorf("key %q was taken", k)
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

// A compaction that was cut off anywhere comes to the same.
func TestCompactionIsCutOff(t *testing.T) {
	t.Parallel()
	keys, m := someKeys(6), model{}
	rng := rand.New(rand.NewPCG(5, 5))
	full := t.TempDir()
	for range 3 {
		j := open(t, full, journal.Config{})
		for _, n := range randomNotes(rng, keys, 200) {
			if err := n.write(j); err != nil {
				t.Fatal(err)
			}
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
			if err := os.WriteFile(filepath.Join(dir, "00000003.journal.tmp"), []byte("half"), 0o666); err != nil {
				t.Fatal(err)
			}
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
		body, err := os.ReadFile(filepath.Join(from, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, f.Name()), body, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMemory: what is kept of a sample that ended is some fifty bytes.
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
			if err := n.write(j); err != nil {
				t.Fatal(err)
			}
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
