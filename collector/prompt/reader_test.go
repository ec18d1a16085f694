package prompt_test

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/tokenize"
)

// truthOf returns the traced generations of exchange i and the number of untraced ones.
func (r *recording) truthOf(i int) (traced []truth, untraced int) {
	one := recording{Exchanges: r.Exchanges[i : i+1]}
	for _, t := range one.truths() {
		if t.hasTrace {
			traced = append(traced, t)
		} else {
			untraced++
		}
	}
	return traced, untraced
}

// TestReaderPrompts reads every recorded server run as if another program drove it. Its calls have
// the prompts that the engine received, id by id.
func TestReaderPrompts(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	var changes atomic.Int64
	exact, missing, ended := 0, 0, map[string]string{}
	for _, rec := range recordings(t) {
		life := live(t, &rec)
		runs := must(life.Client.Runs(t.Context(), letta.RunsQuery{AgentID: life.AgentID, Ascending: true}))(t)
		p := newPrompter(t, prompt.Config{Model: model})
		client := must(letta.NewClient(letta.ClientConfig{
			BaseURL: life.Client.BaseURL(),
			Observe: func(ctx context.Context, _, method string) (context.Context, func(letta.Exchange)) {
				if method != http.MethodGet {
					changes.Add(1)
				}
				return ctx, func(letta.Exchange) {}
			},
		}))(t)
		reader := agent.NewReader(client, agent.ReaderConfig{Prompter: p})
		for i := range runs {
			task := &collector.Task{ID: runs[i].ID, Recorded: &collector.Recorded{Server: "x", Run: runs[i].ID}, Samples: 1}
			g := must(reader.Open(t.Context(), collector.Attempt{Task: task, Key: "k-0", GroupSize: 1, N: 1}))(t)
			want, untraced := rec.truthOf(i)
			missing += untraced
			reply, err := g.Run(t.Context())
			if err != nil {
				ended[rec.name] = collector.Classify(err).String() + " " + collector.ReasonOf(err).String()
				t.Logf("%s run %d: %v", rec.name, i, err)
				continue
			}
			calls, err := g.Prompts(t.Context(), reply)
			if err != nil {
				t.Errorf("%s run %d: %v", rec.name, i, err)
				continue
			}
			if len(calls) != len(want) || len(reply.Missing) != untraced {
				t.Errorf("%s run %d: %d calls and %d missing, want %d and %d", rec.name, i, len(calls), len(reply.Missing), len(want), untraced)
				continue
			}
			for k := range calls {
				switch c := &calls[k]; {
				case rec.name == "client-tool-return": // the schema of a client tool is not stored
					if c.Grade != tokenize.Quarantined || c.Reason != tokenize.ReasonNoPrompt {
						t.Errorf("%s run %d call %d: %v %v", rec.name, i, k, c.Grade, c.Reason)
					}
				case c.Grade != tokenize.CountVerified:
					t.Errorf("%s run %d call %d: %v %v %s", rec.name, i, k, c.Grade, c.Reason, c.Note)
				case !slices.Equal(c.PromptIDs, want[k].prompt) || !slices.Equal(c.OutputIDs, want[k].output):
					t.Errorf("%s run %d call %d: differs from the engine's input and output", rec.name, i, k)
				default:
					exact++
				}
			}
			if err := g.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	if exact != 71 || missing != 4 {
		t.Errorf("%d exact and %d missing, want 71 and 4", exact, missing)
	}
	want := map[string]string{
		"approval-pending": "agent_error ", "http-500": "agent_error ", "tool-null-args": "agent_error ", // from the server run
		"compaction": "no_prompt compacted", "logprobs-only": "no_turns not_native", "nan": "no_turns no_trace",
	}
	if !maps.Equal(ended, want) {
		t.Errorf("ended %v, want %v", ended, want)
	}
	if n := changes.Load(); n > 0 {
		t.Errorf("%d requests that can change something", n)
	}
}
