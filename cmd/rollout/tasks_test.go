package main

import (
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector"
)

// A line that is not UTF-8 is a bad task wherever the broken byte stands: in a
// prompt it would be replaced without a word, in metadata no sample could be stored.
func TestTaskThatIsNotUTF8(t *testing.T) {
	t.Parallel()
	lines := `{"id":"a","prompt":"x"}` + "\n" +
		`{"id":"b","prompt":"` + "\xff" + `"}` + "\n" +
		`{"id":"c","prompt":"x","metadata":{"k":"` + "\xff" + `"}}` + "\n"
	var got []string
	taskLines(strings.NewReader(lines), "tasks.jsonl", func(_ collector.Task, err error) bool {
		got = append(got, "")
		if err != nil {
			got[len(got)-1] = err.Error()
		}
		return true
	})
	if want := []string{"", "tasks.jsonl:2: not UTF-8", "tasks.jsonl:3: not UTF-8"}; strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("errors %q, want %q", got, want)
	}
}
