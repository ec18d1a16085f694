package collector_test

import (
	"encoding/json"
	"testing"

	"github.com/rollout-rl/rollout/collector"
)

// TestSampleKeyVectors pins the sample keys: runs that were begun with one version of the program
// continue with the next. Do not change the vectors.
func TestSampleKeyVectors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		task  collector.Task
		index int
		want  string
	}{
		{"plain", collector.Task{ID: "t1", Messages: []string{"hello"}}, 0, "5b65d4f150d3ba719122ba812a02b1af-0"},
		{"two messages", collector.Task{ID: "t1", Messages: []string{"hel", "lo"}}, 7, "ba1749fe93ec8bcb2df3552483610ff4-7"},
		{"agent", collector.Task{ID: "t1", Messages: []string{"hello"}, Agent: json.RawMessage(`{"b":[1, 2.0],"a":"<ü>"}`)}, 0, "8b8f421d0ea361a410c996dfc0dcacd3-0"},
		{"server run", collector.Task{ID: "run-1", Recorded: &collector.Recorded{Server: "http://127.0.0.1:8283", Run: "run-1"}, Samples: 1}, 0, "27c19f07e0114bcd8a7eea6345496cb3-0"},
	}
	for _, tt := range tests {
		if got := collector.SampleKey(&tt.task, tt.index); got != tt.want {
			t.Errorf("%s: SampleKey = %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestSampleKeyIdentity(t *testing.T) {
	t.Parallel()
	answer := "42"
	base := collector.Task{ID: "t1", Messages: []string{"a", "b"}, Agent: json.RawMessage(`{"x":1,"y":2}`)}
	same := map[string]func(*collector.Task){
		"agent's key order": func(t *collector.Task) { t.Agent = json.RawMessage("\n{ \"y\": 2, \"x\":1 }") },
		"answer":            func(t *collector.Task) { t.Answer = &answer },
		"metadata":          func(t *collector.Task) { t.Metadata = json.RawMessage(`{}`) },
		"samples":           func(t *collector.Task) { t.Samples = 9 },
		"place":             func(t *collector.Task) { t.Source, t.Line = "f", 3 },
	}
	other := map[string]func(*collector.Task){
		"id":              func(t *collector.Task) { t.ID = "t2" },
		"message":         func(t *collector.Task) { t.Messages = []string{"a", "c"} },
		"message border":  func(t *collector.Task) { t.Messages = []string{"ab", ""} },
		"more messages":   func(t *collector.Task) { t.Messages = []string{"a", "b", ""} },
		"agent":           func(t *collector.Task) { t.Agent = json.RawMessage(`{"x":1,"y":3}`) },
		"agent's numbers": func(t *collector.Task) { t.Agent = json.RawMessage(`{"x":1.0,"y":2}`) },
		"no agent":        func(t *collector.Task) { t.Agent = nil },
	}
	want := collector.SampleKey(&base, 1)
	for name, change := range same {
		task := base
		change(&task)
		if got := collector.SampleKey(&task, 1); got != want {
			t.Errorf("%s changes the key", name)
		}
	}
	for name, change := range other {
		task := base
		change(&task)
		if got := collector.SampleKey(&task, 1); got == want {
			t.Errorf("%s does not change the key", name)
		}
	}
	if collector.SampleKey(&base, 0) == want {
		t.Error("the index does not change the key")
	}
	none := collector.Task{ID: "t", Messages: []string{"m"}}
	for _, agent := range []string{"", "null", "{}", " {  } "} {
		task := none
		task.Agent = json.RawMessage(agent)
		if collector.SampleKey(&task, 0) != collector.SampleKey(&none, 0) {
			t.Errorf("agent %q is not the same as none", agent)
		}
	}
	if got := collector.RolloutID("k-1", 2); got != "k-1/2" {
		t.Errorf("RolloutID = %q", got)
	}
}
