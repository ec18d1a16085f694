package proxy

import "time"

// SetWaits changes how long the head of a stream is held back, and the time between comments.
func (p *Proxy) SetWaits(hold, keep time.Duration) { p.holdHead, p.keepAlive = hold, keep }

// Limits returns the limits. A test can change them before the first request.
func (p *Proxy) Limits() *limits { return &p.limits }

// Mode returns the mode of the first engine. It panics if the mode is unknown.
func (p *Proxy) Mode() string { return p.balance.engines[0].trial.able.Load().mode.String() }
