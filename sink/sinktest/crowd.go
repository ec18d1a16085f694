package sinktest

import (
	"context"
	"sync"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// A Crowd is the sink of a benchmark with one worker that is to look like a run with
// many: the worker continues while its samples wait, together, for a sync of the
// write-ahead log.
type Crowd struct {
	dataset *sink.Dataset
	slots   chan struct{}
	wait    sync.WaitGroup
}

// NewCrowd returns a Crowd before d. At most 256 samples wait.
func NewCrowd(d *sink.Dataset) *Crowd { return &Crowd{dataset: d, slots: make(chan struct{}, 256)} }

// Append gives the sample to the dataset and returns before it is durable.
func (c *Crowd) Append(ctx context.Context, s *tokenize.Sample, done func(error)) error {
	c.slots <- struct{}{}
	c.wait.Go(func() {
		if err := c.dataset.Append(context.WithoutCancel(ctx), s, done); err != nil { // the worker may be gone
			done(err)
		}
		<-c.slots
	})
	return nil
}

// Wait returns when the dataset has every sample.
func (c *Crowd) Wait() { c.wait.Wait() }
