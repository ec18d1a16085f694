package reward

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rollout-rl/rollout/collector"
)

// A question is what a program reads about a rollout.
type question struct {
	ID           int64           `json:"id,omitempty"`
	TaskID       string          `json:"task_id"`
	Messages     []string        `json:"messages"`
	Answer       *string         `json:"answer"`
	Metadata     json.RawMessage `json:"metadata"`
	Output       string          `json:"output"`
	Reasoning    string          `json:"reasoning"`
	Text         string          `json:"text"`
	Conversation json.RawMessage `json:"conversation"`
	StopReason   *string         `json:"stop_reason"`
	ExitCode     *int            `json:"exit_code"`
	Workdir      *string         `json:"workdir"`
	Trial        bool            `json:"trial"`
}

func questionOf(t *collector.Task, r *collector.Reply) *question {
	q := &question{
		TaskID: t.ID, Messages: t.Messages, Answer: t.Answer, Metadata: t.Metadata, Output: r.Output, Reasoning: r.Reasoning, Text: r.Text,
		Conversation: r.Messages, ExitCode: r.ExitCode, Trial: r.Trial,
	}
	if r.Workdir != "" {
		q.Workdir = &r.Workdir
	}
	if n := len(r.Sends); n > 0 {
		q.StopReason = &r.Sends[n-1].StopReason
	}
	return q
}

// A verdict is the answer of a program.
type verdict struct {
	ID      *int64          `json:"id"`
	Reward  json.RawMessage `json:"reward"`
	Details json.RawMessage `json:"details"`
	Error   string          `json:"error"`
	Rewards json.RawMessage `json:"rewards"` // a list of verdicts, for a group
}

func (v *verdict) read() (collector.Reward, error) {
	out := collector.Reward{Details: v.Details}
	switch {
	case string(v.Details) == "null":
		out.Details = nil
	case len(v.Details) > 0 && v.Details[0] != '{':
		return collector.Reward{}, fmt.Errorf("details %.80q are not a JSON object", v.Details)
	}
	switch {
	case v.Reward == nil:
		return collector.Reward{}, errors.New(`the answer has no member "reward"`)
	case string(v.Reward) == "null":
		return out, nil
	}
	if err := json.Unmarshal(v.Reward, &out.Value); err != nil {
		return collector.Reward{}, fmt.Errorf("reward %.80q is not a finite number", v.Reward)
	}
	return out, nil
}
