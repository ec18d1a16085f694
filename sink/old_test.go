package sink_test

import (
	"encoding/json"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
)

// testdata/v1 holds two killed runs, one per format, of the last program with schema version 1 and
// commit version 2. Of 5 tasks with 3 samples, 7 samples are in a commit, of which one failed and most
// are forked, and 4 are in the write-ahead log.
const (
	oldSamples, oldFailed, oldRows = 7, 1, 14
	oldWaiting                     = 4
)

// oldRun returns a copy of one of these runs.
func oldRun(t *testing.T, format sink.Format) (dir, runID string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "run")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "v1", format.String()))); err != nil {
		t.Fatal(err)
	}
	log, err := sink.ReadLog(dir)
	if err != nil || len(log.Commits) != 1 {
		t.Fatalf("%d commits, %v", len(log.Commits), err)
	}
	return dir, log.Commits[0].RunID
}

// TestOldRunIsRead tests that every reader reads an old run, with missing columns as unknown.
func TestOldRunIsRead(t *testing.T) {
	t.Parallel()
	for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
		dir, _ := oldRun(t, format)
		log, err := sink.ReadLog(dir)
		if err != nil {
			t.Fatal(err)
		}
		c := log.Commits[0]
		if c.Version != 2 || c.SchemaVersion != 1 || c.Groups != nil || c.Samples[0].Group != -1 || c.Samples[0].Index != -1 {
			t.Errorf("%s: entry %+v", format, c)
		}
		for s := range log.Shards(sink.KindData) {
			rows, facts := readAllRows(t, log.Rows(s)), 0
			for i, r := range rows {
				if r.GroupSize != 3 || len(r.InputIDs) == 0 || r.SegmentCount > 1 && r.SegmentIndex > 0 && r.Divergence == nil {
					t.Errorf("%s: row %d: %+v", format, i, r)
				}
				if r.PolicyVersionMin != nil || r.PolicyVersionMax != nil || r.Keep != nil || r.KeepReason != nil {
					t.Errorf("%s: row %d has columns of version 2: %+v", format, i, r)
				}
			}
			for f, err := range log.Facts(s) {
				if err != nil {
					t.Fatal(err)
				}
				if r := rows[facts]; f.SampleKey != r.SampleKey || f.GroupID != r.GroupID || f.SegmentIndex != r.SegmentIndex || *f.Reward != *r.Reward || f.Keep != nil || f.PolicyVersionMin != nil {
					t.Errorf("%s: facts %+v of row %+v", format, f, r)
				}
				facts++
			}
			if len(rows) != oldRows || facts != oldRows {
				t.Errorf("%s: %d rows, %d facts, want %d", format, len(rows), facts, oldRows)
			}
		}
		failures := 0
		for s := range log.Shards(sink.KindFailures) {
			whole := readAllRows(t, log.Failures(s))
			for f, err := range log.FailureFacts(s) {
				if err != nil || f.Class != "token_mismatch" || f.Class != whole[failures].Class || f.GroupSize != 3 {
					t.Errorf("%s: failure %+v, %v", format, f, err)
				}
				failures++
			}
		}
		waiting := 0
		for w, err := range log.Waiting() {
			if err != nil || len(w.Rows)+len(w.Failures) == 0 {
				t.Errorf("%s: waiting %+v, %v", format, w, err)
			}
			waiting++
		}
		if failures != oldFailed || waiting != oldWaiting {
			t.Errorf("%s: %d failures, %d samples wait", format, failures, waiting)
		}
		if err := errors.Join(log.CheckSizes(), log.CheckDigests(t.Context(), nil, func(err error) { t.Error(err) })); err != nil {
			t.Error(err)
		}
		if has, err := sink.HasRows(dir); err != nil || !has {
			t.Errorf("%s: HasRows %t, %v", format, has, err)
		}
		ledger, err := sink.ReadLedger(dir)
		if err != nil || ledger.Len() != oldSamples+oldWaiting {
			t.Errorf("%s: ledger of %d samples, %v", format, ledger.Len(), err)
		}
		report, err := sink.Verify(t.Context(), dir, sink.VerifyOptions{})
		if err != nil || report.ProblemCount > 0 || report.Rows != oldRows || report.Samples != oldSamples || report.Failed != oldFailed || report.WAL.Pending != oldWaiting {
			t.Errorf("%s: Verify: %+v, %v", format, report, err)
		}
	}
}

