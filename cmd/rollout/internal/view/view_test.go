package view_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

type columns struct {
	Revision        int64
	N               int
	Words           map[string][]string
	Task, Status    []int
	Index, Grade    []int
	Flags           []uint64
	Failed          []int
	Reward          []*float64
	Tokens, Trained []int64
	Sampled         []int64
	Calls, Rows     []int32
	Seconds         []float64
}

// TestColumns compares the columns with the samples that were written.
func TestColumns(t *testing.T) {
	t.Parallel()
	dir := smallRun(t)
	url := serve(t, dir, false)
	c := fetch[columns](t, url+"api/samples")
	if c.N != 96 || len(c.Task) != 96 || len(c.Seconds) != 96 {
		t.Fatalf("%d samples, want 96", c.N)
	}
	log := must(sink.ReadLog(dir))(t)
	seen := 0
	for shard := range log.Shards(sink.KindData) {
		for r, err := range log.Rows(shard) {
			if err != nil {
				t.Fatal(err)
			}
			n := -1
			for i := range c.N {
				if c.Words["task"][c.Task[i]] == r.TaskID && c.Index[i] == int(r.SampleIndex) {
					n = i
				}
			}
			if n < 0 {
				t.Fatalf("sample %s is not in the columns", r.SampleKey)
			}
			seen++
			if c.Rows[n] != r.SegmentCount || c.Words["status"][c.Status[n]] != r.Status || c.Words["grade"][c.Grade[n]] != r.Verification ||
				c.Failed[n] != 0 || !reflect.DeepEqual(c.Reward[n], r.Reward) || c.Calls[n] != r.Steps {
				t.Errorf("sample %d differs from its row %+v", n, r.SampleKey)
			}
			if total := int64(len(r.InputIDs)); r.SegmentCount == 1 && c.Tokens[n] != total {
				t.Errorf("sample %d has %d tokens, want %d", n, c.Tokens[n], total)
			}
			of := fetch[sampleOf](t, fmt.Sprintf("%sapi/sample/%d", url, n))
			got := of.Rows[r.SegmentIndex]
			if !slices.Equal(got.IDs, r.InputIDs) || !slices.Equal(got.Mask, r.LossMask) || !slices.Equal(got.Logprobs, r.Logprobs) || !slices.Equal(got.Versions, r.Versions) {
				t.Errorf("the page gets other tokens than row %d of sample %s has", r.SegmentIndex, r.SampleKey)
			}
		}
	}
	for i := range c.N { // in the order of the log
		if c.Index[i] != i%4 {
			t.Fatalf("sample %d has the index %d", i, c.Index[i])
		}
	}
	failed := 0
	for _, f := range c.Failed {
		failed += f
	}
	if seen != 95 || failed != 2 {
		t.Errorf("%d rows and %d failed samples, want 95 and 2", seen, failed)
	}
}

// TestFollow checks that new samples appear, that a failed sample becomes a success, and that
// numbers do not change.
func TestFollow(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	m := newMaker(t)
	m.sample("a", 0, 2, new(1.0), m.row("q", "one"))
	m.failure("a", 1, 2, "timeout_total", "too long")
	m.write(dir)
	follows, frozen := serve(t, dir, true), serve(t, dir, false)
	before := fetch[columns](t, follows+"api/samples")
	_ = fetch[columns](t, frozen+"api/samples")
	if reply, _ := get(t, http.MethodGet, fmt.Sprintf("%sapi/samples?since=%d", follows, before.Revision), ""); reply.StatusCode != http.StatusNotModified {
		t.Errorf("nothing has changed, but the answer is %s", reply.Status)
	}
	retried := m.samples[1]
	add(t, dir, func() []*tokenize.Sample {
		retried.Failures, retried.Attempt, retried.Status, retried.Reward = nil, 2, "completed", new(0.5)
		retried.Rows = []tokenize.Row{m.row("q", "two words")}
		retried.Rows[0].SegmentCount = 1
		next := m.sample("b", 0, 1, new(0.0), m.row("q", "three"))
		return []*tokenize.Sample{retried, next}
	}())
	after := fetch[columns](t, follows+"api/samples")
	if before.N != 2 || before.Failed[1] != 1 || after.N != 3 || after.Failed[1] != 0 || *after.Reward[1] != 0.5 || after.Revision == before.Revision {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if s := fetch[sampleOf](t, follows+"api/sample/1"); len(s.Rows) != 1 || len(s.Failures) != 0 || s.Task != "a" {
		t.Errorf("the retried sample is %+v", s)
	}
	if c := fetch[columns](t, frozen+"api/samples"); c.N != 2 {
		t.Errorf("without --follow, the page has %d samples", c.N)
	}
}

// oneOfTwo returns the folder of a run with one of the two samples of the maker.
func oneOfTwo(t *testing.T) (dir string, m *maker) {
	t.Helper()
	dir, m = filepath.Join(t.TempDir(), "run"), newMaker(t)
	m.sample("a", 0, 1, new(1.0), m.row("q", "one"))
	m.sample("b", 0, 1, new(1.0), m.row("q", "two"))
	m.describe(dir)
	add(t, dir, m.samples[:1])
	return dir, m
}

// TestFollowReadsNewEntries checks that a page that follows a run does not read the entries of the log again.
func TestFollowReadsNewEntries(t *testing.T) {
	t.Parallel()
	dir, m := oneOfTwo(t)
	url := serve(t, dir, true)
	if c := fetch[columns](t, url+"api/samples"); c.N != 1 {
		t.Fatalf("%d samples, want 1", c.N)
	}
	add(t, dir, m.samples[1:])
	entries := must(filepath.Glob(filepath.Join(dir, "_commits", "*.json")))(t)
	if len(entries) < 2 {
		t.Fatalf("%d entries, want 2", len(entries))
	}
	if err := os.WriteFile(entries[0], []byte("damaged"), 0o600); err != nil { // fails if it is read
		t.Fatal(err)
	}
	if c := fetch[columns](t, url+"api/samples"); c.N != 2 {
		t.Errorf("%d samples, want 2", c.N)
	}
}

// TestFollowState checks that the report shows that the collecting process has ended, although nothing was
// committed after it was built.
func TestFollowState(t *testing.T) {
	t.Parallel()
	dir := manyRun(t, 8)
	lock := must(runfolder.TakeLock(dir, 0o600))(t)
	url := serve(t, dir, true)
	state := func() string {
		o := fetch[struct{ Report struct{ State string } }](t, url+"api/overview")
		return o.Report.State
	}
	_ = fetch[columns](t, url+"api/samples")
	if got := state(); got != "running" {
		t.Fatalf("the run is %s, want running", got)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); state() != "complete"; {
		if time.Now().After(deadline) {
			t.Fatal("the page shows the old state")
		}
	}
}
