package agent_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/journal"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/sink"
)

// collect makes the samples that the dataset in dir lacks, of the four of a task. (A program
// would also close what it opened before it returns an error.)
func collect(ctx context.Context, url, dir string, started func(collector.Attempt)) error {
	client, err1 := letta.NewClient(letta.ClientConfig{BaseURL: url})
	prompter, err2 := prompt.New(prompt.Config{})
	backend, err3 := agent.NewBackend(client, agent.Config{Model: "sglang//models/qwen3", Prompter: prompter})
	dataset, err4 := sink.Create(dir, sink.Config{}) // commits the data of an earlier process
	held, err5 := sink.ReadLedger(nil, dir)          // lists the finished samples
	attempts, err6 := journal.Open(filepath.Join(dir, "journal"), journal.Config{})
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		return err
	}
	fmt.Println("the dataset holds", held.Len(), "samples")
	c, err := collector.New(collector.Config{
		RunID:     "example",
		Endpoints: []collector.Endpoint{{Name: url, Backend: backend, MaxInFlight: 1}},
		Samples:   4,
		Retries:   2,                                     // default: a sample fails with its first charged failure
		Journal:   attempts, Left: attempts.Resume(held), // the open attempts
		Sink:   dataset,
		Events: collector.Events{AttemptStarted: func(a collector.Attempt, _ string) { started(a) }},
	})
	if err != nil {
		return err
	}
	var writing errgroup.Group
	writing.Go(func() error { return dataset.Run(ctx) })
	err = c.Run(ctx, func(yield func(*collector.Task, error) bool) {
		yield(&collector.Task{ID: "greet", Messages: []string{"Say hello."}}, nil)
	})
	return errors.Join(err, dataset.Close(ctx), writing.Wait(), attempts.Close())
}

// A collection stops during its third sample, and a second one continues it. The dataset holds
// the finished samples; the journal holds the open attempts with their server and agent. Nothing
// is lost or made twice.
func Example() {
	sim, err := lettasim.New(lettasim.Config{InputIDs: true})
	if err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(sim)
	defer server.Close()
	dir, err := os.MkdirTemp("", "run")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, stop := context.WithCancel(context.Background())
	err = collect(ctx, server.URL, dir, func(a collector.Attempt) {
		if a.Index == 2 {
			stop()
		}
	})
	fmt.Println("stopped:", errors.Is(err, context.Canceled))
	err = collect(context.Background(), server.URL, dir, func(collector.Attempt) {})
	held, _ := sink.ReadLedger(nil, dir)
	fmt.Println("continued:", err, held.Len(), "samples of", sim.Stats().Sends, "sends")
	// Output:
	// the dataset holds 0 samples
	// stopped: true
	// the dataset holds 2 samples
	// continued: <nil> 4 samples of 4 sends
}
