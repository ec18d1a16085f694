package report_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/report"
	"github.com/rollout-rl/rollout/sink"
)

// TestTakeOver checks that the report of an unchanged dataset is reused without reading a row, and
// that damage and new data are noticed.
func TestTakeOver(t *testing.T) {
	f := bigRun(t)
	run := report.Run{CreatedAt: epoch, Now: epoch.Add(time.Hour), Planned: 1200, Tasks: 150, Program: "v1", Pass: report.DefaultPass}
	read := func() (*report.Report, string) {
		t.Helper()
		r, err := report.Read(f.dir, run)
		must(t, err)
		b, err := json.Marshal(r)
		must(t, err)
		return r, string(b)
	}
	first, text := read()
	if first.Basis == "" {
		t.Fatal("no basis")
	}
	take := func(passed int) {
		t.Helper()
		run.Last = new(report.Report)
		must(t, json.Unmarshal([]byte(text), run.Last))
		run.Last.Rewards.Passed = passed
	}
	take(first.Rewards.Passed)
	again, same := read()
	if same != text {
		t.Errorf("taken over:\n%s\nwant\n%s", same, text)
	}
	if got, want := page(t, again), page(t, first); got != want {
		t.Error("the page is another one")
	}
	const mark = 123456
	take(mark) // no row has this value
	if r, _ := read(); r.Rewards.Passed != mark {
		t.Error("the rows were read again")
	}
	for name, change := range map[string]func(){
		"planned": func() { run.Planned++ },
		"pass":    func() { run.Pass = .5 },
		"program": func() { run.Program = "v2" },
	} {
		was := run
		change()
		if r, _ := read(); r.Rewards.Passed == mark {
			t.Errorf("%s: the last report was taken over", name)
		}
		run = was
	}
	shards, err := filepath.Glob(filepath.Join(f.dir, "data", "*.parquet"))
	if err != nil || len(shards) == 0 {
		t.Fatal(shards, err)
	}
	whole, err := os.ReadFile(shards[0])
	must(t, err)
	broken := bytes.Clone(whole)
	broken[len(broken)/2] ^= 1
	must(t, os.WriteFile(shards[0], broken, 0o666))
	if r, _ := read(); len(r.Damage) != 1 || r.Rewards.Passed == mark || r.Basis != "" {
		t.Errorf("a damaged shard: %v, basis %q", r.Damage, r.Basis)
	}
	must(t, os.WriteFile(shards[0], whole, 0o666))
	f.sample("one-more", 0, 1, nil, 10, 10)
	f.write(sink.Parquet)
	if r, _ := read(); r.Rewards.Passed == mark || r.Coverage.Committed != first.Coverage.Committed+1 {
		t.Errorf("one more sample: %d committed, had %d", r.Coverage.Committed, first.Coverage.Committed)
	}
}
