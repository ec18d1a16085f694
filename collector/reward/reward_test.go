package reward_test

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

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
	for _, tt := range []struct {
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

		{"json whole", must(reward.NewJSON("")), `{"a":[1,2]}`, `{"a": [1, 2.0]}`, 1},
		{"json path", must(reward.NewJSON("a.b[1]")), "7", `{"a":{"b":[5,7]}}`, 1},
		{"json path of a string", must(reward.NewJSON("$.city")), "Paris", `{"city":"Paris"}`, 1},
		{"json string of digits", must(reward.NewJSON("v")), "7", `{"v":"7"}`, 1},
		{"json in a block", must(reward.NewJSON("v")), "7", "Here:\n```json\n{\"v\": 7}\n```\ndone", 1},
		{"json missing", must(reward.NewJSON("w")), "7", `{"v":7}`, 0},
		{"json index out of range", must(reward.NewJSON("v[9]")), "7", `{"v":[7]}`, 0},
		{"json of nonsense", must(reward.NewJSON("v")), "7", `not json`, 0},
		{"json unclosed block", must(reward.NewJSON("v")), "7", "```json\n{\"v\":7}", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			task := &collector.Task{ID: "t"}
			if tt.answer != "-" {
				task.Answer = &tt.answer
			}
			r, err := tt.scorer.Score(t.Context(), task, &collector.Reply{Output: tt.output})
			switch {
			case tt.want == null && (err == nil || r.Value != nil):
				t.Errorf("Score = %v, %v, want an error and no reward", r, err)
			case tt.want != null && (err != nil || r.Value == nil || *r.Value != tt.want):
				t.Errorf("Score = %v, %v, want %v", r.Value, err, tt.want)
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

// TestTryCommand checks that Try reports a scorer that returns no finite number for the trial
// sample.
func TestTryCommand(t *testing.T) {
	t.Parallel()
	c := command(t, reward.CommandConfig{Timeout: 20 * time.Second})
	for output, want := range map[string]string{
		`raw:{"reward":0.5}`: "", `raw:{"reward":-3,"details":{}}`: "", `raw:{"reward":0}`: "",
		`raw:{}`: `the answer has no member "reward"`, `raw:null`: `the answer has no member "reward"`, `raw:{"details":{}}`: `the answer has no member "reward"`, `raw:{"rewards":1}`: `the answer has no member "reward"`,
		`raw:{"reward":null}`: "the scorer returned no reward", `raw:{"reward":true}`: `reward "true" is not a finite number`, `raw:{"reward":"1"}`: `is not a finite number`, `raw:{"reward":[1]}`: `is not a finite number`,
		`raw:{"reward":1e999}`: `reward "1e999" is not a finite number`, `raw:{"reward":NaN}`: "invalid character", `raw:{"reward":-Infinity}`: "invalid character", `raw:1`: "cannot unmarshal number", `raw:[1]`: "cannot unmarshal array", `raw:`: "unexpected end", `raw:1.0`: "cannot unmarshal",
		`raw:{"error":"no idea"}`: "no idea", `raw:{"reward":1,"details":[]}`: "not a JSON object", `raw:{"reward":1}` + "\n" + `{"reward":1}`: "more than one line",
		"traceback": "exited without answering: exit status 1: KeyError: 'difficulty'", "die": "exit status 2: ", "raw:hello": "hello",
	} {
		err := reward.Try(t.Context(), c, &collector.Task{ID: "t", Answer: &output}, reward.Trial{})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", output, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %q has several lines", output, err)
		}
	}
	slow := command(t, reward.CommandConfig{Timeout: 300 * time.Millisecond})
	if err := reward.Try(t.Context(), slow, &collector.Task{Answer: new("hang")}, reward.Trial{}); err == nil || !strings.Contains(err.Error(), "no answer within 300ms") {
		t.Errorf("a scorer that hangs: %v", err)
	}
}

// TestTrialSample checks that the trial sample has the usual fields and trial set.
func TestTrialSample(t *testing.T) {
	t.Parallel()
	c := command(t, reward.CommandConfig{Timeout: 20 * time.Second})
	answer := "question"
	task := &collector.Task{ID: "t1", Messages: []string{"first", "second"}, Answer: &answer, Metadata: json.RawMessage(`{"level":3}`)}
	question := func(r *collector.Reply) map[string]any {
		got, err := c.Score(t.Context(), task, r)
		if err != nil {
			t.Fatal(err)
		}
		var details struct {
			Q map[string]any `json:"q"`
		}
		if err := json.Unmarshal(got.Details, &details); err != nil {
			t.Fatal(err)
		}
		return details.Q
	}
	conversation := json.RawMessage(`[{"role":"user","content":"first"},{"message_type":"assistant_message","content":"question"}]`)
	sample := question(&collector.Reply{Output: answer, Text: "<think>hm</think>question", Reasoning: "hm", Messages: conversation})
	if sample["output"] != "question" || sample["text"] != "<think>hm</think>question" || sample["reasoning"] != "hm" || sample["task_id"] != "t1" || sample["answer"] != "question" || sample["trial"] != false {
		t.Errorf("a sample: %v", sample)
	}
	var made map[string]any
	spy := scorer(func(ctx context.Context, task *collector.Task, r *collector.Reply) (collector.Reward, error) {
		made = question(r)
		return c.Score(ctx, task, r)
	})
	if err := reward.Try(t.Context(), spy, task, reward.Trial{}); err != nil {
		t.Fatal(err)
	}
	if made["trial"] != true || made["output"] != "question" || made["text"] != "question" {
		t.Errorf("the trial sample: %v", made)
	}
	for key, v := range sample {
		if other, ok := made[key]; !ok || (v == nil) != (other == nil) {
			t.Errorf("%s is %v, and %v in the trial sample", key, v, other)
		}
	}
	if all, ok := made["conversation"].([]any); !ok || len(all) != 3 {
		t.Errorf("the conversation is %v", made["conversation"])
	}
	// Without an answer.
	task.Answer = nil
	seen := ""
	spy = func(_ context.Context, _ *collector.Task, r *collector.Reply) (collector.Reward, error) {
		seen = r.Output
		return collector.Reward{Value: new(1.0)}, nil
	}
	if err := reward.Try(t.Context(), spy, task, reward.Trial{}); err != nil || seen != "trial" {
		t.Errorf("%v, output %q", err, seen)
	}
}

type scorer func(context.Context, *collector.Task, *collector.Reply) (collector.Reward, error)

func (f scorer) Score(ctx context.Context, t *collector.Task, r *collector.Reply) (collector.Reward, error) {
	return f(ctx, t, r)
}

// TestTryScorers tries every other kind of scorer.
func TestTryScorers(t *testing.T) {
	t.Parallel()
	for _, s := range []collector.Scorer{reward.Exact{}, reward.Contains{}, reward.Number{}, must(reward.NewRegex(`(\d+)`)), must(reward.NewJSON("v"))} {
		for _, a := range []*string{new("72"), nil} {
			if err := reward.Try(t.Context(), s, &collector.Task{ID: "t", Answer: a}, reward.Trial{}); err != nil {
				t.Errorf("%T: %v", s, err)
			}
		}
	}
	for _, v := range []*float64{new(math.NaN()), new(math.Inf(1)), nil} {
		bad := scorer(func(context.Context, *collector.Task, *collector.Reply) (collector.Reward, error) {
			return collector.Reward{Value: v}, nil
		})
		if err := reward.Try(t.Context(), bad, &collector.Task{}, reward.Trial{}); err == nil {
			t.Errorf("%v is accepted", v)
		}
	}
}
