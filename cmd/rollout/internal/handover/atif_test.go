package handover

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/rowjson"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
)

// bitsOf returns the rows of the samples as lines, in which every float has its bits.
func bitsOf(tb testing.TB, samples []*sink.StoredSample) string {
	tb.Helper()
	var out strings.Builder
	w := rowjson.NewWriter(&out)
	for _, s := range samples {
		if err := w.Write(s); err != nil {
			tb.Fatal(err)
		}
	}
	return out.String()
}

// TestThereAndBack checks that ReadATIF returns every column of every row with the same bits.
func TestThereAndBack(t *testing.T) {
	t.Parallel()
	all := shapes(t)
	all["edge cases"] = sinktest.Edge()
	for name, samples := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []*sink.StoredSample
			want := storedOf(t, samples)
			text, _ := exported(t, ATIF, want)
			for line := range strings.Lines(text) {
				s, err := ReadATIF(line)
				if err != nil {
					t.Fatalf("%v of %.300s", err, line)
				}
				got = append(got, s)
			}
			if a, b := bitsOf(t, got), bitsOf(t, want); a != b {
				for i, line := range strings.Split(a, "\n") {
					if other := strings.Split(b, "\n")[i]; line != other {
						t.Errorf("row %d\ngot  %.2000s\nwant %.2000s", i, line, other)
					}
				}
			}
		})
	}
}

// TestSteps checks the steps of a trajectory.
func TestSteps(t *testing.T) {
	t.Parallel()
	samples := storedOf(t, shapes(t)["forks"][:1])
	text, _ := exported(t, ATIF, samples)
	lines := strings.Split(strings.TrimSpace(text), "\n")
	var kinds [][]string
	for i, line := range lines {
		var got struct {
			Session    string `json:"session_id"`
			Trajectory string `json:"trajectory_id"`
			Steps      []struct {
				ID          int    `json:"step_id"`
				Source      string `json:"source"`
				Message     string `json:"message"`
				Reasoning   string `json:"reasoning_content"`
				Copied      bool   `json:"is_copied_context"`
				Calls       []any  `json:"tool_calls"`
				Observation *struct {
					Results []struct {
						Call    string `json:"source_call_id"`
						Content string `json:"content"`
					} `json:"results"`
				} `json:"observation"`
				Metrics *struct {
					Prompt     int       `json:"prompt_tokens"`
					PromptIDs  []int32   `json:"prompt_token_ids"`
					Completion []int32   `json:"completion_token_ids"`
					Logprobs   []float32 `json:"logprobs"`
				} `json:"metrics"`
			} `json:"steps"`
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatal(err)
		}
		r := &samples[i].Rows[0]
		if got.Session != r.RolloutID || got.Trajectory != name(r) || !strings.HasSuffix(got.Trajectory, string(rune('0'+i))) {
			t.Errorf("row %d: session %q, trajectory %q", i, got.Session, got.Trajectory)
		}
		var kind []string
		for k, s := range got.Steps {
			if s.ID != k+1 {
				t.Errorf("row %d: step %d has id %d", i, k, s.ID)
			}
			what := s.Source + ":" + s.Message + "/" + s.Reasoning
			if s.Copied {
				what += " copied"
			}
			if s.Calls != nil {
				what += " calls"
			}
			if s.Observation != nil {
				what += " " + s.Observation.Results[0].Call + "=" + s.Observation.Results[0].Content
			}
			if m := s.Metrics; m != nil {
				n := len(m.PromptIDs)
				if m.Prompt != n || !reflect.DeepEqual(append(m.PromptIDs, m.Completion...), r.InputIDs[:n+len(m.Completion)]) || !reflect.DeepEqual(m.Logprobs, r.Logprobs[n:n+len(m.Completion)]) {
					t.Errorf("row %d, step %d: metrics %+v", i, k, *m)
				}
				what += " sampled"
			}
			kind = append(kind, what)
		}
		kinds = append(kinds, kind)
	}
	talk := []string{"system:Be brief./", "user:Add 2 and 3./", "agent:I add./ calls call_1=5 sampled", "agent:It is 5./Hm. sampled"}
	want := [][]string{talk, {talk[0], talk[1], "agent:I add./ copied calls call_1=5", talk[3]}, talk}
	if !reflect.DeepEqual(kinds, want) {
		t.Errorf("steps\n%q, want\n%q", kinds, want)
	}
}

// TestUnscored checks that a step claims no log-probability that the engine did not send.
func TestUnscored(t *testing.T) {
	t.Parallel()
	text, _ := exported(t, ATIF, storedOf(t, shapes(t)["truncation"][:1]))
	if n := strings.Count(text, `"extra":{"loss_mask":[0,1,`); n != 1 {
		t.Errorf("%d steps with a loss mask, want 1: %s", n, text)
	}
	if n := strings.Count(text, `],"logprobs":[`); n != 2 {
		t.Errorf("%d steps with log-probabilities, want 2: %s", n, text)
	}
	if strings.Count(text, `"extra":{"loss_mask":[0,1,1`) != 1 || strings.Count(text, `],"extra":{"loss_mask"`) != 1 {
		t.Errorf("metrics.logprobs is there for a step with an unscored token: %s", text)
	}
}

