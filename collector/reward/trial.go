package reward

import (
	"context"
	"encoding/json"
	"errors"

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

// trialOutput is the output of a trial sample if the task has no answer.
const trialOutput = "trial"

// Try scores a trial sample of a task, to detect mistakes in the scorer before a run begins. In the
// reply of the sample, Trial is true. The output is the answer of the task, or "trial" if the task
// has no answer. Try returns an error if the scorer does not return a finite reward. It returns nil
// if the scorer returns collector.ErrNoAnswer.
func Try(ctx context.Context, s collector.Scorer, t *collector.Task, trial Trial) error {
	r, err := trial.reply(t, answerOf(t))
	if err != nil {
		return err
	}
	return tried(Each(s).ScoreGroup(ctx, []Rollout{{t, r}}))
}

// TryGroup is like Try, but with a group of two trial samples. The output of the second one is "trial".
func TryGroup(ctx context.Context, s GroupScorer, t *collector.Task, trial Trial) error {
	var group []Rollout
	for _, output := range []string{answerOf(t), trialOutput} {
		r, err := trial.reply(t, output)
		if err != nil {
			return err
		}
		group = append(group, Rollout{t, r})
	}
	return tried(s.ScoreGroup(ctx, group))
}

func answerOf(t *collector.Task) string {
	if t.Answer == nil {
		return trialOutput
	}
	return *t.Answer
}

func (trial *Trial) reply(t *collector.Task, output string) (r *collector.Reply, err error) {
	r = &collector.Reply{Trial: true, Output: output, Text: output, Workdir: trial.Workdir}
	if r.Workdir != "" {
		r.ExitCode = new(int)
	}
	r.Messages, err = sampleConversation(t, output, trial.Chat)
	return r, err
}

func tried(results []Result) error {
	for _, result := range results {
		reward, err := collector.Settle(result.Reward, result.Err)
		switch {
		case errors.Is(err, collector.ErrNoAnswer):
		case err != nil:
			return err
		case reward.Value == nil:
			return errors.New("the scorer returned no reward")
		}
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
