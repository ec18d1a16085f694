package collector

import "slices"

// Oldest returns the n samples that are in flight for the longest time, the oldest
// first; fewer where fewer are.
func (c *Collector) Oldest(n int) []InFlight {
	all := c.counters.inFlight()
	slices.SortFunc(all, func(a, b InFlight) int { return a.Started.Compare(b.Started) })
	return all[:min(n, len(all))]
}

// inFlight copies what the busy slots do.
func (c *counters) inFlight() []InFlight {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []InFlight
	for i := range c.slots {
		if c.slots[i].busy {
			all = append(all, c.slots[i].at)
		}
	}
	return all
}
