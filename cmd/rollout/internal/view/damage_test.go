package view_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/sink"
)

// TestDamage checks that a page shows the samples that can be read, and lists the others.
func TestDamage(t *testing.T) {
	t.Parallel()
	dir := fleetRun(t, true)
	shards := must(filepath.Glob(filepath.Join(dir, "partitions", "0000", "data", "*")))(t)
	body := must(os.ReadFile(shards[0]))(t)
	body[len(body)/2] ^= 1
	if err := os.WriteFile(shards[0], body, 0o600); err != nil {
		t.Fatal(err)
	}
	url := serve(t, dir, false)
	all := fetch[columns](t, url+"api/samples")
	if all.N != fleetTasks {
		t.Fatalf("%d samples, want %d", all.N, fleetTasks)
	}
	lost := 0
	for n := range all.N {
		s := fetch[sampleOf](t, fmt.Sprintf("%sapi/sample/%d", url, n))
		switch status := all.Words["status"][all.Status[n]]; {
		case status == "damaged" && all.Reward[n] == nil && len(s.Rows) == 0:
			lost++
		case status != "completed" || *all.Reward[n] != 1 || len(s.Rows) != 1: // of the other partition
			t.Errorf("sample %d has the status %s and %d rows", n, status, len(s.Rows))
		}
	}
	if lost == 0 || lost == fleetTasks {
		t.Errorf("%d samples of %d are damaged", lost, fleetTasks)
	}
	_, found := get(t, http.MethodGet, url+"api/search?q=I%20AM", "")
	if !strings.Contains(string(found), "damaged shards were not searched") {
		t.Errorf("search: %s", found)
	}
	var page bytes.Buffer
	v := open(t, dir)
	if err := v.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	left, damage, err := v.Write(t.Context(), &page)
	if err != nil || left.Kept != fleetTasks || len(damage) != 1 || !strings.Contains(damage[0].Error(), "partitions/0000/") {
		t.Errorf("a page of %d samples has the damage %v (%v)", left.Kept, damage, err)
	}
}

// addScores adds a scores set in which all samples of the run have the same reward.
func addScores(t *testing.T, dir, name string, reward float64) {
	t.Helper()
	set := filepath.Join(dir, filepath.FromSlash(sink.ScoresPath(name)))
	if err := os.MkdirAll(set, 0o700); err != nil {
		t.Fatal(err)
	}
	w := must(sink.OpenScores(set, sink.Config{RunID: runID}))(t)
	defer w.Abandon()
	for i := range must(sink.ReadLog(dir))(t).Commits {
		for _, s := range must(sink.ReadLog(dir))(t).Commits[i].Samples {
			if err := w.Add(&sink.StoredScore{SampleKey: s.Key, Reward: new(reward)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Seal(); err != nil {
		t.Fatal(err)
	}
}

// TestScores checks that the page and its report use the newest scores set when the run is opened, and say its name.
func TestScores(t *testing.T) {
	t.Parallel()
	dir, m := oneOfTwo(t)
	addScores(t, dir, "0001", 0.25)
	url := serve(t, dir, true)
	if c := fetch[columns](t, url+"api/samples"); *c.Reward[0] != 0.25 {
		t.Errorf("reward %v, want 0.25", *c.Reward[0])
	}
	add(t, dir, m.samples[1:])
	addScores(t, dir, "0002", 0.75)
	c := fetch[columns](t, url+"api/samples")
	if c.N != 2 || *c.Reward[0] != 0.25 || c.Reward[1] != nil {
		t.Errorf("the rewards of two scores sets are mixed: %+v", c)
	}
	if s := fetch[sampleOf](t, url+"api/sample/0"); *s.Reward != 0.25 {
		t.Errorf("reward %v, want 0.25", *s.Reward)
	}
	for url, want := range map[string]string{url: "0001", serve(t, dir, false): "0002"} {
		if o := fetch[struct{ Report struct{ Scores string } }](t, url+"api/overview"); o.Report.Scores != want {
			t.Errorf("the report has the scores %q, want %q", o.Report.Scores, want)
		}
	}
}
