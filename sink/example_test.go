package sink_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// exampleSample returns a sample of one row: a prompt of two tokens and two sampled ones.
func exampleSample() *tokenize.Sample {
	row := tokenize.Row{
		SegmentCount: 1, LastCall: 1, FinishReasons: []string{"stop"}, StepIDs: []string{"step-1"},
		Grade: tokenize.Exact, Source: tokenize.SourceTurns,
	}
	row.AppendContext(tokenize.RolePrompt, []int32{1, 2})
	row.AppendSampled([]int32{10, 11}, []float32{-0.25, -0.5}, -1)
	reward := 1.0
	return &tokenize.Sample{
		Key: "7f3a-0", TaskID: "t1", GroupID: "t1", RolloutID: "7f3a-0/1", GroupSize: 1, Attempt: 1,
		Rows: []tokenize.Row{row}, Reward: &reward, Status: "completed", StopReason: "end_turn",
		PromptTokens: 2, CompletionTokens: 2, Steps: 1,
	}
}

// write appends one sample to the dataset in the folder dir. done receives its outcome.
func write(ctx context.Context, dir string, done func(error)) error {
	d, err := sink.Create(dir, sink.Config{Format: sink.Arrow})
	if err != nil {
		return err
	}
	var g errgroup.Group
	g.Go(func() error { return d.Run(ctx) })
	err = d.Append(ctx, exampleSample(), done)
	return errors.Join(err, d.Close(ctx), g.Wait()) // Close commits open shards
}

// Create makes a dataset in a run's folder, Run does the work while samples are appended, and Close
// commits the rest.
func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	done := func(err error) { fmt.Println("durable:", err == nil) }
	if err := write(context.Background(), dir, done); err != nil {
		fmt.Println(err)
	}

	log, err := sink.ReadLog(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	for shard := range log.Shards(sink.KindData) {
		fmt.Println(shard.Format, shard.Rows, "row", shard.Tokens.Total, "tokens")
		for row, err := range log.Rows(shard) {
			if err != nil {
				fmt.Println(err)
				return
			}
			fmt.Println(row.TaskID, row.InputIDs, row.LossMask, row.Logprobs, *row.Reward, row.Verification)
		}
	}
	// Output:
	// durable: true
	// arrow 1 row 4 tokens
	// t1 [1 2 10 11] [0 0 1 1] [0 0 -0.25 -0.5] 1 exact
}

// Verify checks the whole dataset and lists the problems.
func ExampleVerify() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := write(context.Background(), dir, func(error) {}); err != nil {
		fmt.Println(err)
	}
	report, err := sink.Verify(context.Background(), dir, sink.VerifyOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(report.Samples, "sample,", report.Tokens.Trainable, "tokens to train on,", report.ProblemCount, "problems")
	// Output:
	// 1 sample, 2 tokens to train on, 0 problems
}