// TestArguments checks that arguments on several lines, as the model wrote them, do not split the line.
func TestArguments(t *testing.T) {
	t.Parallel()
	s := &shaper{sinktest.NewBuilder(3), t, bpetest.Tokenizer(t, "qwen3")}
	call := "<tool_call>\n{\"name\": \"add\",\n \"arguments\": {\n  \"a\": [1.50,\n 2],\n  \"b\": \"x y\"}}\n</tool_call><|im_end|>"
	text, _ := exported(t, ATIF, storedOf(t, []*tokenize.Sample{s.Sample(s.row(begin, call))}))
	want := `"tool_calls":[{"tool_call_id":"call_1","function_name":"add","arguments":{"a":[1.50,2],"b":"x y"}}]`
	if !strings.Contains(text, want) || strings.Count(text, "\n") != 1 || !json.Valid([]byte(text)) {
		t.Errorf("%s\nwant %s", text, want)
	}
}

// TestHostileTrajectory checks that any wrong trajectory is an error.
func TestHostileTrajectory(t *testing.T) {
	t.Parallel()
	text, _ := exported(t, ATIF, storedOf(t, shapes(t)["plain"][1:2]))
	calls, _ := exported(t, ATIF, storedOf(t, shapes(t)["plain"][:1])) // two
	swap := func(from, to string) string {
		if !strings.Contains(text, from) {
			t.Fatalf("the line has no %s: %s", from, text)
		}
		return strings.Replace(text, from, to, 1)
	}
	for _, tt := range []struct{ name, line, want string }{
		{"cut", text[:len(text)/2], "the text ends"},
		{"another version", swap("ATIF-v1.8", "ATIF-v1.7"), `import reads only ATIF-v1.8`},
		{"of another program", swap(`"rollout":{`, `"other":{`), "extra.rollout"},
		{"no metrics", swap(`"metrics"`, `"measured"`), "no step has metrics"},
		{"an id less", swap(`"completion_token_ids":[151667,`, `"completion_token_ids":[`), "ends at token"},
		{"another prompt of the first call", strings.Replace(calls, `"prompt_token_ids":[151644,`, `"prompt_token_ids":[151645,`, 1), "are not tokens 0 to"},
		{"another prompt", swap(`"prompt_token_ids":[151644,`, `"prompt_token_ids":[0,151644,`), "ends at token"},
		{"a log-probability less", swap(`"logprobs":[`, `"logprobs":[], "other":[`), "log-probabilities"},
		{"another span", swap(`"turn_offsets":[0,`, `"turn_offsets":[0,1,`), "turn_offsets"},
		{"a column less", swap(`"group_size":4,`, ``), "column group_size is missing"},
		{"no log-probability", swap(`"logprobs":[-`, `"logprobs":[null,-`), "null"},
		{"no log-probabilities", swap(`"logprobs":[`, `"logprobs":null,"other":[`), "null"},
		{"an id twice", swap(`"prompt_token_ids":[`, `"prompt_token_ids":[1],"prompt_token_ids":[`), "prompt_token_ids"},
		{"roles", swap(`"turn_roles":[0,1]`, `"turn_roles":[0,0]`), "more steps with metrics"},
		{"more spans", strings.Replace(swap(`"turn_roles":[0,1]`, `"turn_roles":[0,1,1]`), `"turn_offsets":[0,`, `"turn_offsets":[0,0,`, 1), "ids"},
	} {
		if s, err := ReadATIF(tt.line); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, %v, want %q", tt.name, s, err, tt.want)
		}
	}
}

// FuzzReadATIF checks that no line panics, and that a row that is read survives a round trip.
func FuzzReadATIF(f *testing.F) {
	text, _ := exported(f, ATIF, storedOf(f, shapes(f)["truncation"][:1]))
	f.Add(text)
	f.Add(`{"schema_version":"ATIF-v1.8","steps":[{"metrics":{}}],"extra":{"rollout":{}}}`)
	f.Fuzz(func(t *testing.T, line string) {
		s, err := ReadATIF(line)
		if err != nil {
			return
		}
		for _, id := range s.Rows[0].InputIDs {
			if id < 0 {
				return // import refuses it
			}
		}
		again, _ := exported(t, ATIF, []*sink.StoredSample{s})
		other, err := ReadATIF(again)
		if err != nil {
			t.Fatalf("%v of %s", err, again)
		}
		if a, b := bitsOf(t, []*sink.StoredSample{s}), bitsOf(t, []*sink.StoredSample{other}); a != b {
			t.Errorf("%s was read as %s", a, b)
		}
	})
}
