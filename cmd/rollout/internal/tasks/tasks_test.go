package tasks

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
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

// TestRecordedTask checks that the task of a server run or session survives a round trip, and that
// only the run itself can provide it.
func TestRecordedTask(t *testing.T) {
	t.Parallel()
	var read collector.Task
	for want, task := range map[string]collector.Task{
		`{"id":"5f","messages":["Add."],"recorded":{"session":true,"task_id":"t1"},"answer":"5","metadata":{"a":1},"samples":1}`: {
			ID: "5f", Samples: 1, Messages: []string{"Add."}, Answer: new("5"), Metadata: json.RawMessage(`{"a":1}`),
			Recorded: &collector.Recorded{Run: "5f", TaskID: "t1"},
		},
		`{"id":"6f","recorded":{"session":true},"samples":1}`: {ID: "6f", Samples: 1, Recorded: &collector.Recorded{Run: "6f"}},
		`{"id":"run-1","recorded":{"server":"http://127.0.0.1:8283"},"samples":1}`: {
			ID: "run-1", Samples: 1, Recorded: &collector.Recorded{Server: "http://127.0.0.1:8283", Run: "run-1"},
		},
	} {
		line, err := json.Marshal(LineOf(&task, time.Now()))
		if err != nil || string(line) != want {
			t.Errorf("%s, %v, want %s", line, err, want)
		}
		read, err = ParseTask(line)
		if err != nil || !reflect.DeepEqual(read, task) {
			t.Errorf("%+v, %v", read, err)
		}
	}
	read.Source, read.Line = "tasks.jsonl", 3
	if err := NewFit(Overrides(agent.Config{}), nil).Check(&read); err == nil || !strings.Contains(err.Error(), "tasks.jsonl:3: recorded: not allowed in a task; to collect a server run, use --from-runs") {
		t.Errorf("%v", err)
	}
	for line, want := range map[string]string{
		`{"id":"run-1","recorded":{}}`:                                   "recorded: must be an object that names a server or marks a session",
		`{"id":"run-1","recorded":"x"}`:                                  "recorded: must be an object that names a server or marks a session",
		`{"id":"run-1","recorded":{"server":"x"},"prompt":"Hi."}`:        "prompt: not allowed in a task with recorded",
		`{"id":"run-1","recorded":{"server":"x"},"answer":"1"}`:          "answer: not allowed in a task with recorded",
		`{"id":"5f","recorded":{"session":true},"agent":{"model":"m"}}`:  "agent: not allowed in a task with recorded",
		`{"id":"5f","recorded":{"session":true,"server":"x"}}`:           "recorded: must be an object that names a server or marks a session",
		`{"recorded":{"server":"x"}}`:                                    "id is missing",
		`{"id":"run-1","recorde":{"server":"x"},"messages":["Hi."]}`:     "recorde: unknown field; put your own fields into metadata",
		`{"id":"run-1","recorded":{"server":"x"},"agent":{"model":"m"}}`: "agent: not allowed in a task with recorded",
	} {
		if _, err := ParseTask([]byte(line)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}
