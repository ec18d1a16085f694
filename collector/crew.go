package collector

import (
	"context"
	"sync"
)

// A crew is the workers of one endpoint. They are made as samples need them: one of
// them waits for a sample, and the one that gets it makes the next, up to the
// endpoint's MaxInFlight. So the memory of a run follows what is in flight, and not
// what might be.
type crew struct {
	most  int
	start func() // starts one worker

	mu      sync.Mutex
	n, idle int
}

// begin starts the first worker.
func (c *crew) begin() {
	c.n, c.idle = 1, 1
	c.start()
}

// took notes that a worker has a sample, and sees to it that another waits for the next.
func (c *crew) took() {
	c.mu.Lock()
	c.idle--
	more := c.idle == 0 && c.n < c.most
	if more {
		c.n++
		c.idle++
	}
	c.mu.Unlock()
	if more {
		c.start()
	}
}

// back notes that a worker waits for a sample again.
func (c *crew) back() {
	c.mu.Lock()
	c.idle++
	c.mu.Unlock()
}

// newCrew makes the crew of an endpoint. spawn runs a function in a goroutine whose end
// Run waits for.
func (c *Collector) newCrew(ctx context.Context, at int, base worker, spawn func(func() error)) *crew {
	w := &crew{most: c.endpoints[at].MaxInFlight}
	w.start = func() {
		one := base
		one.c, one.ep, one.crew, one.slot = c, c.endpoints[at], w, c.counters.slot(at)
		spawn(func() error { return one.run(ctx) }) // non-nil only when the run must stop
	}
	return w
}
