package journal_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/journal"
	"github.com/rollout-rl/rollout/sink"
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

// written makes one process write the notes.
func written(tb testing.TB, dir string, cfg journal.Config, notes ...note) {
	tb.Helper()
	j := open(tb, dir, cfg)
	write(tb, j, notes...)
	closed(tb, j)
}

// begun is the begin of an attempt at the first sample, and failed its charged end.
func begun(n int) note { return note{op: journal.OpBegin, key: key(0, 0), n: n, text: "a"} }

func failed(n int) note {
	return note{op: journal.OpEnd, key: key(0, 0), n: n, class: collector.ClassConnection, charged: true}
}

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

func write(tb testing.TB, j *journal.Journal, notes ...note) {
	tb.Helper()
	for _, n := range notes {
		if err := n.write(j); err != nil {
			tb.Fatal(err)
		}
	}
}

func writeFile(tb testing.TB, path string, body []byte) {
	tb.Helper()
	if err := os.WriteFile(path, body, 0o666); err != nil {
		tb.Fatal(err)
	}
}

func readFile(tb testing.TB, path string) []byte {
	tb.Helper()
	body, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return body
}

// entry returns the Entry that Read should return for the note.
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

// A model computes the result of notes in the simplest way.
type model map[string]collector.SampleState

func (m model) add(notes ...note) {
	for _, n := range notes {
		m.addOne(n)
	}
}

func (m model) addOne(n note) {
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
		if n.charged && n.class.DataRetryable() {
			l.DataCharged++
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
	found := maps.Collect(j.OpenAttempts((*sink.Ledger)(nil)))
	for k, l := range m {
		if open, ok := found[k]; ok != (l.Open != nil) || ok && !reflect.DeepEqual(open, *l.Open) {
			t.Fatalf("open attempts of %s: %+v, want %+v", k, open, l.Open)
		}
	}
	known := 0
	for _, l := range m {
		if l.Attempts+l.Charged+l.DataCharged > 0 {
			known++
		}
	}
	if f := j.Found(); f.Open != len(found) || f.Samples != known {
		t.Errorf("found %d samples, %d open, want %d, %d", f.Samples, f.Open, known, len(found))
	}
}

// randomNotes also returns notes that a correct collector would not write.
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
