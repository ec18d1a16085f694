package tasks

import (
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector"
)

// TestTaskThatIsNotUTF8 checks that an invalid byte anywhere makes a task bad. In a prompt it would
// be replaced silently, and in metadata no sample could be stored.
func TestTaskThatIsNotUTF8(t *testing.T) {
	t.Parallel()
	lines := `{"id":"a","prompt":"x"}` + "\n" +
		`{"id":"b","prompt":"` + "\xff" + `"}` + "\n" +
		`{"id":"c","prompt":"x","metadata":{"k":"` + "\xff" + `"}}` + "\n"
	var got []string
	readLines(strings.NewReader(lines), "tasks.jsonl", func(_ collector.Task, err error) bool {
		got = append(got, "")
		if err != nil {
			got[len(got)-1] = err.Error()
		}
		return true
	})
	if want := []string{"", "tasks.jsonl:2: not UTF-8 (byte 20)", "tasks.jsonl:3: not UTF-8 (byte 40)"}; strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("errors %q, want %q", got, want)
	}
}

// TestTaskOfNothing checks that an empty line is not a task.
func TestTaskOfNothing(t *testing.T) {
	t.Parallel()
	if _, err := ParseTask(nil); err == nil || !strings.HasPrefix(err.Error(), "not a JSON object: ") {
		t.Errorf("ParseTask = %v", err)
	}
}

// TestColumnsOfOneName checks that two columns with one name are an error, because parsers disagree
// on which counts.
func TestColumnsOfOneName(t *testing.T) {
	t.Parallel()
	schema := parquet.NewSchema("tasks", twice{parquet.Group{"id": parquet.String(), "prompt": parquet.String()}})
	if err := checkTaskColumns(schema); exit.Code(err) != exit.Usage || !strings.HasPrefix(err.Error(), "two columns are named prompt") {
		t.Errorf("two columns prompt: %v", err)
	}
}

// twice is a group that repeats its last field.
type twice struct{ parquet.Group }

func (g twice) Fields() []parquet.Field {
	f := g.Group.Fields()
	return append(f, f[len(f)-1])
}