// TestOldVersions tests that rows with versions but without policy version columns are not a problem.
func TestOldVersions(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("testdata", "v1", "versions")
	log, err := sink.ReadLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	known := 0
	for s := range log.Shards(sink.KindData) {
		for _, r := range readAllRows(t, log.Rows(s)) {
			if r.Versions != nil {
				known++
			}
			if r.PolicyVersionMin != nil || r.PolicyVersionMax != nil {
				t.Errorf("row %+v spans its versions", r)
			}
		}
	}
	report, err := sink.Verify(t.Context(), dir, sink.VerifyOptions{})
	if err != nil || report.ProblemCount > 0 || report.Rows != 4 || known != 3 {
		t.Errorf("%d rows with versions; Verify: %+v, %v", known, report, err)
	}
}

// TestOldRunIsContinued tests that readers accept old and new entries and shards in one run.
func TestOldRunIsContinued(t *testing.T) {
	t.Parallel()
	var j job
	for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
		dir, runID := oldRun(t, format)
		b := sinktest.NewBuilder(8)
		s := b.Sample(b.Row(5, 6))
		s.Rows[0].Versions = slices.Repeat([]int32{-1, 7}, 6)[:11]
		for i, m := range s.Rows[0].LossMask {
			s.Rows[0].Versions[i] = int32(m)*int32(8+i) - 1
		}
		sinktest.Write(t, dir, sink.Config{Format: format, RunID: runID}, append(samples(0), s))
		log, err := sink.ReadLog(dir)
		if err != nil {
			t.Fatal(err)
		}
		var versions [][2]int
		for i := range log.Commits {
			versions = append(versions, [2]int{log.Commits[i].Version, log.Commits[i].SchemaVersion})
		}
		if !slices.Equal(versions, [][2]int{{2, 1}, {3, 2}, {3, 2}}) { // the waiting samples, then the new one
			t.Errorf("%s: versions %v", format, versions)
		}
		report, err := sink.Verify(t.Context(), dir, sink.VerifyOptions{})
		if err != nil || report.ProblemCount > 0 || report.Samples != oldSamples+oldWaiting+1 || report.WAL.Pending > 0 {
			t.Errorf("%s: Verify: %+v, %v", format, report, err)
		}
		var rows []sink.StoredRow
		var files []file
		for s := range log.Shards(sink.KindData) {
			rows = append(rows, readAllRows(t, log.Rows(s))...)
			files = append(files, file{Path: filepath.Join(dir, s.Path), Format: format.String()})
		}
		last := rows[len(rows)-1]
		if last.PolicyVersionMin == nil || *last.PolicyVersionMin != 12 || *last.PolicyVersionMax != 17 {
			t.Errorf("%s: policy versions of %+v", format, last)
		}
		want := columns(t, "data", rows)
		want.Files = files
		j.Sets = append(j.Sets, want)
		j.Runs = append(j.Runs, run{Dir: dir, Set: len(j.Runs)})
	}
	if t.Failed() {
		return
	}
	python, dir := interpreter(t), t.TempDir()
	body, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "job.json")
	if err := os.WriteFile(path, body, 0o666); err != nil {
		t.Fatal(err)
	}
	runPython(t, python, filepath.Join("testdata", "python", "read_old.py"), path, filepath.Join(dir, "cache"))
}

func readAllRows[T any](t *testing.T, rows iter.Seq2[*T, error]) (all []T) {
	t.Helper()
	for r, err := range rows {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, *r)
	}
	return all
}
