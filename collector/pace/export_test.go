package pace

import "time"

// Means returns D and T of the package comment; 0 if unknown.
func (p *Pacer) Means() (group, version time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return seconds(p.times.mean(p.elapsed())), seconds(p.versions.mean())
}
