package collector_test

import (
	"context"
	"fmt"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/reward"
	"github.com/rollout-rl/rollout/tokenize"
)

// parrot is a server whose agents always give the same answer.
type parrot struct{}

func (parrot) Open(context.Context, collector.Attempt) (collector.Agent, error) { return parrot{}, nil }

func (parrot) ID() string { return "agent-1" }

func (parrot) Run(context.Context) (*collector.Reply, error) {
	return &collector.Reply{
		Output: "hello",
		Sends: []collector.Send{{
			Turns: []tokenize.Turn{{
				Role: tokenize.RoleAssistant, PromptIDs: []int32{1, 2, 3},
				OutputIDs: []int32{42, 7}, Logprobs: []float32{-0.25, -0.5}, IDMismatch: -1,
			}},
			StopReason: "end_turn",
			Usage:      collector.Usage{PromptTokens: 3, CompletionTokens: 2, Steps: 1},
		}},
	}, nil
}

func (parrot) Prompts(_ context.Context, r *collector.Reply) ([]tokenize.Call, error) {
	return tokenize.CallsFromTurns(nil, r.Sends[0].Turns)
}

func (parrot) Close(context.Context) error { return nil }

// printer is a sink that prints what it gets.
type printer struct{}

func (printer) Append(_ context.Context, s *tokenize.Sample, done func(error)) error {
	row := s.Rows[0]
	fmt.Printf("%s sample %d: reward %v, ids %v, mask %v\n", s.TaskID, s.Index, *s.Reward, row.InputIDs, row.LossMask)
	done(nil)
	return nil
}

// A collector combines a backend, a scorer and a sink. The Example of package agent is a collection
// that can be resumed.
func Example() {
	c, err := collector.New(collector.Config{
		Endpoints: []collector.Endpoint{{Name: "local", Backend: parrot{}, MaxInFlight: 1}},
		Samples:   2,
		Scorer:    reward.Exact{},
		Sink:      printer{},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	answer := "hello"
	err = c.Run(context.Background(), func(yield func(*collector.Task, error) bool) {
		yield(&collector.Task{ID: "greet", Messages: []string{"Say hello"}, Answer: &answer}, nil)
	})
	s := c.Stats()
	fmt.Println(err, s.Planned, "=", s.Committed, "+", s.Failed, "+", s.Skipped, "+", s.Remaining)
	// Output:
	// greet sample 0: reward 1, ids [1 2 3 42 7], mask [0 0 0 1 1]
	// greet sample 1: reward 1, ids [1 2 3 42 7], mask [0 0 0 1 1]
	// <nil> 2 = 2 + 0 + 0 + 0
}
