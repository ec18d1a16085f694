package tasks

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
)

// TestRecordedTask checks that the task of a server run survives a round trip, and that only the
// run itself can provide it.
func TestRecordedTask(t *testing.T) {
	t.Parallel()
	task := collector.Task{ID: "run-1", Samples: 1, Recorded: &collector.Recorded{Server: "http://127.0.0.1:8283", Run: "run-1"}}
	line, err := json.Marshal(LineOf(&task, time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"id":"run-1","recorded":{"server":"http://127.0.0.1:8283"},"samples":1}`; string(line) != want {
		t.Errorf("%s, want %s", line, want)
	}
	read, err := ParseTask(line)
	if err != nil || !reflect.DeepEqual(read, task) {
		t.Errorf("%+v, %v", read, err)
	}
	read.Source, read.Line = "tasks.jsonl", 3
	if err := NewFit(agent.Config{}, nil).Check(&read); err == nil || !strings.Contains(err.Error(), "tasks.jsonl:3: recorded: name a server run with --from-runs") {
		t.Errorf("%v", err)
	}
	for line, want := range map[string]string{
		`{"id":"run-1","recorded":{}}`:                                   "recorded: must be an object that names the server",
		`{"id":"run-1","recorded":"x"}`:                                  "recorded: must be an object that names the server",
		`{"id":"run-1","recorded":{"server":"x"},"prompt":"Hi."}`:        "prompt: not allowed with recorded",
		`{"id":"run-1","recorded":{"server":"x"},"answer":"1"}`:          "answer: not allowed with recorded",
		`{"recorded":{"server":"x"}}`:                                    "id: is missing",
		`{"id":"run-1","recorde":{"server":"x"},"messages":["Hi."]}`:     "recorde: unknown field; put your own fields into metadata",
		`{"id":"run-1","recorded":{"server":"x"},"agent":{"model":"m"}}`: "agent: not allowed with recorded",
	} {
		if _, err := ParseTask([]byte(line)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}
