package report_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/report"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/store"
)

// TestMeasuredZero checks that a report contains a number that was measured as 0, and lacks a number that was not
// measured.
func TestMeasuredZero(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.sample("a", 0, 1, nil, 5, 5)
	f.write(sink.Parquet)
	folder, logs := []string{"durable", "wal_bytes"}, []string{"unstarted", "logged", "wait_seconds"}
	check := func(what string, has, lacks []string) {
		t.Helper()
		data := page(t, f.read(1))
		for _, name := range has {
			if !strings.Contains(data, `"`+name+`":0`) {
				t.Errorf("%s: %s is not 0", what, name)
			}
		}
		for _, name := range lacks {
			if strings.Contains(data, `"`+name+`"`) {
				t.Errorf("%s: the report contains %s", what, name)
			}
		}
	}
	check("without logs", folder, logs)
	f.log(logLine{0, "launch", nil}, logLine{10, "end", nil})
	check("with logs", append(folder, logs...), nil)
	must(t, os.RemoveAll(filepath.Join(f.dir, "wal")))
	f.put("wal", "not a folder")
	if r := f.read(1); r.Storage.WALBytes != nil || len(r.Problems) != 1 || r.Basis != "" {
		t.Errorf("wal/ cannot be read: %v bytes, problems %q, basis %q", r.Storage.WALBytes, r.Problems, r.Basis)
	}
}

// A report of a fleet mentions nothing that only the workers' spools contain, and no command that a fleet lacks.
func TestFleet(t *testing.T) {
	t.Parallel()
	objects := store.Folder(sink.OS(), t.TempDir())
	r, err := report.Read("", report.Run{Planned: 10, Partitions: 2, Logs: func(each func(*sink.Commit)) ([]*sink.Log, error) {
		log, err := sink.ReadLogIn(objects, "", each)
		return []*sink.Log{log}, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	r.Coverage.Failed = 1
	data := dataOf(t, wholePage(t, r))
	for _, text := range []string{"no logs", "write-ahead", "duplicates", "--resume"} {
		if strings.Contains(data+report.Text(r), text) {
			t.Errorf("the page contains %q", text)
		}
	}
	for _, text := range []string{`"partitions":2`, "rollout work", "does not support --retry-failed"} {
		if !strings.Contains(data, text) {
			t.Errorf("the page lacks %q", text)
		}
	}
	for _, name := range []string{"durable", "unstarted", "logged", "wait_seconds", "wal_bytes", "open", "duplicates_refused"} {
		if strings.Contains(data, `"`+name+`"`) {
			t.Errorf("the report contains %s: %s", name, data)
		}
	}
}
