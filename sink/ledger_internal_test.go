package sink

import (
	"fmt"
	"testing"

	"github.com/rollout-rl/rollout/tokenize"
)

// keep commits each sample in a commit of its own, and returns the run's folder.
func keep(t *testing.T, samples ...*tokenize.Sample) string {
	t.Helper()
	dir := t.TempDir()
	for _, s := range samples {
		d, err := Create(dir, Config{})
		must(t, err)
		ran := make(chan error, 1)
		go func() { ran <- d.Run(t.Context()) }()
		must(t, d.Append(t.Context(), s, func(error) {}))
		must(t, d.Close(t.Context()))
		must(t, <-ran)
	}
	return dir
}

func sampleOf(key string, attempt int32, class string) *tokenize.Sample {
	s := &tokenize.Sample{Key: key, GroupSize: 1, Attempt: attempt, Status: "completed"}
	if class != "" {
		s.Status = "error"
		s.Failures = []tokenize.Failure{{Class: class, Call: -1}}
	}
	return s
}

// TestLedger tests that a success wins, then the last failure, and that shards have missing classes.
func TestLedger(t *testing.T) {
	t.Parallel()
	dir := keep(t,
		sampleOf("mended", 1, "decode"), sampleOf("mended", 3, ""),
		sampleOf("done", 1, ""),
		sampleOf("failed", 1, "decode"), sampleOf("failed", 2, "server"),
	)
	want := map[string]struct {
		attempt int
		class   string
	}{"mended": {3, ""}, "done": {1, ""}, "failed": {2, "server"}}
	check := func(l *Ledger) {
		t.Helper()
		for key, w := range want {
			if attempt, class, ok := l.Find(key); !ok || attempt != w.attempt || class != w.class {
				t.Errorf("Find(%s) = %d, %q, %v, want %d, %q", key, attempt, class, ok, w.attempt, w.class)
			}
		}
		if _, class, ok := l.Find("nobody"); ok || class != "" {
			t.Errorf("Find of a missing sample: %q, %v", class, ok)
		}
		if done, failed := l.Counts(); l.Len() != 3 || done != 2 || failed != 1 {
			t.Errorf("%d samples, %d done, %d failed, want 3, 2, 1", l.Len(), done, failed)
		}
	}
	l, err := ReadLedger(nil, dir)
	must(t, err)
	check(l)

	var none *Ledger
	if _, _, ok := none.Find("done"); ok || none.Len() != 0 {
		t.Error("a nil ledger holds something")
	}
}

// TestLedgerManyClasses tests that a ledger accepts any number of classes.
func TestLedgerManyClasses(t *testing.T) {
	t.Parallel()
	b := newLedgerBuilder()
	const n = 70_000
	c := Commit{}
	for i := range n {
		c.Samples = append(c.Samples, CommittedSample{Key: fmt.Sprint(i), Attempt: 1, Failures: 1, Class: fmt.Sprint("class ", i)})
	}
	b.add(&c)
	l := b.ledger(t.TempDir())
	for i := range n {
		if _, class, ok := l.Find(fmt.Sprint(i)); !ok || class != fmt.Sprint("class ", i) && class != unknownClass {
			t.Fatalf("sample %d: %q, %v", i, class, ok)
		}
	}
	if done, failed := l.Counts(); done != 0 || failed != n {
		t.Errorf("%d done, %d failed", done, failed)
	}
}

// must fails the test at err.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
