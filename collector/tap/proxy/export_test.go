package proxy

// Limits returns the limits. A test can change them before the first request.
func (p *Proxy) Limits() *limits { return &p.limits }

// Mode returns the mode of the first engine. It panics if the mode is unknown.
func (p *Proxy) Mode() string { return p.balance.engines[0].trial.able.Load().mode.String() }
