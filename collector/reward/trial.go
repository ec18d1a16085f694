package reward

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/rollout-rl/rollout/collector"
)

// A Trial states what the reply of a trial sample contains.
type Trial struct {
	// Chat gives the messages of the conversation the form of Chat Completions. Otherwise they have
	// the form of the Letta API.
	Chat bool
	// Workdir is the working folder of a command that exited with 0. It must exist. If it
	// is empty, the agent is not a command.
	Workdir string
}

// Try scores a trial sample of a task, to detect mistakes in the scorer before a run begins. In the
// reply of the sample, Trial is true. The output is the answer of the task, or "trial" if the task
// has no answer. Try returns an error if the scorer does not return a finite reward. It returns nil
// if the scorer returns collector.ErrNoAnswer.
func Try(ctx context.Context, s collector.Scorer, t *collector.Task, trial Trial) (err error) {
	r := &collector.Reply{Trial: true, Output: "trial", Workdir: trial.Workdir}
	if r.Workdir != "" {
		r.ExitCode = new(int)
	}
	if t.Answer != nil {
		r.Output = *t.Answer
	}
	r.Text = r.Output
	if r.Messages, err = sampleConversation(t, r.Output, trial.Chat); err != nil {
		return err
	}
	reward, err := s.Score(ctx, t, r)
	switch {
	case errors.Is(err, collector.ErrNoAnswer):
		return nil
	case err != nil:
		return err
	case reward.Value == nil:
		return errors.New("the scorer returned no reward")
	case math.IsNaN(*reward.Value) || math.IsInf(*reward.Value, 0):
		return fmt.Errorf("the scorer returned %v, want a finite number", *reward.Value)
	}
	return nil
}

func sampleConversation(t *collector.Task, output string, chat bool) (json.RawMessage, error) {
	type sent struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	var all []any
	for _, text := range t.Messages {
		all = append(all, sent{"user", text})
	}
	if chat {
		return json.Marshal(append(all, sent{"assistant", output}))
	}
	all = append(all, struct {
		ID      string `json:"id"`
		Date    string `json:"date"`
		Type    string `json:"message_type"`
		Content string `json:"content"`
	}{"message-00000000-0000-4000-8000-000000000000", "2026-01-01T00:00:00+00:00", "assistant_message", output})
	return json.Marshal(all)
}
