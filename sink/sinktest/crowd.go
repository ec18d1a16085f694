package sinktest

import (
	"context"
	"sync"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// A Crowd is a sink for benchmarks in which one worker simulates many workers. The worker does
// not wait until a sample is durable, so many of its samples wait for the same sync of the
// write-ahead log.
type Crowd struct {
	dataset *sink.Dataset
	slots   chan struct{}
	wait    sync.WaitGroup
}

// NewCrowd returns a Crowd that passes samples to d. Append blocks while 256 samples wait.
func NewCrowd(d *sink.Dataset) *Crowd { return &Crowd{dataset: d, slots: make(chan struct{}, 256)} }

// Append passes the sample to the dataset without waiting until the sample is durable.
func (c *Crowd) Append(ctx context.Context, s *tokenize.Sample, done func(error)) error {
	c.slots <- struct{}{}
	c.wait.Go(func() {
		if err := c.dataset.Append(context.WithoutCancel(ctx), s, done); err != nil { // ctx can be done when the worker ends
			done(err)
		}
		<-c.slots
	})
	return nil
}

// Wait blocks until each sample is durable or has failed.
func (c *Crowd) Wait() { c.wait.Wait() }
