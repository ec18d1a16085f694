package reward_test

import (
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/reward"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestScorers(t *testing.T) {
	t.Parallel()
	const null = -1 // an error: no reward
	tests := []struct {
		name   string
		scorer collector.Scorer
		answer string // "-" for none
		output string
		want   float64
	}{
		{"exact", reward.Exact{}, "Paris", " Paris\n", 1},
		{"exact differs", reward.Exact{}, "Paris", "It is Paris", 0},
		{"exact case", reward.Exact{}, "Paris", "paris", 0},
		{"exact ignoring case", reward.Exact{IgnoreCase: true}, "Paris", "paris", 1},
		{"exact of empty", reward.Exact{}, "", "", 1},
		{"exact without answer", reward.Exact{}, "-", "Paris", null},

		{"contains", reward.Contains{}, "42", "so it is 42.", 1},
		{"contains not", reward.Contains{}, "42", "so it is 41.", 0},
		{"contains ignoring case", reward.Contains{IgnoreCase: true}, "YES", "oh yes", 1},
		{"contains empty answer", reward.Contains{}, " ", "anything", null},
		{"contains without answer", reward.Contains{}, "-", "x", null},

		{"regex matches", must(reward.NewRegex(`^\d+$`)), "-", "17", 1},
		{"regex matches not", must(reward.NewRegex(`^\d+$`)), "-", "x17", 0},
		{"regex group", must(reward.NewRegex(`answer: (\w+)`)), "b", "answer: a, no, answer: b", 1},
		{"regex group differs", must(reward.NewRegex(`answer: (\w+)`)), "a", "answer: a, no, answer: b", 0},
		{"regex group without match", must(reward.NewRegex(`answer: (\w+)`)), "a", "none", 0},

		{"number", reward.Number{}, "72", "First 24, then 48, together 72.", 1},

		{"json whole", must(reward.NewJSON("")), `{"a":[1,2]}`, `{"a": [1, 2.0]}`, 1},
		{"json path", must(reward.NewJSON("a.b[1]")), "7", `{"a":{"b":[5,7]}}`, 1},
		{"json path of a string", must(reward.NewJSON("$.city")), "Paris", `{"city":"Paris"}`, 1},
		{"json string of digits", must(reward.NewJSON("v")), "7", `{"v":"7"}`, 1},
		{"json in a block", must(reward.NewJSON("v")), "7", "Here:\n```json\n{\"v\": 7}\n```\ndone", 1},
		{"json missing", must(reward.NewJSON("w")), "7", `{"v":7}`, 0},
		{"json index out of range", must(reward.NewJSON("v[9]")), "7", `{"v":[7]}`, 0},
		{"json of nonsense", must(reward.NewJSON("v")), "7", `not json`, 0},
		{"json unclosed block", must(reward.NewJSON("v")), "7", "```json\n{\"v\":7}", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			task := &collector.Task{ID: "t"}
			if tt.answer != "-" {
				task.Answer = &tt.answer
			}
			r, err := tt.scorer.Score(t.Context(), task, &collector.Reply{Output: tt.output})
			switch {
			case tt.want == null:
				if err == nil || r.Value != nil {
					t.Fatalf("Score = %v, %v, want an error and no reward", r, err)
				}
			case err != nil:
				t.Fatal(err)
			case r.Value == nil || *r.Value != tt.want:
				t.Fatalf("Score = %v, want %v", r.Value, tt.want)
			}
		})
	}
}

func TestBadPatterns(t *testing.T) {
	t.Parallel()
	if _, err := reward.NewRegex("("); err == nil || !strings.HasPrefix(err.Error(), "reward: ") {
		t.Errorf("NewRegex = %v, want an error", err)
	}
	for _, path := range []string{"a..b", "a[", ".", "a."} {
		if _, err := reward.NewJSON(path); err == nil {
			t.Errorf("NewJSON(%q) = nil, want an error", path)
		}
	}
}
